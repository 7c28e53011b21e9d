// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul udt` with files, pipes and benches: locally, and with libudt over a link that loses, duplicates and
//! reorders packets.

use longhaul_linux::process::inside;
use longhaul_testnet::{
    link_process::{Testbed, may_use_namespaces},
    payload::bytes,
};
use serde_json::Value;
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

/// Seconds after which a command counts as hung.
const TIMEOUT_S: &str = "100";

pub(crate) fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([TIMEOUT_S, longhaul_testprograms::longhaul(), "udt"]);
    command.args(arguments);
    piped(command)
}

fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until the command listens. Returns its port, and its further standard error.
fn port(child: &mut Child) -> (String, BufReader<ChildStderr>) {
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap().to_owned();
    assert!(port.parse::<u16>().is_ok(), "{line}");
    (port, stderr)
}

pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn transfers_a_file_and_both_report_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("from"), bytes(1, 5_000_000)).unwrap();
    let mut receiver = longhaul(&["receive", &at("to"), "--listen", "[::]:0", "--json"])
        .spawn()
        .unwrap();
    let (port, _stderr) = port(&mut receiver);
    let to = format!("127.0.0.1:{port}");
    let sent = json(
        &longhaul(&["send", &at("from"), &to, "--json"])
            .output()
            .unwrap(),
    );
    let received = json(&receiver.wait_with_output().unwrap());
    assert_eq!(fs::read(at("to")).unwrap(), bytes(1, 5_000_000));
    let hash = blake3::hash(&bytes(1, 5_000_000)).to_string();
    assert_eq!(
        (&sent["blake3"], &received["blake3"]),
        (&hash.clone().into(), &hash.into())
    );
    assert_eq!(
        (&sent["bytes"], &received["bytes"]),
        (&5_000_000.into(), &5_000_000.into())
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "no temporary file is left"
    );
}

#[test]
fn transfers_standard_input_to_standard_output() {
    let mut receiver = longhaul(&["receive", "-", "--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let (port, _stderr) = port(&mut receiver);
    let to = format!("127.0.0.1:{port}");
    let mut sender = longhaul(&["send", "-", &to]);
    let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
    sender
        .stdin
        .take()
        .unwrap()
        .write_all(&bytes(1, 300_000))
        .unwrap();
    assert!(sender.wait().unwrap().success());
    assert_eq!(
        receiver.wait_with_output().unwrap().stdout,
        bytes(1, 300_000)
    );
}

#[test]
fn an_incomplete_transfer_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    let mut receiver = longhaul(&[
        "receive",
        to.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--idle-timeout",
        "2s",
    ]);
    let mut receiver = receiver.spawn().unwrap();
    let (port, _stderr) = port(&mut receiver);
    let mut sender = Command::new(longhaul_testprograms::longhaul());
    sender.args(["udt", "send", "-", &format!("127.0.0.1:{port}")]);
    let mut sender = piped(sender).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(&bytes(1, 1_000_000)).unwrap();
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert_eq!(receiver.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Starts `receive` into a file through a wrapper command, and `send` from a file or from a pipe that stays open.
fn start_transfer(folder: &Path, by: &[&str], from: &str) -> [Child; 2] {
    let mut receiver = Command::new(by[0]);
    receiver
        .args(&by[1..])
        .arg(longhaul_testprograms::longhaul());
    receiver.args(["udt", "receive", "to", "--listen", "127.0.0.1:0"]);
    let mut receiver = piped(receiver).current_dir(folder).spawn().unwrap();
    let (port, stderr) = port(&mut receiver);
    receiver.stderr = Some(stderr.into_inner());
    let mut sender = longhaul(&["send", from, &format!("127.0.0.1:{port}")]);
    let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
    if let Some(pipe) = sender.stdin.as_mut().filter(|_| from == "-") {
        pipe.write_all(&bytes(1, 1_000_000)).unwrap();
    }
    [receiver, sender]
}

/// Starts a transfer with signal settings of env(1), and waits until data has arrived.
fn start_and_wait_for_data(folder: &Path, signals: &str, from: &str) -> [Child; 2] {
    let ends = start_transfer(folder, &["env", signals], from);
    let has_data = |entry: io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().len() > 0;
    while !fs::read_dir(folder).unwrap().any(has_data) {
        thread::sleep(Duration::from_millis(10));
    }
    ends
}

/// Asserts that the receiver failed with this message and left no file, and that the sender was notified.
fn assert_aborted([receiver, sender]: [Child; 2], message: &str, folder: &Path) {
    for (child, message) in [(receiver, message), (sender, "connection reset")] {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let kill = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(kill.unwrap().success());
}

#[test]
fn a_signal_leaves_no_file_and_resets_the_sender() {
    for (name, signals) in [
        ("INT", "--default-signal=INT"),
        // A shell ignores SIGINT in background processes.
        ("INT", "--ignore-signal=INT"),
        ("TERM", "--default-signal=TERM"),
        ("HUP", "--default-signal=HUP"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ends = start_and_wait_for_data(folder.path(), signals, "/dev/zero");
        signal(&ends[0], name);
        assert_aborted(ends, "interrupted", folder.path());
    }
}

/// A file size limit replaces a full disk.
#[test]
fn a_full_disk_leaves_no_file_and_resets_the_sender() {
    let folder = tempfile::tempdir().unwrap();
    let limited = ["env", "--ignore-signal=XFSZ", "prlimit", "--fsize=300000"];
    let ends = start_transfer(folder.path(), &limited, "/dev/zero");
    assert_aborted(ends, "File too large", folder.path());
}

/// SIGHUP is ignored, as with nohup(1).
#[test]
fn an_ignored_sighup_does_not_end_the_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let [receiver, sender] = start_and_wait_for_data(folder.path(), "--ignore-signal=HUP", "-");
    signal(&receiver, "HUP");
    assert!(sender.wait_with_output().unwrap().status.success());
    let output = receiver.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        fs::read(folder.path().join("to")).unwrap(),
        bytes(1, 1_000_000)
    );
}

#[test]
fn a_signal_before_a_connection_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to").display().to_string();
    let mut receiver = Command::new(longhaul_testprograms::longhaul());
    receiver.args(["udt", "receive", &to, "--listen", "127.0.0.1:0"]);
    let mut receiver = piped(receiver).spawn().unwrap();
    let (_port, _stderr) = port(&mut receiver);
    signal(&receiver, "INT");
    assert_eq!(receiver.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn bench_measures_both_directions() {
    let mut server = Command::new(longhaul_testprograms::longhaul());
    server.args(["udt", "bench", "--listen", "127.0.0.1:0"]);
    let mut server = piped(server).spawn().unwrap();
    let (port, _stderr) = port(&mut server);
    let to = format!("127.0.0.1:{port}");
    for more in [&[][..], &["--reverse"], &["--streams", "3"]] {
        let mut bench = longhaul(&["bench", &to, "--bytes", "6MB", "--json"]);
        let record = json(&bench.args(more).output().unwrap());
        for end in ["sender", "receiver"] {
            assert_eq!(record[end]["bytes"], 6_000_000, "{record}");
            assert!(
                record[end]["cpu_seconds"].as_f64().unwrap() > 0.0,
                "{record}"
            );
        }
        assert!(
            record["sender"]["packets_sent"].as_u64().unwrap() > 4000,
            "{record}"
        );
    }
    let timed = longhaul(&["bench", &to, "--time", "300ms"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&timed.stdout).contains("sender: "),
        "{timed:?}"
    );
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn bench_reports_intervals() {
    let mut server = Command::new(longhaul_testprograms::longhaul());
    server.args(["udt", "bench", "--listen", "127.0.0.1:0"]);
    let mut server = piped(server).spawn().unwrap();
    let (port, _stderr) = port(&mut server);
    let to = format!("127.0.0.1:{port}");
    let bench = |more: &str| {
        let arguments = ["bench", &to, "--time", "350ms", "--interval", "100ms", more];
        longhaul(&arguments).output().unwrap()
    };
    let record = json(&bench("--json"));
    assert_eq!(record["interval_seconds"], 0.1, "{record}");
    for end in ["sender", "receiver"] {
        let intervals = record[end]["intervals"].as_array().unwrap();
        let bytes = intervals.iter().map(|one| one["bytes"].as_u64().unwrap());
        assert!(intervals.len() >= 4, "{record}");
        assert_eq!(Some(bytes.sum()), record[end]["bytes"].as_u64(), "{record}");
    }
    let text = bench("--reverse");
    let stdout = String::from_utf8_lossy(&text.stdout);
    assert!(
        stdout.starts_with("0.1 s: ") && stdout.contains("\n0.4 s: "),
        "{text:?}"
    );
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn reports_invalid_arguments() {
    let refused = |arguments: &[&str], code: i32, word: &str| {
        let output = longhaul(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(word), "{stderr}");
    };
    refused(
        &["send", "/nonexistent/file", "127.0.0.1"],
        2,
        "/nonexistent/file",
    );
    refused(&["send", "/", "127.0.0.1"], 2, "/: is a directory");
    refused(&["receive", "/"], 2, "/: is a directory");
    refused(&["receive", "/nonexistent/file"], 2, "/nonexistent/file");
    refused(&["send", "-", "127.0.0.1:0"], 2, "port 0");
    refused(&["bench", "127.0.0.1", "--time", "1ms"], 2, "100ms to 1h");
    refused(&["bench", "127.0.0.1", "--bytes", "0"], 2, "above 0");
    refused(&["bench", "--reverse"], 2, "<TO>");
    refused(
        &["receive", "-", "--listen", "192.0.2.1:9"],
        1,
        "192.0.2.1:9",
    );
}

/// A device would be replaced by a regular file, for every program of the machine.
#[test]
fn refuses_targets_that_are_not_regular_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at("device")).unwrap();
    std::os::unix::fs::symlink("pipe", at("link")).unwrap();
    let before = |name: &str| fs::symlink_metadata(at(name)).unwrap().file_type();
    for (name, word) in [
        ("pipe", "is a pipe"),
        ("socket", "is a socket"),
        ("device", "is a device"),
        ("link", "is a pipe"),
    ] {
        let kind = before(name);
        let output = longhaul(&["receive", &at(name), "--listen", "127.0.0.1:0"])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.contains(word), "{name}: {stderr}");
        assert_eq!(before(name), kind);
    }
}

#[test]
fn an_empty_file_shows_neither_rate_nor_cpu_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("empty"), "").unwrap();
    let mut receiver = longhaul(&["receive", &at("there"), "--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let (port, _stderr) = port(&mut receiver);
    let output = longhaul(&["send", &at("empty"), &format!("127.0.0.1:{port}")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let sent = String::from_utf8(output.stdout).unwrap();
    let output = receiver.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let received = String::from_utf8(output.stdout).unwrap();
    assert_eq!(fs::read(at("there")).unwrap(), b"");
    for result in [sent, received] {
        assert!(
            result.starts_with("0 B in ") && !result.contains("bit/s"),
            "{result}"
        );
        assert!(!result.contains("per GB"), "{result}");
    }
}

/// Returns the libudt peer program; `None` if libudt is missing. It is built once, because another test may already
/// run it.
fn libudt() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(compile_peer).as_deref();
    longhaul_testprograms::skip::require(program.is_some(), "libudt-dev").then_some(program)?
}

fn compile_peer() -> Option<PathBuf> {
    let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libudt-peer-of-links");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../udt/tests/udt/libudt/peer.cpp"
    );
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", source, "-o"]).arg(&to);
    let built = compiler.args(["-ludt", "-lpthread"]).status();
    built.is_ok_and(|status| status.success()).then_some(to)
}

/// Starts a link with losses, duplicates and reordering.
fn lossy_link(name: &str) -> Testbed {
    let flags = [
        "--rate",
        "200mbit",
        "--delay",
        "10ms",
        "--loss",
        "1%",
        "--duplicate",
        "1%",
        "--reorder",
        "3%:2ms",
    ];
    Testbed::start(name, ["10.89.0.1/24", "10.89.0.2/24"], &flags)
}

pub(crate) fn at_libudt(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S).arg(program).args(arguments);
    piped(command)
}

/// Sends a file over a link to libudt, which reads with these calls. Returns the output of `longhaul udt send`.
fn libudt_receives(bed: &Testbed, control: &str, kind: &str, calls: [&str; 2]) -> Output {
    let program = libudt().unwrap();
    let words = ["receive", kind, "listen", "9000", "0.0.0.0", "0"];
    let mut peer = at_libudt(program, &[&words[..], &calls[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    fs::write(&from, bytes(1, 4_000_000)).unwrap();
    peer.stdout(fs::File::create(&to).unwrap());
    let mut peer = inside(&mut peer, &bed.right).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(peer.stderr.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let at = bed.right_address().to_string();
    let from = from.to_str().unwrap();
    let mut ours = longhaul(&["send", from, &at, "--json", "--cc", control]);
    let ours = inside(&mut ours, &bed.left).output().unwrap();
    assert!(peer.wait().unwrap().success());
    let all = fs::read(to).unwrap();
    assert!(
        blake3::hash(&all) == blake3::hash(&bytes(1, 4_000_000)),
        "{kind} {calls:?} {control}: {} bytes, {ours:?}",
        all.len()
    );
    ours
}

#[test]
fn libudt_receives_over_a_lossy_link() {
    if !may_use_namespaces() || libudt().is_none() {
        return;
    }
    let bed = lossy_link("udtsend");
    for control in ["bbr", "native"] {
        for calls in [["1048576", "0"], ["20000", "2000"]] {
            let sent = json(&libudt_receives(&bed, control, "stream", calls));
            assert!(sent["packets_lost"].as_u64().unwrap() > 0, "{sent}");
        }
    }
}

/// On this path the ACKs of libudt take longer than the round trip.
#[test]
fn libudt_receives_over_a_short_path() {
    if !may_use_namespaces() || libudt().is_none() {
        return;
    }
    let flags = ["--rate", "1gbit", "--delay", "100us"];
    let bed = Testbed::start("udtshort", ["10.89.0.1/24", "10.89.0.2/24"], &flags);
    for control in ["bbr", "native"] {
        for (kind, calls) in [
            ("stream", ["1048576", "0"]),
            ("stream", ["1000", "0"]),
            ("stream", ["20000", "2000"]),
            ("file", ["4000000", "0"]),
        ] {
            let ours = libudt_receives(&bed, control, kind, calls);
            // A receiver that knows the file's length closes after that many bytes, maybe before its last ACK.
            assert!(ours.status.success() || kind == "file", "{ours:?}");
        }
    }
}

/// The number of retransmissions is tested in `transfer` of `crates/udt`, where no other load delays ACKs.
#[test]
fn libudt_receives_through_a_short_queue() {
    if !may_use_namespaces() || libudt().is_none() {
        return;
    }
    let flags = ["--rate", "10mbit", "--delay", "20ms", "--queue", "20p"];
    let bed = Testbed::start("udtqueue", ["10.89.0.1/24", "10.89.0.2/24"], &flags);
    for control in ["bbr", "native"] {
        libudt_receives(&bed, control, "stream", ["100000", "20000"]);
    }
}

#[test]
fn libudt_sends_over_a_lossy_link() {
    if !may_use_namespaces() {
        return;
    }
    let Some(program) = libudt() else { return };
    let bed = lossy_link("udtreceive");
    let mut ours = longhaul(&[
        "receive",
        "-",
        "--listen",
        "0.0.0.0:9000",
        "--idle-timeout",
        "2s",
    ]);
    let mut ours = inside(&mut ours, &bed.right).spawn().unwrap();
    let (_port, mut stderr) = port(&mut ours);
    let to = bed.right_address().to_string();
    let mut peer = at_libudt(program, &["send", "stream", "connect", "0", &to, "9000"]);
    let mut peer = inside(&mut peer, &bed.left)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    peer.stdin
        .take()
        .unwrap()
        .write_all(&bytes(1, 4_000_000))
        .unwrap();
    let output = ours.wait_with_output().unwrap();
    assert!(output.stdout == bytes(1, 4_000_000));
    // libudt sender one shutdown only, which may be lost.
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(
        output.status.success() || rest.contains("the connection broke"),
        "{rest}"
    );
    assert!(peer.wait().unwrap().success());
}
