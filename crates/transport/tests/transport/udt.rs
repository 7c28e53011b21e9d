// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul udt`: files, pipes and benches, here and through a link that loses, doubles and reorders, where libudt is the
//! other end.

use longhaul_linux::process::inside;
use longhaul_testnet::link_process::{Testbed, may_use_namespaces};
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

/// A command that has hung after so many seconds.
const PATIENCE: &str = "100";

pub(crate) fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([PATIENCE, longhaul_testbed::longhaul(), "udt"]);
    command.args(arguments);
    piped(command)
}

fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until it says that it can be reached; at which port, and what it says after that.
fn port(child: &mut Child) -> (String, BufReader<ChildStderr>) {
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap().to_owned();
    assert!(port.parse::<u16>().is_ok(), "{line}");
    (port, said)
}

pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let byte = |n: usize| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..length).map(byte).collect()
}

#[test]
fn a_file_arrives_under_its_name_and_both_say_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("from"), bytes(5_000_000)).unwrap();
    let mut receives = longhaul(&["receive", &at("to"), "--at", "[::]:0", "--json"])
        .spawn()
        .unwrap();
    let (port, _said) = port(&mut receives);
    let to = format!("127.0.0.1:{port}");
    let sent = json(
        &longhaul(&["send", &at("from"), &to, "--json"])
            .output()
            .unwrap(),
    );
    let received = json(&receives.wait_with_output().unwrap());
    assert_eq!(fs::read(at("to")).unwrap(), bytes(5_000_000));
    let hash = blake3::hash(&bytes(5_000_000)).to_string();
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
        "nothing is left beside them"
    );
}

#[test]
fn standard_input_arrives_at_standard_output() {
    let mut receives = longhaul(&["receive", "-", "--at", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let (port, _said) = port(&mut receives);
    let to = format!("127.0.0.1:{port}");
    let mut sends = longhaul(&["send", "-", &to]);
    let mut sends = sends.stdin(Stdio::piped()).spawn().unwrap();
    sends
        .stdin
        .take()
        .unwrap()
        .write_all(&bytes(300_000))
        .unwrap();
    assert!(sends.wait().unwrap().success());
    assert_eq!(receives.wait_with_output().unwrap().stdout, bytes(300_000));
}

#[test]
fn what_breaks_off_gets_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    let mut receives = longhaul(&[
        "receive",
        to.to_str().unwrap(),
        "--at",
        "127.0.0.1:0",
        "--silence",
        "2s",
    ]);
    let mut receives = receives.spawn().unwrap();
    let (port, _said) = port(&mut receives);
    let mut sends = Command::new(longhaul_testbed::longhaul());
    sends.args(["udt", "send", "-", &format!("127.0.0.1:{port}")]);
    let mut sends = piped(sends).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = sends.stdin.take().unwrap();
    pipe.write_all(&bytes(1_000_000)).unwrap();
    sends.kill().unwrap();
    sends.wait().unwrap();
    assert_eq!(receives.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Starts `receive` into a file by another program, and `send` from a file or from a pipe that stays open.
fn started(folder: &Path, by: &[&str], from: &str) -> [Child; 2] {
    let mut receives = Command::new(by[0]);
    receives.args(&by[1..]).arg(longhaul_testbed::longhaul());
    receives.args(["udt", "receive", "to", "--at", "127.0.0.1:0"]);
    let mut receives = piped(receives).current_dir(folder).spawn().unwrap();
    let (port, said) = port(&mut receives);
    receives.stderr = Some(said.into_inner());
    let mut sends = longhaul(&["send", from, &format!("127.0.0.1:{port}")]);
    let mut sends = sends.stdin(Stdio::piped()).spawn().unwrap();
    if let Some(pipe) = sends.stdin.as_mut().filter(|_| from == "-") {
        pipe.write_all(&bytes(1_000_000)).unwrap();
    }
    [receives, sends]
}

/// With signals as env(1) makes them, once something has come.
fn begun(folder: &Path, signals: &str, from: &str) -> [Child; 2] {
    let ends = started(folder, &["env", signals], from);
    let beside = |entry: io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().len() > 0;
    while !fs::read_dir(folder).unwrap().any(beside) {
        thread::sleep(Duration::from_millis(10));
    }
    ends
}

/// The receiver has failed for that reason and left nothing, and the sender has heard of it.
fn assert_given_up([receives, sends]: [Child; 2], why: &str, folder: &Path) {
    for (child, why) in [(receives, why), (sends, "connection reset")] {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let kill = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(kill.unwrap().success());
}

#[test]
fn what_a_signal_ends_leaves_nothing_and_the_sender_is_told() {
    for (name, signals) in [
        ("INT", "--default-signal=INT"),
        // As a shell starts what it has in the background.
        ("INT", "--ignore-signal=INT"),
        ("TERM", "--default-signal=TERM"),
        ("HUP", "--default-signal=HUP"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ends = begun(folder.path(), signals, "/dev/zero");
        signal(&ends[0], name);
        assert_given_up(ends, "interrupted", folder.path());
    }
}

/// A limit on the size of files stands for the disk.
#[test]
fn a_full_disk_leaves_nothing_and_the_sender_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let limited = ["env", "--ignore-signal=XFSZ", "prlimit", "--fsize=300000"];
    let ends = started(folder.path(), &limited, "/dev/zero");
    assert_given_up(ends, "File too large", folder.path());
}

/// As nohup(1) does it.
#[test]
fn a_hang_up_that_is_ignored_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [receives, sends] = begun(folder.path(), "--ignore-signal=HUP", "-");
    signal(&receives, "HUP");
    assert!(sends.wait_with_output().unwrap().status.success());
    let output = receives.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        fs::read(folder.path().join("to")).unwrap(),
        bytes(1_000_000)
    );
}

#[test]
fn a_signal_before_anybody_calls_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to").display().to_string();
    let mut receives = Command::new(longhaul_testbed::longhaul());
    receives.args(["udt", "receive", &to, "--at", "127.0.0.1:0"]);
    let mut receives = piped(receives).spawn().unwrap();
    let (_port, _said) = port(&mut receives);
    signal(&receives, "INT");
    assert_eq!(receives.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_bench_measures_both_ways() {
    let mut serves = Command::new(longhaul_testbed::longhaul());
    serves.args(["udt", "bench", "--at", "127.0.0.1:0"]);
    let mut serves = piped(serves).spawn().unwrap();
    let (port, _said) = port(&mut serves);
    let to = format!("127.0.0.1:{port}");
    for more in [&[][..], &["--reverse"], &["--parallel", "3"]] {
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
    serves.kill().unwrap();
    serves.wait().unwrap();
}

#[test]
fn a_bench_tells_how_it_went() {
    let mut serves = Command::new(longhaul_testbed::longhaul());
    serves.args(["udt", "bench", "--at", "127.0.0.1:0"]);
    let mut serves = piped(serves).spawn().unwrap();
    let (port, _said) = port(&mut serves);
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
    let said = String::from_utf8_lossy(&text.stdout);
    assert!(
        said.starts_with("0.1 s: ") && said.contains("\n0.4 s: "),
        "{text:?}"
    );
    serves.kill().unwrap();
    serves.wait().unwrap();
}

#[test]
fn bad_input_is_one_clear_error() {
    let refused = |arguments: &[&str], code: i32, word: &str| {
        let output = longhaul(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
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
    refused(&["receive", "-", "--at", "192.0.2.1:9"], 1, "192.0.2.1:9");
}

/// A device would be an ordinary file after that, for every program of the machine.
#[test]
fn a_target_that_is_no_file_is_left_as_it_is() {
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
        let output = longhaul(&["receive", &at(name), "--at", "127.0.0.1:0"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(word), "{name}: {said}");
        assert_eq!(before(name), kind);
    }
}

#[test]
fn an_empty_file_has_neither_a_rate_nor_a_price() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("empty"), "").unwrap();
    let mut receives = longhaul(&["receive", &at("there"), "--at", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let (port, mut said) = port(&mut receives);
    let output = longhaul(&["send", &at("empty"), &format!("127.0.0.1:{port}")])
        .output()
        .unwrap();
    let sent = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{sent}");
    let mut received = String::new();
    said.read_to_string(&mut received).unwrap();
    assert_eq!(receives.wait().unwrap().code(), Some(0), "{received}");
    assert_eq!(fs::read(at("there")).unwrap(), b"");
    for said in [sent, received] {
        assert!(
            said.contains("0 B in ") && !said.contains("bit/s"),
            "{said}"
        );
        assert!(!said.contains("per GB"), "{said}");
    }
}

/// libudt's end; nothing if it is not here. Made once: another test may run it already.
fn libudt() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(compiled).as_deref();
    longhaul_testbed::skip::unless(program.is_some(), "libudt-dev").then_some(program)?
}

fn compiled() -> Option<PathBuf> {
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

/// A path that does to packets all that paths do.
fn rough(name: &str) -> Testbed {
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
    command.arg(PATIENCE).arg(program).args(arguments);
    piped(command)
}

/// Sends a file through a link to libudt, which reads so; what `longhaul udt send` says.
fn libudt_receives(bed: &Testbed, control: &str, kind: &str, calls: [&str; 2]) -> Output {
    let program = libudt().unwrap();
    let words = ["receive", kind, "listen", "9000", "0.0.0.0", "0"];
    let mut theirs = at_libudt(program, &[&words[..], &calls[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    fs::write(&from, bytes(4_000_000)).unwrap();
    theirs.stdout(fs::File::create(&to).unwrap());
    let mut theirs = inside(&mut theirs, &bed.right).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(theirs.stderr.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let at = bed.right_address().to_string();
    let from = from.to_str().unwrap();
    let mut ours = longhaul(&["send", from, &at, "--json", "--control", control]);
    let ours = inside(&mut ours, &bed.left).output().unwrap();
    assert!(theirs.wait().unwrap().success());
    let all = fs::read(to).unwrap();
    assert!(
        blake3::hash(&all) == blake3::hash(&bytes(4_000_000)),
        "{kind} {calls:?} {control}: {} bytes, {ours:?}",
        all.len()
    );
    ours
}

#[test]
fn libudt_receives_over_a_rough_path() {
    if !may_use_namespaces() || libudt().is_none() {
        return;
    }
    let bed = rough("udtsend");
    for control in ["bbr", "native"] {
        for calls in [["1048576", "0"], ["20000", "2000"]] {
            let sent = json(&libudt_receives(&bed, control, "stream", calls));
            assert!(sent["packets_lost"].as_u64().unwrap() > 0, "{sent}");
        }
    }
}

/// Where libudt's ACKs come later than the path takes.
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
            // Who receives a file by its length closes when it has that, maybe before its last ACK.
            assert!(ours.status.success() || kind == "file", "{ours:?}");
        }
    }
}

/// How much goes again is judged where no other work makes acknowledgements late: in `transfer` of `crates/udt`.
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
fn libudt_sends_over_a_rough_path() {
    if !may_use_namespaces() {
        return;
    }
    let Some(program) = libudt() else { return };
    let bed = rough("udtreceive");
    let mut ours = longhaul(&["receive", "-", "--at", "0.0.0.0:9000", "--silence", "2s"]);
    let mut ours = inside(&mut ours, &bed.right).spawn().unwrap();
    let (_port, mut said) = port(&mut ours);
    let to = bed.right_address().to_string();
    let mut theirs = at_libudt(program, &["send", "stream", "connect", "0", &to, "9000"]);
    let mut theirs = inside(&mut theirs, &bed.left)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    theirs
        .stdin
        .take()
        .unwrap()
        .write_all(&bytes(4_000_000))
        .unwrap();
    let output = ours.wait_with_output().unwrap();
    assert!(output.stdout == bytes(4_000_000));
    // libudt says once that it is over, and that may be lost, too.
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(
        output.status.success() || rest.contains("the connection broke"),
        "{rest}"
    );
    assert!(theirs.wait().unwrap().success());
}
