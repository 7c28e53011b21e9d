// SPDX-License-Identifier: MIT OR Apache-2.0
//! A size (`100MB`) in place of a rate is refused everywhere. The message has the given text and both rates that it may
//! mean: `100MB/s` and `100mbit`.

use std::{fs, path::Path, process::Command};

fn assert_refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for word in words {
        assert!(
            message.contains(word),
            "{arguments:?}: {word:?} is not in {message}"
        );
    }
}

/// Words of the message.
const SUGGESTIONS: [&str; 3] = ["100MB\" is not a rate", "100MB/s", "100mbit"];

#[test]
fn commands_refuse_a_size_as_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("from"), "data").unwrap();
    let devices = "link --left a:10.0.0.1/30 --right b:10.0.0.2/30";
    let sites = "[[site]]\nname = 'a'\n[[site]]\nname = 'b'\n[[leg]]\nbetween = ['a', 'b']\nrate = '1gbit'\nrtt = '9ms'\n";
    fs::write(at.join("sites.toml"), sites).unwrap();
    for line in [
        "doctor --rate 100MB --rtt 10ms",
        "copy --limit 100MB from to",
        "copy --pacing 100MB from to",
        &format!("{devices} --rate 100MB"),
        &format!("{devices} --backward rate=100MB"),
        "run --pacing-rate 100MB true",
        "plan path --rate 100MB --rtt 10ms",
        "plan measure serve --limit 100MB",
        "probe 127.0.0.1 --expect rate=100MB",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_refused(at, &words, &SUGGESTIONS);
    }
    let change = [devices.split(' ').collect(), vec!["--at", "3s: rate 100MB"]].concat();
    assert_refused(at, &change, &SUGGESTIONS);
    assert!(!at.join("to").exists());
}

#[test]
fn configuration_files_refuse_a_size_as_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let listener = "[[listener]]\nname = 'l'\nkind = 'socks5'\naddress = '127.0.0.1:1080'\n";
    for (text, words) in [
        (format!("{listener}rate = '100MB'\n"), SUGGESTIONS),
        (
            format!("{listener}rate_per_client = '100MB'\n"),
            SUGGESTIONS,
        ),
        (
            format!("{listener}profile = 'p'\n[profile.p]\npacing_rate = '100MB'\n"),
            SUGGESTIONS,
        ),
        (
            format!("{listener}rate = 100\n"),
            ["\"100\" is not a rate", "100MB/s", "100mbit"],
        ),
    ] {
        fs::write(at.join("relay.toml"), text).unwrap();
        assert_refused(
            at,
            &["relay", "--config", "relay.toml", "--check-config"],
            &words,
        );
    }
    let link = "[[links]]\nname = 'a'\nleft = 'w0:10.0.0.1/30'\nright = 'w1:10.0.0.2/30'\n";
    fs::write(at.join("link.toml"), format!("{link}rate = '100MB'\n")).unwrap();
    assert_refused(at, &["link", "--config", "link.toml"], &SUGGESTIONS);
}

#[test]
fn scenarios_refuse_a_size_as_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let scenario = "title = 't'\nquestion = 'q?'\n[[links]]\nname = 'l'\nendpoints = ['a', 'b']\nRATE\n\
                    [[flows]]\nname = 'f'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\nduration = '2s'\nPACING\n";
    for (rate, pacing) in [
        ("rate = '100MB'", ""),
        ("rate = '1gbit'\nat = ['1s: rate 100MB']", ""),
        ("rate = '1gbit'", "pacing = '100MB'"),
    ] {
        let text = scenario.replace("RATE", rate).replace("PACING", pacing);
        fs::write(at.join("mine.toml"), text).unwrap();
        assert_refused(at, &["lab", "validate", "mine.toml"], &SUGGESTIONS);
    }
}

#[test]
fn commands_refuse_a_rate_as_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for size in ["64mbit", "64MB/s", "64Mb"] {
        for option in ["--memory", "--capture-memory"] {
            let devices = ["--left", "a:10.0.0.1/30", "--right", "b:10.0.0.2/30"];
            let words = [&["link"], &devices[..], &[option, size]].concat();
            assert_refused(at, &words, &[size]);
        }
        assert_refused(at, &["udt", "bench", "127.0.0.1", "--bytes", size], &[size]);
    }
}
