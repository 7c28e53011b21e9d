// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a daemon: its form, its level, priorities for the journal.

use crate::relay::Relay;
use std::{
    fs::File,
    io::{PipeWriter, Read},
    net::{Ipv4Addr, SocketAddr},
    os::{fd::AsFd, linux::fs::MetadataExt},
    process::Command,
};

/// Starts a relay with these flags, sends it a request that fails, stops it, and returns all lines of its log.
fn relay_log(flags: &[&str], is_journal: bool) -> String {
    let relay = Relay::start(flags, |command, stderr| {
        if is_journal {
            command.env("JOURNAL_STREAM", journal_stream(stderr));
        }
    });
    let (_, reply) = relay.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    assert_ne!(reply, 0);
    relay.stop()
}

/// Returns the environment's name of this pipe, as if it led to the journal.
fn journal_stream(pipe: &PipeWriter) -> String {
    let file = File::from(pipe.as_fd().try_clone_to_owned().unwrap());
    let metadata = file.metadata().unwrap();
    format!("{}:{}", metadata.st_dev(), metadata.st_ino())
}

#[test]
fn logs_connections_only_at_level_debug() {
    let ended = "DEBUG relay::session::close: connection{id=0}: connection ended: ";
    assert!(!relay_log(&[], false).contains("connection ended"));
    let log = relay_log(&["--log-level", "info,relay::session=debug"], false);
    let line = log
        .lines()
        .find(|line| line.contains(ended))
        .unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("client=127.0.0.1:") && line.contains("bytes_down=0"),
        "{line}"
    );
}

#[test]
fn logs_time_level_and_target() {
    let log = relay_log(&[], false);
    let lines: Vec<_> = log.lines().collect();
    assert!(
        lines[0].contains("Z INFO relay::process::run: listening socks5 127.0.0.1:"),
        "{log}"
    );
    assert!(
        lines
            .last()
            .unwrap()
            .ends_with("stopped, no connection reset"),
        "{log}"
    );
}

#[test]
fn logs_json() {
    let log = relay_log(&["--log-format", "json"], false);
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO", "{log}");
        assert_eq!(line["target"], "longhaul_relay::process::run", "{log}");
    }
}

#[test]
fn logs_priorities_to_the_journal() {
    let log = relay_log(&["--log-level", "info,hickory_proto=debug"], true);
    assert!(
        log.lines().all(|line| line.starts_with("<6>relay::")),
        "{log}"
    );
}

#[test]
fn gives_the_fatal_error_its_priority_in_the_journal() {
    let (mut stderr, writer) = std::io::pipe().unwrap();
    let mut relay = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    relay
        .args(["relay", "--config", "/no/such/file"])
        .env("JOURNAL_STREAM", journal_stream(&writer))
        .stderr(writer);
    assert_eq!(relay.status().unwrap().code(), Some(2));
    drop(relay);
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("<3>longhaul: --config /no/such/file"),
        "{text}"
    );
}

#[test]
fn rejects_unknown_levels_and_formats() {
    for (flag, value) in [("--log-level", "loud"), ("--log-format", "xml")] {
        let relay = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["relay", flag, value])
            .output()
            .unwrap();
        assert_eq!(relay.status.code(), Some(2));
        let message = String::from_utf8(relay.stderr).unwrap();
        assert!(message.contains(value), "{message}");
    }
}
