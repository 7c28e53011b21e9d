// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of --counters is moved away while the relay writes it, as logrotate does.

use longhaul_testnet::relay_process::{PATIENCE, Relay};
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
    /// A relay that writes often.
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
        let mut command = Command::new(longhaul_testbed::longhaul());
        command.args(["relay", "--config"]).arg(config);
        let relay = Relay::spawn_waiting(command, 1);
        let log = Self { directory, relay };
        log.grows(&log.file());
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

    /// Waits for three more lines.
    fn grows(&self, path: &Path) {
        let (before, begin) = (lines(path), Instant::now());
        while lines(path) < before + 3 {
            assert!(begin.elapsed() < PATIENCE, "{} stays", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn records_go_to_the_file_that_has_the_name() {
    let log = Log::start();
    log.rotate();
    log.grows(&log.file());
    let moved = lines(&log.moved());
    log.grows(&log.file());
    assert_eq!(lines(&log.moved()), moved, "the moved file is not written");
    // All lines are whole, in both.
    for path in [log.file(), log.moved()] {
        for line in fs::read_to_string(path).unwrap().split_inclusive('\n') {
            assert!(line.ends_with('\n') && line.starts_with('{'), "{line}");
        }
    }
}

#[test]
fn a_configuration_that_is_refused_changes_nothing_of_that() {
    let log = Log::start();
    fs::write(log.directory.path().join("relay.toml"), "nonsense").unwrap();
    log.rotate();
    log.relay.says("not reloaded");
    log.grows(&log.file());
}

#[test]
fn without_a_move_the_file_goes_on() {
    let log = Log::start();
    log.relay.signal(Signal::HUP);
    log.relay.says("configuration reloaded");
    let before = lines(&log.file());
    log.grows(&log.file());
    assert!(lines(&log.file()) > before);
}

/// The old file stays open, and the next SIGHUP may find a better place.
#[test]
fn a_directory_that_is_gone_is_said_and_mended() {
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
    let mut command = Command::new(longhaul_testbed::longhaul());
    command.args(["relay", "--config"]).arg(&config);
    let relay = Relay::spawn_waiting(command, 1);
    log.grows(&file);
    let away = log.directory.path().join("away");
    fs::rename(&directory, &away).unwrap();
    relay.signal(Signal::HUP);
    relay.says("what was open before stays so");
    log.grows(&away.join("a"));
    fs::create_dir(&directory).unwrap();
    relay.signal(Signal::HUP);
    log.grows(&file);
}
