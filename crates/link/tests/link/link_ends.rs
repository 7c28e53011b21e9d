// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the ways in which `longhaul link` ends: each direction has its report and each capture its statistics.

use longhaul_testnet::{
    link_process::{
        Testbed, capture_file::CaptureFile, may_use_namespaces, traffic::send_datagrams,
    },
    relay_testbed::run_ip,
};
use longhaul_testprograms::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    path::Path,
    process::{Child, Command, Stdio},
};

const ENDS: [&str; 4] = ["--left", "w0:10.66.30.1/30", "--right", "w1:10.66.30.2/30"];

/// Starts a link with both ends in an unnamed namespace, which ends with it.
fn link(args: &[&str], stderr: impl Into<Stdio>) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--net", longhaul_testprograms::longhaul(), "link"]);
    command.args(args).stderr(stderr).spawn().unwrap()
}

fn terminate(link: &Child) {
    kill_process(Pid::from_child(link), Signal::TERM).unwrap();
}

/// Returns its output until it is ready.
fn until_ready(output: &mut PipeReader) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"ready\n") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        text.extend(byte);
    }
    String::from_utf8(text).unwrap()
}

/// Returns the length of its output before it is ready.
fn startup_output_len() -> usize {
    let (mut output, stderr) = pipe().unwrap();
    let mut link = link(&ENDS, stderr);
    let text = until_ready(&mut output);
    link.kill().unwrap();
    link.wait().unwrap();
    text.len() - "ready\n".len()
}

/// Returns a pipe with room for `room` bytes.
fn narrow_pipe(room: usize) -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4_096).unwrap();
    writer.write_all(&vec![b'.'; size - room]).unwrap();
    (reader, writer)
}

/// `lo` exists in every namespace, and is not a TUN device.
#[test]
fn rejects_existing_interface() {
    if !may_use_namespaces() {
        return;
    }
    let ends = ["--left", "lo:10.66.30.1/30", "--right", "w1:10.66.30.2/30"];
    let output = link(&ends, Stdio::piped()).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("interface lo exists already"), "{stderr}");
}

/// The pipe blocks the write of "ready", so the stop comes exactly at that moment.
#[test]
fn stops_right_after_ready() {
    if !may_use_namespaces() {
        return;
    }
    let (mut output, stderr) = narrow_pipe(startup_output_len());
    let mut link = link(&ENDS, stderr);
    let waits_in = format!("/proc/{}/wchan", link.id());
    wait_until(|| {
        let function = fs::read_to_string(&waits_in).unwrap();
        function.contains("pipe_write")
    });
    terminate(&link);
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let text = text.trim_start_matches('.');
    assert!(link.wait().unwrap().success(), "{text}");
    assert!(text.contains("ready\nlink "), "{text}");
}

/// Asserts that each direction has its report, on standard error and in the capture.
fn assert_reports(stderr: &str, link: &str, capture: &Path) {
    let file = CaptureFile::read(fs::read(capture).unwrap());
    assert_eq!(file.damage, [], "the file ends with a whole block");
    assert_eq!(file.statistics.len(), 2, "{stderr}");
    for direction in ["forward", "backward"] {
        assert!(
            stderr.contains(&format!("link {link} {direction}: ")),
            "{stderr}"
        );
        assert!(file.contains(&format!("\"direction\":\"{direction}\"")));
    }
}

/// Runs two links with a capture each, whose counters cannot be written.
fn run_without_disk(interval: &str, end: impl FnOnce(&Child)) {
    let directory = tempfile::tempdir().unwrap();
    let capture = |name: &str| directory.path().join(format!("{name}.pcapng"));
    let describe = |(name, network): (&str, u8)| {
        let capture = capture(name);
        format!(
            "[[links]]\nname = \"{name}\"\ncapture = {capture:?}\n\
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
    let (mut output, stderr) = pipe().unwrap();
    let mut link = link(&flags, stderr);
    let mut text = until_ready(&mut output);
    end(&link);
    output.read_to_string(&mut text).unwrap();
    assert_eq!(link.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    for name in ["a", "b"] {
        assert_reports(&text, name, &capture(name));
    }
}

#[test]
fn completes_captures_when_counters_fail() {
    if !may_use_namespaces() {
        return;
    }
    run_without_disk("100ms", |_| {});
}

#[test]
fn completes_captures_when_last_counters_fail() {
    if !may_use_namespaces() {
        return;
    }
    run_without_disk("1h", terminate);
}

/// No snapshot or write is due when the interface is deleted.
#[test]
fn completes_capture_when_interface_is_deleted() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("wan.pcapng");
    let flags = ["--interval", "1h", "--capture", capture.to_str().unwrap()];
    let bed = Testbed::start("deleted", ["10.66.33.1/30", "10.66.33.2/30"], &flags);
    assert_eq!(send_datagrams(&bed, 10, 10).len(), 10);
    let name = format!("deleted-{}", std::process::id());
    run_ip(&bed.left, "link delete wan0");
    let (status, stderr) = bed.wait_for_exit();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("an interface of the link was removed"),
        "{stderr}"
    );
    assert_reports(&stderr, &name, &capture);
    let forward = format!("link {name} forward: 10 of 10 segments delivered");
    assert!(stderr.contains(&forward), "{stderr}");
    assert_eq!(
        CaptureFile::read(fs::read(&capture).unwrap())
            .segments
            .len(),
        20
    );
}
