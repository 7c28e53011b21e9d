// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input of `longhaul link`: one clear line, exit code 2, and nothing touched.

use std::process::{Command, Output};

const ENDS: [&str; 4] = ["--left", "lo-a:10.9.0.1/30", "--right", "lo-b:10.9.0.2/30"];

fn link(args: &[&str]) -> Output {
    Command::new(longhaul_testbed::longhaul())
        .arg("link")
        .args(args)
        .output()
        .unwrap()
}

/// Refused with one line that holds all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    let output = link(args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

fn refused_setting(flag: &str, value: &str, words: &[&str]) {
    refused(&[&ENDS, [flag, value].as_slice()].concat(), words);
}

#[test]
fn values_out_of_range_are_named() {
    refused_setting("--delay", "-13ms", &["delay", "-13ms", "0 or more"]);
    refused_setting("--rate", "0gbit", &["rate", "0gbit", "1 bit/s"]);
    refused_setting("--loss", "1.5", &["loss", "1.5"]);
    refused_setting("--queue", "0bdp", &["queue", "0bdp"]);
    refused_setting("--queue", "10", &["queue", "10p", "10KB", "1bdp"]);
    refused_setting("--loss", "1", &["loss", "1%", "100%"]);
    refused_setting("--loss", "0.001", &["loss", "0.001%", "0.1%"]);
    refused_setting("--loss", "gilbert:p=1,r=30%", &["p: ", "1%", "100%"]);
    refused_setting("--duplicate", "1", &["duplicate", "1%", "100%"]);
    refused_setting("--corrupt", "5", &["corrupt", "5%"]);
    refused_setting("--reorder", "1:5ms", &["reorder", "1%"]);
    refused_setting("--reorder", "1%", &["reorder", "1%:5ms"]);
    refused_setting("--backward", "queue=10", &["queue", "10p"]);
    refused_setting("--at", "3s: loss 1", &["loss", "1%", "100%"]);
    refused_setting("--ack-thin", "11", &["ack-thin", "11", "0 to 10"]);
    refused_setting("--interval", "1us", &["--interval", "1ms or more"]);
    refused_setting("--interval", "0s", &["--interval", "1ms or more"]);
    refused_setting("--memory", "10", &["memory 10 B", "128 KB"]);
    refused_setting("--queue", "0", &["queue", "1p"]);
    // A negative value is the link's to judge: it is no option.
    refused(&["set", "wan", "delay", "-5ms"], &["no link named"]);
    refused_setting("--mtu", "576", &["mtu 576", "1280 to 9000"]);
}

#[test]
fn what_is_wrong_with_a_setting_is_named_once() {
    for (flag, value) in [
        ("--loss", "5"),
        ("--rule", "red:p=5"),
        ("--jitter", "normal"),
    ] {
        let args = [&ENDS, [flag, value].as_slice()].concat();
        let said = String::from_utf8(link(&args).stderr).unwrap();
        assert!(!said.contains("is refused"), "{said}");
        assert!(said.contains(value), "{said}");
    }
}

#[test]
fn settings_that_can_not_stand_together_are_named() {
    refused_setting("--queue", "64KB", &["needs a rate"]);
    refused(
        &[&ENDS, ["--rate", "1gbit", "--queue", "1bdp"].as_slice()].concat(),
        &["delay"],
    );
    let long = ["--rate", "100gbit", "--delay", "10s"];
    refused(&[&ENDS, long.as_slice()].concat(), &["--memory"]);
    let short = ["--rate", "1gbit", "--delay", "100ms", "--memory", "1MB"];
    refused(
        &[&ENDS, short.as_slice()].concat(),
        &["need 37.5 MB", "--memory"],
    );
}

#[test]
fn schedules_and_overrides_are_checked_before_the_start() {
    refused_setting("--at", "30s: latency 80ms", &["latency", "delay, jitter"]);
    refused_setting("--at", "soon: delay 80ms", &["soon"]);
    refused_setting("--backward", "loss", &["KEY=VALUE"]);
    refused_setting("--forward", "lose=1%", &["lose"]);
}

#[test]
fn a_missing_namespace_comes_with_the_command_that_makes_it() {
    let ends = [
        "--left",
        "nosuchns:w0:10.9.0.1/30",
        "--right",
        "nosuchns:w1:10.9.0.2/30",
    ];
    refused(&ends, &["nosuchns", "ip netns add nosuchns"]);
}

#[test]
fn a_missing_trace_is_named() {
    refused_setting("--trace", "/nonexistent.trace", &["/nonexistent.trace"]);
}

#[test]
fn taps_that_can_not_be_are_named() {
    let name = format!("refused-{}", std::process::id());
    let tap = |more: &[&str], words: &[&str]| {
        let tap = ["--tap", "/nonexistent/tap", "--name", &name];
        refused(&[&ENDS, tap.as_slice(), more].concat(), words);
    };
    tap(&[], &["/nonexistent/tap", "No such file"]);
    tap(&["--tap-snap", "39"], &["tap-snap 39", "40 to 256"]);
    tap(&["--tap-snap", "257"], &["tap-snap 257", "40 to 256"]);
    tap(&["--tap-memory", "1MB"], &["tap-memory 1 MB", "at least 4"]);
    tap(
        &["--tap-memory", "65GB"],
        &["tap-memory 65 GB", "at most 64 GB"],
    );
    tap(
        &["--tap-memory", "99999TB"],
        &["tap-memory 99999 TB", "at most"],
    );
    let alone = |flag, value| link(&[&ENDS, [flag, value].as_slice()].concat());
    for output in [alone("--tap-snap", "40"), alone("--tap-memory", "8MB")] {
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--tap <FILE>"), "{said}");
    }
}

/// However it is written.
#[test]
fn a_tap_and_counters_in_one_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let (tap, counters) = (format!("{place}/out"), format!("{place}/./out"));
    let both = ["--tap", &tap, "--counters", &counters];
    let wanted = ["a tap and --counters", "give each its own"];
    refused(&[&ENDS, both.as_slice()].concat(), &wanted);
    assert!(!directory.path().join("out").exists());
}

#[test]
fn names_that_can_not_be_are_named() {
    for name in ["a b", "w%d", "..", &"x".repeat(200)] {
        let end = format!("{name}:10.9.0.1/30");
        let ends = ["--left", &end, "--right", "lo-b:10.9.0.2/30"];
        refused(&ends, &["an interface name has 1 to 15"]);
    }
    refused_setting("--name", &"x".repeat(200), &["93 bytes"]);
}

#[test]
fn a_link_that_does_not_run_can_not_be_changed() {
    refused(&["set", "nosuchlink", "delay", "1ms"], &["nosuchlink"]);
}

#[test]
fn files_are_refused_with_their_name_and_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("path.toml");
    let file = path.to_str().unwrap();
    for (text, words) in [
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"",
            vec!["path.toml", "right"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\nlatency = \"1ms\"",
            vec!["path.toml", "latency"],
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
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\ntap-snap = 60",
            vec!["path.toml", "link \"a\"", "tap-snap", "give that"],
        ),
        ("[[link]]", vec!["path.toml", "link"]),
        ("links = []", vec!["path.toml", "no links"]),
        ("", vec!["path.toml", "no links", "[[links]]"]),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\ntap = \"t\"\n\
             [[links]]\nname = \"b\"\nleft = \"w2:10.0.1.1/30\"\nright = \"w3:10.0.1.2/30\"\ntap = \"t\"",
            vec!["two links", "t: give each its own"],
        ),
        (
            "[[links]]\nname = \"a\"\nleft = \"w0:10.0.0.1/30\"\nright = \"w1:10.0.0.2/30\"\n\
             tap = \"t\"\ntap-snap = 20",
            vec!["link \"a\"", "tap-snap 20"],
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let output = link(&["--config", file]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}
