// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rotation of the --counters file while the relay writes it, as by logrotate.

use longhaul_testnet::relay_process::{Relay, TEST_TIMEOUT};
use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

struct Log {
    directory: tempfile::TempDir,
    relay: Relay,
}

impl Log {
    /// Starts a relay that writes often.
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("relay.jsonl");
        let config = directory.path().join("relay.toml");
        let text = format!(
            "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\n\
             [counters]\nfile = '{}'\ninterval = '20ms'\n",
            file.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.args(["relay", "--config"]).arg(config);
        let relay = Relay::spawn_with_listeners(command, 1);
        let log = Self { directory, relay };
        log.await_growth(&log.file());
        log
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("relay.jsonl")
    }

    fn moved(&self) -> PathBuf {
        self.directory.path().join("relay.jsonl.1")
    }

    fn rotate(&self) {
        fs::rename(self.file(), self.moved()).unwrap();
        self.relay.signal(Signal::HUP);
    }

    /// Waits until the file has three more lines.
    fn await_growth(&self, path: &Path) {
        let (before, start) = (lines(path), Instant::now());
        while lines(path) < before + 3 {
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "{} does not grow",
                path.display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn reopens_file_after_rotation() {
    let log = Log::start();
    log.rotate();
    log.await_growth(&log.file());
    let moved = lines(&log.moved());
    log.await_growth(&log.file());
    assert_eq!(lines(&log.moved()), moved, "the moved file is not written");
    // All lines are complete in both files.
    for path in [log.file(), log.moved()] {
        for line in fs::read_to_string(path).unwrap().split_inclusive('\n') {
            assert!(line.ends_with('\n') && line.starts_with('{'), "{line}");
        }
    }
}

#[test]
fn reopens_file_despite_invalid_configuration() {
    let log = Log::start();
    fs::write(log.directory.path().join("relay.toml"), "nonsense").unwrap();
    log.rotate();
    log.relay.wait_for_stderr("not reloaded");
    log.await_growth(&log.file());
}

#[test]
fn appends_without_rotation() {
    let log = Log::start();
    log.relay.signal(Signal::HUP);
    log.relay.wait_for_stderr("configuration reloaded");
    let before = lines(&log.file());
    log.await_growth(&log.file());
    assert!(lines(&log.file()) > before);
}

/// The old file stays open, and the next SIGHUP reopens it if possible.
#[test]
fn survives_missing_directory() {
    let log = Log::start();
    let directory = log.directory.path().join("logs");
    fs::create_dir(&directory).unwrap();
    let config = log.directory.path().join("relay.toml");
    let file = directory.join("a");
    let text = format!(
        "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\n\
         [counters]\nfile = '{}'\ninterval = '20ms'\n",
        file.display()
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["relay", "--config"]).arg(&config);
    let relay = Relay::spawn_with_listeners(command, 1);
    log.await_growth(&file);
    let away = log.directory.path().join("away");
    fs::rename(&directory, &away).unwrap();
    relay.signal(Signal::HUP);
    relay.wait_for_stderr("the file opened before stays in use");
    log.await_growth(&away.join("a"));
    fs::create_dir(&directory).unwrap();
    relay.signal(Signal::HUP);
    log.await_growth(&file);
}
