// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul doctor` in network namespaces, whose `net.ipv4` settings are their own.

use crate::cc_host::is_watching_denied;
use longhaul_testnet::namespace::{Namespace, may_use_namespaces, set_sysctl};
use longhaul_testprograms::process::exit_code_and_text;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Network namespace and directory for records.
pub(super) struct Host {
    pub(super) netns: Namespace,
    state: tempfile::TempDir,
}

impl Host {
    pub(super) fn new() -> Self {
        let host = Self {
            netns: Namespace::new("doctor"),
            state: tempfile::tempdir().unwrap(),
        };
        // Whatever the machine's values are, these two limit the path.
        host.set("net.ipv4.tcp_sack", "0");
        host.set("net.ipv4.tcp_rmem", "4096 131072 6291456");
        host
    }

    pub(super) fn command(&self, program: &str, args: &[&str]) -> Output {
        let mut command = self.netns.command(program);
        command.args(args).env("XDG_STATE_HOME", self.state.path());
        command.output().unwrap()
    }

    /// Runs `longhaul doctor ARGS`; returns its exit code and output.
    fn doctor(&self, args: &[&str]) -> (i32, String) {
        let output = self.command(
            longhaul_testprograms::longhaul(),
            &[&["doctor"], args].concat(),
        );
        exit_code_and_text(&output)
    }

    /// Runs `--fix` for settings that belong to the namespace.
    fn fix(&self, more: &[&str]) -> (i32, String) {
        self.doctor(&[&["--fix", "--filter", "net.ipv4."], more].concat())
    }

    fn get(&self, key: &str) -> String {
        longhaul_linux::sysctl::read(&self.netns, key).unwrap()
    }

    pub(super) fn set(&self, key: &str, value: &str) {
        set_sysctl(&self.netns, key, value);
    }

    /// Reads every readable setting below net/ipv4 and net/core, as bytes.
    fn settings(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let read = || {
            let mut found = BTreeMap::new();
            for directory in ["/proc/sys/net/ipv4", "/proc/sys/net/core"] {
                collect(Path::new(directory), &mut found);
            }
            // These are the machine's: other tests load congestion controls meanwhile.
            found.retain(|path, _| {
                !path.ends_with("tcp_allowed_congestion_control")
                    && !path.ends_with("tcp_available_congestion_control")
            });
            Ok(found)
        };
        self.netns.run(read).unwrap()
    }

    fn records(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state.path().join("longhaul")) else {
            return Vec::new();
        };
        let files = entries.map(|entry| entry.unwrap().path());
        files
            .filter(|file| file.extension().is_some_and(|e| e == "json"))
            .collect()
    }

    /// Marks the record as that of an interrupted `--fix`.
    fn cut_short(&self) {
        let [file] = &self.records()[..] else {
            panic!("{:?}", self.records())
        };
        let mut record: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        record["finished"] = json!(false);
        fs::write(file, record.to_string()).unwrap();
    }
}

fn collect(path: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), found);
        }
    } else if let Ok(bytes) = fs::read(path) {
        found.insert(path.to_owned(), bytes);
    }
}

#[test]
fn fix_then_undo_restores_every_byte() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let before = host.settings();
    let (code, message) = host.fix(&[]);
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("net.ipv4.tcp_sack: 0 -> 1\n"), "{message}");
    assert_eq!(host.get("net.ipv4.tcp_rmem"), "4096 131072 500002816");
    // It changed the settings that it printed, and no others.
    let after = host.settings();
    let changed = before.iter().filter(|(key, value)| after[*key] != **value);
    let mut count = 0;
    for (key, _) in changed {
        let name = key.strip_prefix("/proc/sys").unwrap();
        let name = name.to_str().unwrap().replace('/', ".");
        assert!(
            message.contains(&name[1..]) || message.contains(&name),
            "{name}: {message}"
        );
        count += 1;
    }
    assert_eq!(count, message.matches(" -> ").count(), "{message}");

    let (code, message) = host.fix(&[]);
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("nothing to change"), "{message}");

    let (code, message) = host.doctor(&["--undo"]);
    assert_eq!(code, 0, "{message}");
    assert_eq!(host.settings(), before);
    assert_eq!(host.records(), [""; 0].map(PathBuf::from));
    let (code, message) = host.doctor(&["--undo"]);
    assert_eq!(code, 0);
    assert!(message.contains("nothing to undo"), "{message}");
}

#[test]
fn undo_restores_value_before_the_first_fix() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let before = host.settings();
    assert_eq!(host.fix(&["--rtt", "100ms"]).0, 0);
    assert_eq!(host.fix(&["--rtt", "200ms"]).0, 0);
    assert_eq!(host.get("net.ipv4.tcp_rmem"), "4096 131072 500002816");
    assert_eq!(host.doctor(&["--undo"]).0, 0);
    assert_eq!(host.settings(), before);
}

#[test]
fn undo_and_clean_revert_an_interrupted_fix() {
    if !may_use_namespaces() {
        return;
    }
    for way_back in ["--undo", "--clean"] {
        let host = Host::new();
        let before = host.settings();
        assert_eq!(host.fix(&[]).0, 0);
        // As if it had recorded both, changed one, and been killed in the middle of a third's value.
        host.cut_short();
        host.set("net.ipv4.tcp_sack", "0");
        host.set("net.ipv4.tcp_rmem", "4096 131072 7000000");
        let (code, message) = host.doctor(&[way_back]);
        assert_eq!(code, 0, "{way_back}: {message}");
        assert_eq!(host.settings(), before, "{way_back}");
        assert_eq!(host.records().len(), 0, "{way_back}");
    }
}

/// Kills `--fix` a little later in each round; all its changes are undone.
#[test]
fn undo_reverts_a_killed_fix() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let before = host.settings();
    for round in 0..40_u64 {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .args(["doctor", "--fix", "--filter", "net.ipv4."])
            .env("XDG_STATE_HOME", host.state.path())
            .stdout(std::process::Stdio::null());
        let mut child = longhaul_linux::process::inside(&mut command, &host.netns)
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round));
        child.kill().unwrap();
        child.wait().unwrap();
        let (code, message) = host.doctor(&["--undo"]);
        assert_eq!(code, 0, "round {round}: {message}");
        assert_eq!(host.settings(), before, "round {round}");
    }
}

#[test]
fn clean_keeps_a_finished_fix() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    assert_eq!(host.fix(&[]).0, 0);
    let fixed = host.settings();
    let (code, message) = host.doctor(&["--clean"]);
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("--undo restores them"), "{message}");
    assert_eq!(host.settings(), fixed);
    assert_eq!(host.records().len(), 1);
}

#[test]
fn undo_keeps_and_reports_values_changed_by_others() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    assert_eq!(host.fix(&[]).0, 0);
    host.set("net.ipv4.tcp_rmem", "4096 131072 600000000");
    let (code, message) = host.doctor(&["--undo"]);
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("another program changed it"), "{message}");
    assert_eq!(host.get("net.ipv4.tcp_rmem"), "4096 131072 600000000");
    assert_eq!(host.get("net.ipv4.tcp_sack"), "0");
    // The change stays recorded: with longhaul's value back, it can be undone.
    host.set("net.ipv4.tcp_rmem", "4096 131072 500002816");
    assert_eq!(host.doctor(&["--undo"]).0, 0);
    assert_eq!(host.get("net.ipv4.tcp_rmem"), "4096 131072 6291456");
}

#[test]
fn writes_and_removes_the_persistent_file() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let file = host.state.path().join("90-longhaul.conf");
    let persist = format!("--persist={}", file.display());
    assert_eq!(host.fix(&[&persist]).0, 0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("net.ipv4.tcp_sack = 1\n"), "{text}");
    assert!(
        text.contains("net.ipv4.tcp_rmem = 4096 131072 500002816\n"),
        "{text}"
    );
    assert_eq!(host.doctor(&["--undo"]).0, 0);
    assert!(!file.exists());

    fs::write(&file, "vm.swappiness = 1\n").unwrap();
    let before = host.settings();
    let (code, message) = host.fix(&[&persist]);
    assert_eq!(code, 2, "{message}");
    assert_eq!(host.settings(), before);
}

#[test]
fn cleans_records_of_deleted_namespaces() {
    if !may_use_namespaces() {
        return;
    }
    let gone = Host::new();
    assert_eq!(gone.fix(&[]).0, 0);
    let here = Host::new();
    let state = gone.state.path().to_str().unwrap().to_owned();
    let clean = || {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .args(["doctor", "--clean"])
            .env("XDG_STATE_HOME", &state);
        let command = longhaul_linux::process::inside(&mut command, &here.netns);
        exit_code_and_text(&command.output().unwrap())
    };
    let (code, message) = clean();
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("its namespace exists"), "{message}");
    assert_eq!(gone.records().len(), 1);

    // Somebody else's namespaces may get its number, but not while this test holds it: give the
    // record a number that no namespace has.
    let file = gone.records().remove(0);
    fs::rename(&file, file.with_file_name("doctor-netns-1.json")).unwrap();
    let (code, message) = clean();
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("its namespace is gone"), "{message}");
    assert_eq!(gone.records().len(), 0);
}

const TABLES: &str = "
table ip longhaul-1081 { set lease { type inet_proto; flags timeout; }; }
table ip longhaul-1082 { set lease { type inet_proto; flags timeout; elements = { tcp timeout 1h }; }; }
table ip longhaul-mine { set lease { type inet_proto; flags timeout; }; }
table ip longhaul-1083 { }
table ip other { }
";

#[test]
fn removes_tables_and_rules_of_dead_relays_only() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let must = |program: &str, args: &[&str]| {
        let (code, message) = exit_code_and_text(&host.command(program, args));
        assert_eq!(code, 0, "{program} {args:?}: {message}");
        message
    };
    must("nft", &[TABLES]);
    must("ip", &["link", "set", "lo", "up"]);
    // 0x4c48 and the ports 1081 and 1082.
    for mark in ["1279788089", "1279788090"] {
        let rule = [
            "rule", "add", "fwmark", mark, "table", mark, "priority", "1000",
        ];
        must("ip", &rule);
        must(
            "ip",
            &[
                "route", "add", "local", "default", "dev", "lo", "table", mark, "proto", "static",
            ],
        );
    }
    let (code, message) = host.doctor(&["--clean"]);
    assert_eq!(code, 0, "{message}");

    let tables = must("nft", &["list", "tables"]);
    for (name, stays) in [
        ("longhaul-1081", false),
        ("longhaul-1082", true),
        ("longhaul-mine", true),
        ("longhaul-1083", true),
        ("other", true),
    ] {
        assert_eq!(tables.contains(name), stays, "{name}: {tables}");
    }
    let rules = must("ip", &["rule"]);
    assert!(!rules.contains("0x4c480439"), "{rules}");
    assert!(rules.contains("0x4c48043a"), "{rules}");
    let routes = must("ip", &["route", "show", "table", "all"]);
    assert!(!routes.contains("1279788089"), "{routes}");
    assert!(routes.contains("1279788090"), "{routes}");
}

/// Tables as a relay has them whose connections are dropped, and one without a relay.
const DROPPED: &str = "
table ip longhaul-1084 { set lease { type inet_proto; flags timeout; };
    counter diverted_syns { packets 3 bytes 180; }; counter arrived_syns { packets 0 bytes 0; }; }
table ip6 longhaul-1084 { set lease { type inet_proto; flags timeout; elements = { tcp timeout 1h }; };
    counter diverted_syns { packets 3 bytes 180; }; counter arrived_syns { packets 3 bytes 180; }; }
table ip longhaul-1085 { set lease { type inet_proto; flags timeout; };
    counter diverted_syns { packets 3 bytes 180; }; counter arrived_syns { packets 0 bytes 0; }; }
";

#[test]
fn finds_relay_whose_connections_input_drops() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let (code, message) = exit_code_and_text(&host.command("nft", &[DROPPED]));
    assert_eq!(code, 0, "{message}");
    let listen = || std::net::TcpListener::bind("0.0.0.0:1084");
    let _relay = host.netns.run(listen).unwrap();
    let output = host.command(longhaul_testprograms::longhaul(), &["doctor", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let of_relays = findings.filter(|f| f["setting"].as_str().unwrap().contains("relay on port"));
    let found: Vec<_> = of_relays
        .map(|f| json!([f["severity"], f["setting"], f["value"]]))
        .collect();
    let ipv4 = [
        "limit",
        "IPv4 to relay on port 1084",
        "0 of 3 SYNs pass INPUT",
    ];
    let ipv6 = ["ok", "IPv6 to relay on port 1084", "3 of 3 SYNs pass INPUT"];
    assert_eq!(found, [json!(ipv6), json!(ipv4)], "{text}");
    assert!(text.contains("meta mark 0x4c48043c accept"), "{text}");
}

#[test]
fn refuses_bad_input_before_any_change() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    let before = host.settings();
    for args in [
        &["--rate", "10parsec"][..],
        &["--rtt", "0s"],
        &["--rtt", "101s"],
        &["--connections", "0"],
        &["--facts", "/no/such/file"],
        &["--fix", "--rtt", "0s"],
        &["--fix", "--filter", "vm."],
        &["--fix", "--undo"],
        &["--filter", "net."],
        &["--fix", "--persist=/no/such/directory/x.conf"],
    ] {
        let (code, message) = host.doctor(args);
        assert_eq!(code, 2, "{args:?}: {message}");
    }
    assert_eq!(host.settings(), before);
    assert_eq!(host.records().len(), 0);
}

#[test]
fn changes_need_root() {
    if !may_use_namespaces() {
        return;
    }
    let host = Host::new();
    for what in ["--fix", "--undo", "--clean"] {
        // User nobody, in a user namespace without a mapping.
        let output = host.command(
            "unshare",
            &["--user", longhaul_testprograms::longhaul(), "doctor", what],
        );
        let (code, message) = exit_code_and_text(&output);
        assert_eq!(code, 3, "{what}: {message}");
        assert!(message.contains("needs root"), "{message}");
    }
    // Reading does not.
    let output = host.command(
        "unshare",
        &[
            "--user",
            longhaul_testprograms::longhaul(),
            "doctor",
            "--json",
        ],
    );
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["facts"]["sysctl"]["net.ipv4.tcp_rmem"].is_string());
}

/// Lists possible leftovers of trials: congestion controls, tables, devices, namespaces, pins.
fn traces(pid: u32) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let message = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let all = [
        read("/proc/sys/net/ipv4/tcp_available_congestion_control"),
        message(&["nft", "list", "tables"]),
        message(&["ip", "-o", "link"]),
        message(&["find", "/sys/fs/bpf"]),
    ];
    // Another doctor may run at the same time.
    let registered = format!("lh_try{pid:x}");
    let ours = |word: &&str| {
        *word == registered || word.contains("longhaul-try") || word.contains("lh-try")
    };
    all.concat()
        .split_whitespace()
        .filter(ours)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Lists the cgroups that this process made, wherever cgroup2 is mounted.
fn cgroups_of(pid: u32) -> String {
    let name = format!("longhaul-run.{pid}.*");
    let output = Command::new("find")
        .args(["/sys/fs/cgroup", "-name", &name])
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn killed_trials_leave_nothing_behind() {
    if !may_use_namespaces() {
        return;
    }
    let doctor = || {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .arg("doctor")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut whole = doctor();
    let began = Instant::now();
    assert!(whole.wait().unwrap().code().is_some_and(|code| code <= 1));
    let takes = began.elapsed();
    assert_eq!(traces(whole.id()) + &cgroups_of(whole.id()), "");
    for part in 1..=8 {
        let mut killed = doctor();
        sleep(takes * part / 9);
        killed.kill().unwrap();
        killed.wait().unwrap();
        // The guard of its namespaces goes with it.
        sleep(Duration::from_millis(200));
        assert_eq!(
            traces(killed.id()),
            "",
            "killed after {part}/9 of {takes:?}"
        );
        if !cgroups_of(killed.id()).is_empty() {
            let next = Command::new(longhaul_testprograms::longhaul())
                .args(["run", "true"])
                .output();
            assert!(next.unwrap().status.success());
        }
        assert_eq!(cgroups_of(killed.id()), "");
    }
}

#[test]
fn reports_features_that_work_and_that_could_not_be_tried() {
    if !may_use_namespaces() {
        return;
    }
    let trials = |command: &mut Command| -> Value {
        let output = command.output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        found["facts"]["trials"].clone()
    };
    let outcome = |trials: &Value, feature: &str| -> Value {
        let all = trials.as_array().unwrap();
        let found = all.iter().find(|trial| trial["feature"] == feature);
        found.unwrap_or_else(|| panic!("no {feature}: {trials}"))["outcome"].clone()
    };
    let mut own = Command::new(longhaul_testprograms::longhaul());
    let own = trials(own.args(["doctor", "--json"]));
    for feature in [
        "relay",
        "lab run",
        "link",
        "relay --transparent",
        "tap capture",
    ] {
        assert_eq!(outcome(&own, feature), "works", "{feature}: {own}");
    }
    if !longhaul_testprograms::skip::is_in_user_namespace() {
        for feature in ["cc load htcp", "decp", "run", "run --ack-ratio"] {
            assert_eq!(outcome(&own, feature), "works", "{feature}: {own}");
        }
        if !is_watching_denied() {
            assert_eq!(outcome(&own, "cc watch"), "works", "{own}");
        }
    }
    let mut user = Command::new("unshare");
    let user = trials(user.args([
        "--user",
        longhaul_testprograms::longhaul(),
        "doctor",
        "--json",
    ]));
    assert_eq!(outcome(&user, "relay"), "works");
    for feature in ["cc load htcp", "decp", "run"] {
        assert_eq!(outcome(&user, feature), "untried", "{feature}: {user}");
    }
}

/// Returns the exit code and the output of `--json` for a host with these settings.
fn check_settings(settings: &Value) -> (i32, Value) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("facts.json");
    let facts = json!({"facts": {
        "kernel": "6.12.0", "btf": true, "cpus": 8, "memory": "64GB", "page": 4096,
        "sysctl": settings,
    }});
    fs::write(&file, facts.to_string()).unwrap();
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["doctor", "--json", "--facts"])
        .arg(&file)
        .output()
        .unwrap();
    let found = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), found)
}

#[test]
fn exit_code_is_1_if_a_setting_limits() {
    let (code, found) = check_settings(&json!({"net.ipv4.tcp_rmem": "4096 131072 500002816"}));
    assert_eq!(code, 0, "{found}");
    let (code, found) = check_settings(&json!({"net.ipv4.tcp_rmem": "4096 131072 500002815"}));
    assert_eq!(code, 1);
    let limits: Vec<&Value> = found["findings"].as_array().unwrap().iter().collect();
    let limit = limits.last().unwrap();
    assert_eq!(limit["severity"], "limit");
    assert_eq!(limit["setting"], "net.ipv4.tcp_rmem");
    assert_eq!(
        limit["command"],
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 500002816'"
    );
}

#[test]
fn judges_facts_from_json_of_another_host() {
    let mut first = Command::new(longhaul_testprograms::longhaul());
    let first = first.args(["doctor", "--json"]).output().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("facts.json");
    fs::write(&file, &first.stdout).unwrap();
    let second = Command::new(longhaul_testprograms::longhaul())
        .args(["doctor", "--json", "--facts"])
        .arg(&file)
        .output()
        .unwrap();
    let parse = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };
    assert_eq!(parse(&first)["findings"], parse(&second)["findings"]);
    assert_eq!(first.status, second.status);
}
