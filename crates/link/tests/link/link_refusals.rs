// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of bad input to `longhaul link`: one clear line, exit code 2, and no side effects.

use longhaul_testprograms::process;
use std::process::{Command, Output};

const ENDS: [&str; 4] = ["--left", "lo-a:10.9.0.1/30", "--right", "lo-b:10.9.0.2/30"];

fn link(args: &[&str]) -> Output {
    Command::new(longhaul_testprograms::longhaul())
        .arg("link")
        .args(args)
        .output()
        .unwrap()
}

/// Asserts a refusal with one line that contains all of `words`.
fn assert_refused(args: &[&str], words: &[&str]) {
    let stderr = process::assert_refused(&link(args), 2, words);
    assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
}

fn assert_setting_refused(flag: &str, value: &str, words: &[&str]) {
    assert_refused(&[&ENDS, [flag, value].as_slice()].concat(), words);
}

#[test]
fn rejects_values_out_of_range() {
    assert_setting_refused("--delay", "-13ms", &["delay", "-13ms", "0 or more"]);
    assert_setting_refused("--rate", "0gbit", &["rate", "0gbit", "1 bit/s"]);
    assert_setting_refused("--loss", "1.5", &["loss", "1.5"]);
    assert_setting_refused("--queue", "0bdp", &["queue", "0bdp"]);
    assert_setting_refused("--queue", "10", &["queue", "10p", "10KB", "1bdp"]);
    assert_setting_refused("--loss", "1", &["loss", "1%", "100%"]);
    assert_setting_refused("--loss", "0.001", &["loss", "0.001%", "0.1%"]);
    assert_setting_refused("--loss", "gilbert:p=1,r=30%", &["p: ", "1%", "100%"]);
    assert_setting_refused("--duplicate", "1", &["duplicate", "1%", "100%"]);
    assert_setting_refused("--corrupt", "5", &["corrupt", "5%"]);
    assert_setting_refused("--reorder", "1:5ms", &["reorder", "1%"]);
    assert_setting_refused("--reorder", "1%", &["reorder", "1%:5ms"]);
    assert_setting_refused("--backward", "queue=10", &["queue", "10p"]);
    assert_setting_refused("--at", "3s: loss 1", &["loss", "1%", "100%"]);
    assert_setting_refused("--ack-thin", "11", &["ack-thin", "11", "0 to 10"]);
    assert_setting_refused("--interval", "1us", &["--interval 1us", "1ms or more"]);
    assert_setting_refused("--interval", "0s", &["--interval 0s", "1ms or more"]);
    assert_setting_refused("--memory", "10", &["memory 10 B", "128 KB"]);
    assert_setting_refused(
        "--memory",
        "900TB",
        &["--memory", "900 TB", "this machine has"],
    );
    assert_setting_refused("--queue", "0", &["queue", "1p"]);
    // A negative value is a value, not an option: the link checks it.
    assert_refused(&["set", "wan", "delay", "-5ms"], &["no link named"]);
    assert_setting_refused("--mtu", "576", &["mtu 576", "1280 to 9000"]);
}

#[test]
fn names_setting_error_once() {
    for (flag, value) in [
        ("--loss", "5"),
        ("--aqm", "red:p=5"),
        ("--jitter", "normal"),
    ] {
        let args = [&ENDS, [flag, value].as_slice()].concat();
        let stderr = String::from_utf8(link(&args).stderr).unwrap();
        assert!(!stderr.contains("is refused"), "{stderr}");
        assert!(stderr.contains(value), "{stderr}");
    }
}

#[test]
fn rejects_incompatible_settings() {
    assert_setting_refused("--queue", "64KB", &["needs a rate"]);
    assert_refused(
        &[&ENDS, ["--rate", "1gbit", "--queue", "1bdp"].as_slice()].concat(),
        &["delay"],
    );
    let long = ["--rate", "100gbit", "--delay", "10s"];
    assert_refused(&[&ENDS, long.as_slice()].concat(), &["--memory"]);
    let short = ["--rate", "1gbit", "--delay", "100ms", "--memory", "1MB"];
    assert_refused(
        &[&ENDS, short.as_slice()].concat(),
        &["need 37.5 MB", "--memory"],
    );
}

#[test]
fn checks_schedules_and_overrides_before_start() {
    assert_setting_refused("--at", "30s: latency 80ms", &["latency", "delay, jitter"]);
    assert_setting_refused("--at", "soon: delay 80ms", &["soon"]);
    assert_setting_refused("--backward", "loss", &["KEY=VALUE"]);
    assert_setting_refused("--forward", "lose=1%", &["lose"]);
}

/// Ends in a missing namespace: a link with them is refused after its settings were read.
const ABSENT_ENDS: [&str; 4] = [
    "--left",
    "nosuchns:w0:10.9.0.1/30",
    "--right",
    "nosuchns:w1:10.9.0.2/30",
];

#[test]
fn missing_namespace_error_names_command() {
    assert_refused(&ABSENT_ENDS, &["nosuchns", "ip netns add nosuchns"]);
}

#[test]
fn rejects_missing_trace() {
    assert_setting_refused("--trace", "/nonexistent.trace", &["/nonexistent.trace"]);
}

#[test]
fn rejects_invalid_capture_options() {
    let name = format!("refused-{}", std::process::id());
    let refused = |more: &[&str], words: &[&str]| {
        let capture = ["--capture", "/nonexistent/file", "--name", &name];
        assert_refused(&[&ENDS, capture.as_slice(), more].concat(), words);
    };
    refused(&[], &["/nonexistent/file", "No such file"]);
    for length in ["39", "257"] {
        let words = [&format!("snap-length {length}"), "40 to 256"];
        refused(&["--snap-length", length], &words);
    }
    for (memory, words) in [
        ("1MB", ["capture-memory 1 MB", "at least 4"]),
        ("65GB", ["capture-memory 65 GB", "at most 64 GB"]),
        ("99999TB", ["capture-memory 99999 TB", "at most"]),
    ] {
        refused(&["--capture-memory", memory], &words);
    }
    let alone = |flag, value| link(&[&ENDS, [flag, value].as_slice()].concat());
    for output in [
        alone("--snap-length", "40"),
        alone("--capture-memory", "8MB"),
    ] {
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("without --capture FILE"), "{stderr}");
    }
}

/// Two spellings of one path.
#[test]
fn rejects_capture_and_counters_in_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().to_str().unwrap();
    let (capture, counters) = (format!("{parent}/out"), format!("{parent}/./out"));
    let both = ["--capture", &capture, "--counters", &counters];
    let expected = ["a capture and --counters", "give each its own"];
    assert_refused(&[&ENDS, both.as_slice()].concat(), &expected);
    assert!(!directory.path().join("out").exists());
}

#[test]
fn rejects_invalid_names() {
    for name in ["a b", "w%d", "..", &"x".repeat(200)] {
        let end = format!("{name}:10.9.0.1/30");
        let ends = ["--left", &end, "--right", "lo-b:10.9.0.2/30"];
        assert_refused(&ends, &["an interface name has 1 to 15"]);
    }
    assert_setting_refused("--name", &"x".repeat(200), &["93 bytes"]);
    assert_setting_refused("--name", "w 2", &["name \"w 2\"", "no space"]);
    assert_setting_refused("--name", "", &["name \"\"", "at least one"]);
}

#[test]
fn rejects_missing_ends_and_common_addresses() {
    for args in [[].as_slice(), &ENDS[..2]] {
        assert_refused(args, &["--left and --right", "--config"]);
    }
    let ends = [
        "--left",
        "lo-a:10.9.0.1/30",
        "--right",
        "lo-b:fd00::1/64,10.9.0.1/24",
    ];
    assert_refused(&ends, &["both ends", "10.9.0.1: give each its own"]);
}

#[test]
fn rejects_flags_of_a_link_beside_a_file() {
    for flag in [
        "--left=a",
        "--delay=1ms",
        "--mtu=9000",
        "--no-offload",
        "--seed=2",
    ] {
        let output = link(&["--config", "links.toml", flag]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let name = flag.split('=').next().unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("'--config <FILE>' cannot be used with"),
            "{stderr}"
        );
        assert!(stderr.contains(name), "{stderr}");
    }
}

#[test]
fn rejects_change_of_unknown_link() {
    assert_refused(&["set", "nosuchlink", "delay", "1ms"], &["nosuchlink"]);
}

#[test]
fn config_errors_name_file_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("path.toml");
    let file = path.to_str().unwrap();
    for (text, words) in [
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"",
            vec!["--config", "path.toml", "missing field `right`"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nlatency = \"1ms\"",
            vec!["path.toml", "latency"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\noffload = false",
            vec!["path.toml", "link \"a\"", "offload"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nloss = 1",
            vec!["path.toml", "loss", "1%", "100%"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nrate = \"1gbit\"\nqueue = 10",
            vec!["path.toml", "queue", "10p"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nsnap-length = 60",
            vec!["path.toml", "link \"a\"", "--snap-length", "--capture FILE"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\ndealy = \"1ms\"",
            vec!["path.toml", "link \"a\"", "unknown key", "dealy", "delay"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\ndelay = []",
            vec!["path.toml", "link \"a\"", "delay = []"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nfoo = {}",
            vec!["path.toml", "link \"a\"", "unknown key", "foo"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nno-offload = true\nno_offload = false",
            vec!["path.toml", "link \"a\"", "given twice"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nno-offload = \"yes\"",
            vec!["path.toml", "link \"a\"", "true or false"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\n[links.backward]\nloss = []",
            vec!["path.toml", "link \"a\"", "backward = ", "loss"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\n\
             [[links]]\nname = \"b\"\nleft = \"w1:10.0.1.1/30\"\nright = \"w3:10.0.1.2/30\"",
            vec!["two ends have the interface w1"],
        ),
        ("[[link]]", vec!["path.toml", "link"]),
        ("links = []", vec!["path.toml", "no links"]),
        ("", vec!["path.toml", "no links", "[[links]]"]),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\ncapture = \"t\"\n\
             [[links]]\nname = \"b\"\nleft = \"w2:10.0.1.1/30\"\nright = \"w3:10.0.1.2/30\"\ncapture = \"t\"",
            vec!["two links", "t: give each its own"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\n\
             capture = \"t\"\nsnap-length = 20",
            vec!["link \"a\"", "snap-length 20"],
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let output = link(&["--config", file]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    }
}
