// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab run` on plain veth links: its files, its refusals, and that nothing is left when
//! it ends or is killed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Scenario of a client and a server with a router between them.
const WIRES: &str = r#"
title = "test"
question = "does it work?"
seed = 3

[parameters]
size = "3MB"

[quick]
size = "1MB"

[[links]]
name = "near"
kind = "veth"
endpoints = ["client", "router"]

[[links]]
name = "far"
kind = "veth"
endpoints = ["router", "server"]
"#;

const DOWNLOAD: &str = r#"
[[include]]
values = { size = "3MB" }

[[flows]]
name = "get"
program = "curl"
from = "server"
to = "client"
size = "${size}"
"#;

const LONG: &str = r#"
[[include]]
values = { size = "3MB" }

[[flows]]
name = "flood"
program = "iperf3"
from = "server"
to = "client"
duration = "60s"
"#;

/// Whether the test may create namespaces. Without root it is skipped with ALLOW_SKIP=1, else it
/// fails.
fn may_use_namespaces() -> bool {
    longhaul_testprograms::skip::require(
        rustix::process::geteuid().is_root(),
        "root (CAP_SYS_ADMIN)",
    )
}

/// Scenario in a directory of its own.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(scenario: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
        fs::write(directory.path().join("test.toml"), scenario.concat()).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .args(["lab", "run"])
            .arg(self.path("test.toml"))
            .arg("--out")
            .arg(self.path("out"));
        command
    }

    fn run(&self, flags: &[&str]) -> Output {
        self.command(longhaul()).args(flags).output().unwrap()
    }

    fn check(&self) -> Output {
        let mut command = Command::new(longhaul());
        command
            .args(["lab", "validate"])
            .arg(self.path("test.toml"));
        command.output().unwrap()
    }

    fn result(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.path("out/result.json")).unwrap()).unwrap()
    }
}

fn longhaul() -> &'static Path {
    Path::new(longhaul_testprograms::longhaul())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Needs /dev/net/tun in addition to root.
#[test]
fn capture_gives_a_file_and_metrics() {
    if !may_use_namespaces() {
        return;
    }
    let wire = WIRES.replacen("kind = \"veth\"", "delay = \"1ms\"\ncapture = true", 1);
    let text = ["repetitions = 1\nwarmup_runs = 0\n", &wire, DOWNLOAD].concat();
    let bench = Bench::new(&[&text]);
    let output = bench.run(&["--quick"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let raw = bench.result()["raw"].clone();
    let files = raw
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|file| file.as_str());
    let captures: Vec<_> = files.filter(|file| file.ends_with(".pcapng")).collect();
    assert!(
        matches!(captures[..], [one] if one.ends_with("/link-near.pcapng")),
        "{raw}"
    );
    let bytes = fs::read(bench.path("out").join(captures[0])).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    // The cell's 3 MB, which `--quick` does not change, are at least 2072 segments at both ends.
    assert!(bytes.len() > 4_100 * 100, "{} bytes", bytes.len());

    let run = &bench.result()["cells"][0]["runs"][0];
    let figure = |name: &str| {
        run[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name}: {run}"))
    };
    assert!(figure("ack_diff_mean_bytes") >= 1448.0);
    assert!(figure("packets_per_ack_ratio") >= 1.0);
    assert!(figure("duplicate_acks") >= 0.0);
    let capture = &run["series"]["captures"][0];
    // Data leaves the router for the client, at the left end of this link.
    assert_eq!(
        (&capture["flow"], &capture["link"]),
        (&"get".into(), &"near".into())
    );
    for stream in ["data_bps", "acked_bps"] {
        let rates = capture[stream]["mean"].as_array().unwrap();
        let sum: f64 = rates.iter().filter_map(serde_json::Value::as_f64).sum();
        let bytes = sum * capture["bin_ms"].as_f64().unwrap() / 8e3;
        assert!(
            (2.94e6..3.09e6).contains(&bytes),
            "{stream}: {bytes} of 3 MB"
        );
    }
    let page = fs::read_to_string(bench.path("out/report.html")).unwrap();
    assert!(page.contains("Data rate (up) and acknowledged rate (down)"));

    let gone = wire.replacen("capture = true", "capture = true\nkeep_capture = false", 1);
    let bench = Bench::new(&["repetitions = 1\n", &gone, DOWNLOAD]);
    let output = bench.run(&["--quick"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let result = bench.result();
    assert!(result["cells"][0]["runs"][0]["ack_diff_mean_bytes"].is_f64());
    let raw = result["raw"].to_string();
    assert!(!raw.contains("pcapng"), "{raw}");

    let veth = WIRES.replacen("kind = \"veth\"", "kind = \"veth\"\ncapture = true", 1);
    let refused = Bench::new(&[&veth, DOWNLOAD]).run(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("only an emulated link has a capture"));
}

#[test]
fn download_writes_result_report_and_records() {
    if !may_use_namespaces() {
        return;
    }
    let bench = Bench::new(&[WIRES, "repetitions = 2\nwarmup_runs = 1\n"]);
    // Top-level keys must come before tables.
    let text = ["repetitions = 2\nwarmup_runs = 1\n", WIRES, DOWNLOAD].concat();
    fs::write(bench.path("test.toml"), text).unwrap();
    let output = bench.run(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("report.html"));

    let result = bench.result();
    let runs = result["cells"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "the warm-up run is not counted");
    let run = &runs[0];
    let (seconds, rate) = (
        run["download_s"].as_f64().unwrap(),
        run["goodput_bps"].as_f64().unwrap(),
    );
    assert!(
        (rate * seconds / 8.0 - 3e6).abs() < 1.0,
        "3 MB in {seconds} s is not {rate} bit/s"
    );
    assert_eq!(result["testbed"]["hosts"].as_array().unwrap().len(), 3);
    assert!(bench.path("out/report.html").exists());
    for raw in result["raw"].as_array().unwrap() {
        assert!(
            bench.path("out").join(raw.as_str().unwrap()).exists(),
            "{raw}"
        );
    }
}

/// Ordinary users' PATH lacks the directory of nginx and nft.
#[test]
fn finds_programs_outside_path() {
    if !may_use_namespaces() {
        return;
    }
    let relay = "\n[relays.router]\ntransparent = '0.0.0.0:3129'\nallow_from = '10.9.0.0/16'\nintercept = '10.9.0.0/16:80'\n";
    let bench = Bench::new(&["repetitions = 1\n", WIRES, DOWNLOAD, relay]);
    let output = bench
        .command(longhaul())
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// The demo ends long after this line; it is killed.
#[test]
fn demo_announces_the_absolute_path_of_its_report() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut demo = Command::new(longhaul())
        .args(["demo", "--set", "size=1MB", "--out", "out"])
        .current_dir(directory.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.starts_with("Report: ")));
    demo.kill().unwrap();
    demo.wait().unwrap();
    let out = directory.path().canonicalize().unwrap().join("out");
    let expected = format!("Report: {}", out.join("report.html").display());
    assert_eq!(line, Some(expected));
}

#[test]
fn keeps_foreign_files_in_the_output_directory() {
    if !may_use_namespaces() {
        return;
    }
    let bench = Bench::new(&["repetitions = 1\n", WIRES, DOWNLOAD]);
    assert!(bench.run(&[]).status.success());
    fs::write(bench.path("out/raw/notes.txt"), "mine").unwrap();
    let other = DOWNLOAD.replacen("3MB", "2MB", 1);
    let text = ["repetitions = 1\n", WIRES, &other].concat();
    fs::write(bench.path("test.toml"), text).unwrap();
    assert!(bench.run(&[]).status.success());
    let mut left: Vec<_> = fs::read_dir(bench.path("out/raw"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, [".manifest", "01-size=2MB-1", "notes.txt"]);
    fs::write(bench.path("out/raw/01-size=2MB-1/notes.txt"), "mine").unwrap();
    let refused = bench.run(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(bench.path("out/raw/01-size=2MB-1/notes.txt").exists());
}

#[test]
fn iperf3_runs_in_both_directions_and_a_check_fails() {
    if !may_use_namespaces() {
        return;
    }
    let flow = |name: &str, from: &str, to: &str, direction: &str| {
        format!(
            "[[flows]]\nname = {name:?}\nprogram = \"iperf3\"\nfrom = {from:?}\nto = {to:?}\n\
             direction = {direction:?}\nsize = \"2MB\"\nstreams = 2\n"
        )
    };
    let check =
        "[[check]]\nname = \"impossible\"\nvalue = \"goodput_bps{size=3MB}\"\nthreshold = \">= 1e18\"\n"
            .replace("1e18", "1000000000000000000");
    let cell = "[[include]]\nvalues = { size = \"3MB\" }\n";
    let up = flow("up", "client", "server", "upload");
    let down = flow("down", "server", "client", "download");
    let bench = Bench::new(&["repetitions = 1\n", WIRES, cell, &up, &down, &check]);
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("1 of 1 checks failed"),
        "{}",
        stderr(&output)
    );
    let result = bench.result();
    let run = &result["cells"][0]["runs"][0];
    assert!(run["up_goodput_bps"].as_f64().unwrap() > 0.0, "{run}");
    assert!(run["down_goodput_bps"].as_f64().unwrap() > 0.0, "{run}");
    assert_eq!(result["checks"][0]["pass"], false);
}

#[test]
fn run_fails_if_a_flow_exceeds_the_timeout() {
    if !may_use_namespaces() {
        return;
    }
    let endless = LONG.replace("duration = \"60s\"", "size = \"100TB\"");
    let bench = Bench::new(&["repetitions = 1\ntimeout = \"1s\"\n", WIRES, &endless]);
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failed = bench.result()["cells"][0]["runs"][0]["failed"].to_string();
    assert!(failed.contains("timeout of 1 s"), "{failed}");
}

/// Needs /dev/net/tun in addition to root. The flow would otherwise wait for its timeout.
#[test]
fn killed_link_ends_the_run_at_once() {
    let killed = "link-near ended with signal: 9";
    check_run_after_signal_to_link(rustix::process::Signal::KILL, "500s", killed);
}

/// Its records are incomplete, even if the flows succeeded.
#[test]
fn stopped_link_fails_the_run() {
    let stopped = "link-near did not end when the run was over";
    check_run_after_signal_to_link(rustix::process::Signal::STOP, "1s", stopped);
}

fn check_run_after_signal_to_link(signal: rustix::process::Signal, lasts: &str, failure: &str) {
    if !may_use_namespaces() {
        return;
    }
    let probe = r#"
        [[include]]
        values = { size = "3MB" }
        [[flows]]
        name = "probe"
        program = "probe"
        from = "router"
        to = "client"
    "#;
    let bench = Bench::new(&[
        "repetitions = 1\n",
        &WIRES.replacen("kind = \"veth\"", "kind = \"emulated\"", 1),
        probe,
        &format!("duration = {lasts:?}\n"),
    ]);
    let mark = format!("LONGHAUL_TEST_MARK={}", bench.directory.path().display());
    let (name, value) = mark.split_once('=').unwrap();
    let mut command = bench.command(longhaul());
    let mut lab = command.env(name, value).spawn().unwrap();
    let of = |pid: &u32, word: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|one| one == word.as_bytes())
    };
    let find = |word| marked(&mark).into_iter().find(|pid| of(pid, word));
    wait_for(|| find("probe")).expect("the flow began");
    let link = rustix::process::Pid::from_raw(find("link").unwrap() as i32).unwrap();
    rustix::process::kill_process(link, signal).unwrap();
    // The lab waits for a stopped link.
    let status = within(Duration::from_secs(60), || lab.try_wait().unwrap());
    assert_eq!(status.expect("the lab still runs").code(), Some(1));
    let failed = bench.result()["cells"][0]["runs"][0]["failed"].to_string();
    assert!(failed.contains(failure), "{failed}");
}

#[test]
fn refuses_invalid_scenarios_before_any_change() {
    let wrong = [
        (WIRES.replace("title", "titel"), "line 2, column 1"),
        (WIRES.replace("kind = \"veth\"", "delay = \"-3ms\""), "-3ms"),
        (
            WIRES.replacen("kind = \"veth\"", "dealy = \"3ms\"", 1),
            "line 14, column 1: unknown field `dealy`",
        ),
        (
            WIRES.replace("\"router\"]", "\"client\"]"),
            "joins a host with itself",
        ),
        (
            format!("{WIRES}[[check]]\nname = 'c'\nvalue = 'godput_bps'\nthreshold = '>= 1'\n"),
            "line 23, column 9: check \"c\": no run gives a metric \"godput_bps\"",
        ),
        (
            format!("{WIRES}[[check]]\nname = 'c'\nvalue = 'upload_s'\nthreshold = '>= 1'\n"),
            "line 23, column 9: check \"c\": no run gives a metric \"upload_s\"",
        ),
        (
            format!("{WIRES}[hosts.client]\ncongestion_control = 'cubik'\n"),
            "line 22, column 22: in the cell \"size=3MB\": no congestion control \"cubik\"",
        ),
        (
            format!(
                "{WIRES}[[flows]]\nname = 'x'\nprogram = 'iperf3'\nfrom = 'client'\nto = 'server'\nduration = '1500ms'\n"
            ),
            "line 26, column 12: in the cell \"size=3MB\": flow \"x\": duration is 1.5 s",
        ),
        (
            format!("{WIRES}[sysctl]\n'kernel.panic' = 1\n"),
            "is not a setting of a host",
        ),
    ];
    for (text, named) in wrong {
        let bench = Bench::new(&[&text, DOWNLOAD]);
        let output = bench.run(&[]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{named}: {}",
            stderr(&output)
        );
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
        assert!(!bench.path("out").exists());
        let checked = bench.check();
        assert_eq!(checked.status.code(), Some(2));
        assert_eq!(stderr(&checked), stderr(&output));
    }
    let bench = Bench::new(&[WIRES, DOWNLOAD]);
    for flags in [
        ["--set", "sise=1GB"],
        ["--filter", "size=7MB"],
        ["--set", "size=much"],
    ] {
        assert_eq!(bench.run(&flags).status.code(), Some(2), "{flags:?}");
    }
}

/// Settings that only the kernel can judge are refused by `lab validate` as by a run.
#[test]
fn check_refuses_settings_that_the_machine_lacks() {
    if !may_use_namespaces() {
        return;
    }
    let lacking = [
        ("'net.ipv4.tcp_rmen' = 1", "net.ipv4.tcp_rmen"),
        (
            "'net.ipv4.tcp_congestion_control' = 'cubik'",
            "net.ipv4.tcp_congestion_control = \"cubik\"",
        ),
        ("'net.ipv4.tcp_sack' = 'much'", "net.ipv4.tcp_sack"),
        // This setting is of the whole machine.
        ("'net.ipv4.tcp_mem' = '1 2 3'", "net.ipv4.tcp_mem"),
    ];
    for (setting, named) in lacking {
        let text = format!("{WIRES}[sysctl]\n{setting}\n");
        let bench = Bench::new(&[&text, DOWNLOAD]);
        let (ran, checked) = (bench.run(&[]), bench.check());
        for output in [&ran, &checked] {
            assert_eq!(output.status.code(), Some(3), "{}", stderr(output));
            assert!(stderr(output).contains(named), "{}", stderr(output));
        }
        assert_eq!(stderr(&checked), stderr(&ran));
        assert!(!bench.path("out").exists());
    }
    let bench = Bench::new(&[WIRES, DOWNLOAD]);
    assert_eq!(bench.check().status.code(), Some(0));
}

/// Completed runs of a killed experiment are kept.
#[test]
fn resumes_after_sigkill() {
    if !may_use_namespaces() {
        return;
    }
    let flow = "[[flows]]\nname = \"get\"\nprogram = \"iperf3\"\nfrom = \"server\"\nto = \"client\"\nduration = \"1s\"\n";
    let cells = "[matrix]\nsize = [\"1MB\", \"2MB\", \"3MB\", \"4MB\"]\n";
    let bench = Bench::new(&["repetitions = 2\n", WIRES, cells, flow]);
    let mut lab = bench
        .command(longhaul())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = bench.path("out/raw/.journal.jsonl");
    let done = || {
        fs::read_to_string(&journal)
            .unwrap_or_default()
            .matches("\"done\"")
            .count()
    };
    let before = wait_for(|| Some(done()).filter(|done| *done >= 2)).expect("two runs ended");
    send(&lab, rustix::process::Signal::KILL);
    lab.wait().unwrap();

    let other = bench.run(&["--seed", "99"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert!(stderr(&other).contains("--restart"), "{}", stderr(&other));
    let output = bench.run(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).starts_with("Resuming: "),
        "{}",
        stderr(&output)
    );
    assert!(
        !stderr(&output).contains("[2/8]"),
        "{before} were done: {}",
        stderr(&output)
    );
    let result = bench.result();
    for cell in result["cells"].as_array().unwrap() {
        assert_eq!(cell["runs"].as_array().unwrap().len(), 2, "{cell}");
    }
    assert_eq!(result["resumed_at"].as_array().unwrap().len(), 1);
    for raw in result["raw"].as_array().unwrap() {
        assert!(
            bench.path("out").join(raw.as_str().unwrap()).exists(),
            "{raw}"
        );
    }
    assert!(!journal.exists());
}

#[test]
fn sigkill_leaves_nothing() {
    check_nothing_left_after(rustix::process::Signal::KILL, |status| {
        status.code().is_none()
    });
}

#[test]
fn sigterm_leaves_nothing_and_sets_the_exit_code() {
    // 128 + SIGTERM.
    check_nothing_left_after(rustix::process::Signal::TERM, |status| {
        status.code() == Some(143)
    });
}

#[test]
fn sigint_leaves_nothing_and_sets_the_exit_code() {
    // 128 + SIGINT.
    check_nothing_left_after(rustix::process::Signal::INT, |status| {
        status.code() == Some(130)
    });
}

/// Starts a long run, sends `signal` to the process that the user started, and looks for processes
/// of the run that are left: those with its mark in their environment.
fn check_nothing_left_after(signal: rustix::process::Signal, ended: fn(ExitStatus) -> bool) {
    if !may_use_namespaces() {
        return;
    }
    let bench = Bench::new(&["repetitions = 1\n", WIRES, LONG]);
    let mark = format!("LONGHAUL_TEST_MARK={}", bench.directory.path().display());
    let (name, value) = mark.split_once('=').unwrap();
    // SIGINT may be ignored by the process that started this test, as shells do for background
    // jobs. A lab that inherits this would ignore it, too.
    let mut command = Command::new("env");
    let mut lab = command
        .args([OsStr::new("--default-signal=INT"), longhaul().as_os_str()])
        .args(bench.command(longhaul()).get_args())
        .env(name, value)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // These are the lab, PID 1 and the worker of the sandbox, an iperf3 server and an iperf3
    // client.
    let before =
        wait_for(|| Some(marked(&mark)).filter(|found| found.len() >= 5)).expect("the run began");
    assert!(before.contains(&lab.id()));

    send(&lab, signal);
    let status = lab.wait().unwrap();
    assert!(ended(status), "{status}");
    let left = wait_for(|| marked(&mark).is_empty().then_some(()));
    assert!(left.is_some(), "left: {:?}", marked(&mark));
}

fn send(lab: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(lab);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Processes that inherited the mark.
fn marked(mark: &str) -> BTreeSet<u32> {
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let with_mark = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    processes
        .filter_map(|name| name.parse().ok())
        .filter(with_mark)
        .collect()
}

/// Waits for `poll` to succeed, at most twenty seconds.
fn wait_for<T>(poll: impl FnMut() -> Option<T>) -> Option<T> {
    within(Duration::from_secs(20), poll)
}

fn within<T>(time: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up = Instant::now() + time;
    while Instant::now() < give_up {
        if let Some(found) = poll() {
            return Some(found);
        }
        sleep(Duration::from_millis(20));
    }
    None
}

/// Copies the binary to where other users can execute it, since the build directory may be closed
/// to them.
///
/// `cp` makes the copy. A file that this process has open for writing could be inherited by
/// processes of other tests, and is then not executed (ETXTBSY).
fn for_others(bench: &Bench) -> PathBuf {
    let program = bench.path("longhaul");
    let copied = Command::new("cp").arg(longhaul()).arg(&program).status();
    assert!(copied.unwrap().success());
    program
}

#[test]
fn ordinary_user_can_check_and_list_scenarios() {
    if !may_use_namespaces() {
        return;
    }
    let relay = "\n[relays.router]\nsocks5 = '0.0.0.0:1080'\nallow_from = '10.9.0.0/16'\ninitial_window_upstream = 40\n";
    let bench = Bench::new(&["repetitions = 1\n", WIRES, DOWNLOAD, relay]);
    let program = for_others(&bench);
    let run_as_nobody = |words: &[&str]| {
        let mut command = Command::new(&program);
        let output = command.args(words).uid(65534).gid(65534).output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), text, stderr(&output))
    };
    let everything = Command::new(longhaul()).args(["lab", "list"]).output();
    let (code, listed, notes) = run_as_nobody(&["lab", "list"]);
    assert_eq!(code, Some(0), "{notes}");
    assert_eq!(listed.as_bytes(), everything.unwrap().stdout);
    assert!(notes.contains("Not permitted for this user"), "{notes}");
    let (code, stdout, messages) =
        run_as_nobody(&["lab", "validate", bench.path("test.toml").to_str().unwrap()]);
    assert_eq!(code, Some(3), "{messages}");
    assert!(stdout.contains("1 cells"), "{stdout}");
    assert!(
        messages.contains("--initial-window-upstream") && messages.contains("CAP_BPF"),
        "{messages}"
    );
}

#[test]
fn ordinary_user_runs_in_a_user_namespace() {
    if !may_use_namespaces() {
        return;
    }
    let bench = Bench::new(&["repetitions = 1\n", WIRES, DOWNLOAD]);
    let program = for_others(&bench);
    let output = bench
        .command(&program)
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let off =
        fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|n| n.trim() == "0");
    if off {
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("user.max_user_namespaces"),
            "{}",
            stderr(&output)
        );
    } else {
        assert!(output.status.success(), "{}", stderr(&output));
    }
}
