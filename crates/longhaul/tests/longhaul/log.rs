// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a daemon: its form, its level, priorities for the journal.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::{fd::AsFd, linux::fs::MetadataExt},
    process::{Command, Stdio},
};

/// Starts a relay with these flags, stops it once it logged a line, and returns all lines.
fn relay_log(flags: &[&str], is_journal: bool) -> String {
    let (stderr, writer) = std::io::pipe().unwrap();
    let mut relay = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    // Few connections: a low limit on descriptors would be a warning.
    let relay_args = [
        "relay",
        "--socks5",
        "127.0.0.1:0",
        "--max-connections",
        "64",
    ];
    relay.args(relay_args).args(flags);
    if is_journal {
        let file = std::fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
        let metadata = file.metadata().unwrap();
        let stream = format!("{}:{}", metadata.st_dev(), metadata.st_ino());
        relay.env("JOURNAL_STREAM", stream);
    }
    let mut child = relay.stdin(Stdio::null()).stderr(writer).spawn().unwrap();
    drop(relay);
    let mut lines = BufReader::new(stderr);
    let mut text = String::new();
    lines.read_line(&mut text).unwrap();
    request(&text);
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    lines.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

/// Sends the relay a request that fails: its destination is port 0.
fn request(ready: &str) {
    let address = ready.split("listening socks5 ").nth(1).unwrap();
    let port = address
        .split(|c: char| c == '"' || c.is_whitespace())
        .next()
        .unwrap();
    let mut client = TcpStream::connect(port).unwrap();
    client
        .write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00")
        .unwrap();
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).unwrap();
    assert_eq!(reply[..2], [5, 0]);
}

#[test]
fn logs_connections_only_at_level_debug() {
    let ended = "DEBUG relay::session::close: connection ended: ";
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
