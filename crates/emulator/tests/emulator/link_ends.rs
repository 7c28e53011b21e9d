// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `longhaul link` ends: whatever ends it, each direction has its self-check and each tap its statistics.

use longhaul_testnet::{
    link_process::{Testbed, may_use_namespaces, tap_file::TapFile, traffic::datagrams},
    relay_testbed::ip,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const ENDS: [&str; 4] = ["--left", "w0:10.66.30.1/30", "--right", "w1:10.66.30.2/30"];
/// No test waits longer; it decides only how long a failure takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A link with both ends in a namespace without a name, which goes with it.
fn link(args: &[&str], said: impl Into<Stdio>) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--net", longhaul_testbed::longhaul(), "link"]);
    command.args(args).stderr(said).spawn().unwrap()
}

fn terminate(link: &Child) {
    kill_process(Pid::from_child(link), Signal::TERM).unwrap();
}

/// What it says until it is ready.
fn until_ready(said: &mut PipeReader) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"ready\n") {
        let mut byte = [0];
        said.read_exact(&mut byte).unwrap();
        text.extend(byte);
    }
    String::from_utf8(text).unwrap()
}

/// The length of what it says before it is ready.
fn preface_len() -> usize {
    let (mut said, stderr) = pipe().unwrap();
    let mut link = link(&ENDS, stderr);
    let said = until_ready(&mut said);
    link.kill().unwrap();
    link.wait().unwrap();
    said.len() - "ready\n".len()
}

/// A pipe with room for so many bytes.
fn narrow_pipe(room: usize) -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4_096).unwrap();
    writer.write_all(&vec![b'.'; size - room]).unwrap();
    (reader, writer)
}

/// `lo` is there in every namespace, and is no TUN device.
#[test]
fn an_interface_that_is_there_already_is_named() {
    if !may_use_namespaces() {
        return;
    }
    let ends = ["--left", "lo:10.66.30.1/30", "--right", "w1:10.66.30.2/30"];
    let output = link(&ends, Stdio::piped()).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("interface lo exists already"), "{said}");
}

/// The pipe holds up the word, so the stop comes at the moment when it is said.
#[test]
fn a_stop_right_after_ready_is_heard() {
    if !may_use_namespaces() {
        return;
    }
    let (mut said, stderr) = narrow_pipe(preface_len());
    let mut link = link(&ENDS, stderr);
    let begun = Instant::now();
    let waits_in = format!("/proc/{}/wchan", link.id());
    while !fs::read_to_string(&waits_in)
        .unwrap()
        .contains("pipe_write")
    {
        assert!(begun.elapsed() < PATIENCE, "it never was ready");
        std::thread::sleep(Duration::from_millis(5));
    }
    terminate(&link);
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    let text = text.trim_start_matches('.');
    assert!(link.wait().unwrap().success(), "{text}");
    assert!(text.contains("ready\nlink "), "{text}");
}

/// Each direction has had its last word, on standard error and in the tap.
fn is_concluded(said: &str, link: &str, tap: &Path) {
    let file = TapFile::read(fs::read(tap).unwrap());
    assert_eq!(file.damage, [], "it ends with a whole block");
    assert_eq!(file.statistics.len(), 2, "{said}");
    for direction in ["forward", "backward"] {
        assert!(
            said.contains(&format!("link {link} {direction}: ")),
            "{said}"
        );
        assert!(file.contains(&format!("\"direction\":\"{direction}\"")));
    }
}

/// Two links with a tap each, whose counters go nowhere.
fn without_disk(interval: &str, end: impl FnOnce(&Child)) {
    let directory = tempfile::tempdir().unwrap();
    let tap = |name: &str| directory.path().join(format!("{name}.pcapng"));
    let describe = |(name, network): (&str, u8)| {
        let tap = tap(name);
        format!(
            "[[links]]\nname = \"{name}\"\ntap = {tap:?}\n\
             left = \"{name}0:10.66.{network}.1/30\"\nright = \"{name}1:10.66.{network}.2/30\"\n"
        )
    };
    let config = directory.path().join("links.toml");
    fs::write(&config, [("a", 31), ("b", 32)].map(describe).concat()).unwrap();
    let flags = [
        "--counters",
        "/dev/full",
        "--interval",
        interval,
        "--config",
    ];
    let flags = [&flags, [config.to_str().unwrap()].as_slice()].concat();
    let (mut said, stderr) = pipe().unwrap();
    let mut link = link(&flags, stderr);
    let mut text = until_ready(&mut said);
    end(&link);
    said.read_to_string(&mut text).unwrap();
    assert_eq!(link.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    for name in ["a", "b"] {
        is_concluded(&text, name, &tap(name));
    }
}

#[test]
fn a_full_disk_for_counters_costs_no_tap() {
    if !may_use_namespaces() {
        return;
    }
    without_disk("100ms", |_| {});
}

#[test]
fn a_full_disk_for_the_last_counters_costs_no_tap() {
    if !may_use_namespaces() {
        return;
    }
    without_disk("1h", terminate);
}

/// Nothing is due to be reported or written when the interface goes.
#[test]
fn an_interface_that_is_deleted_costs_no_record() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tap = directory.path().join("tap.pcapng");
    let flags = ["--interval", "1h", "--tap", tap.to_str().unwrap()];
    let bed = Testbed::start("deleted", ["10.66.33.1/30", "10.66.33.2/30"], &flags);
    assert_eq!(datagrams(&bed, 10, 10).len(), 10);
    let name = format!("deleted-{}", std::process::id());
    ip(&bed.left, "link delete wan0");
    let (status, said) = bed.end_by_itself();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains("an interface of the link was taken away"),
        "{said}"
    );
    is_concluded(&said, &name, &tap);
    let forward = format!("link {name} forward: 10 of 10 segments delivered");
    assert!(said.contains(&forward), "{said}");
    assert_eq!(TapFile::read(fs::read(&tap).unwrap()).segments.len(), 20);
}
