// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul doctor` finds limits of queueing disciplines, routes and TCP settings of a network namespace.

use super::doctor::Host;
use longhaul_testnet::namespace::{may_use_namespaces, run};
use serde_json::Value;
use std::process::Command;

/// Runs commands of ip(8) and tc(8), one a line.
fn configure(host: &Host, commands: &str) {
    for line in commands.lines() {
        run(&host.netns, line);
    }
}

/// A host with an interface `d0` that is up.
fn host() -> Host {
    let host = Host::new();
    configure(
        &host,
        "ip link add d0 type veth peer name d1
         ip link set d0 up
         ip link set d1 up
         ip address add 10.9.9.1/24 dev d0",
    );
    host
}

/// Returns the findings at 10 Gbit/s and 100 ms.
fn findings(host: &Host) -> Vec<Value> {
    let args = ["doctor", "--json", "--rate", "10gbit", "--rtt", "100ms"];
    let output = host.command(longhaul_testprograms::longhaul(), &args);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["findings"].as_array().unwrap().clone()
}

/// Returns severity, value and fix of the findings about `setting`.
fn about(findings: &[Value], setting: &str) -> Vec<[String; 3]> {
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    findings
        .iter()
        .filter(|finding| finding["setting"] == setting)
        .map(|finding| ["severity", "value", "command"].map(|key| text(finding, key)))
        .collect()
}

fn assert_found(findings: &[Value], setting: &str, expected: [&str; 3]) {
    let found = about(findings, setting);
    assert_eq!(found, [expected.map(str::to_owned)], "{setting}");
}

const REMOVE: &str = "tc qdisc del dev d0 root";

#[test]
fn finds_left_over_token_bucket() {
    if !may_use_namespaces() {
        return;
    }
    let host = host();
    configure(
        &host,
        "tc qdisc add dev d0 root tbf rate 10mbit burst 5000 limit 10000",
    );
    let found = findings(&host);
    assert_found(&found, "d0 tbf rate", ["limit", "10 Mbit/s", REMOVE]);
    assert_found(&found, "d0 tbf limit", ["limit", "10 KB", REMOVE]);
    assert_eq!(about(&found, "d0 qdisc")[0][1], "tbf");
    // What the finding says to do is the way out.
    configure(&host, REMOVE);
    let found = findings(&host);
    assert_eq!(about(&found, "d0 tbf rate"), [[""; 3]; 0]);
}

#[test]
fn finds_short_queues_instead_of_txqueuelen() {
    if !may_use_namespaces() {
        return;
    }
    let host = host();
    configure(&host, "tc qdisc add dev d0 root pfifo limit 2");
    let found = findings(&host);
    assert_found(&found, "d0 pfifo limit", ["limit", "2 packets", REMOVE]);
    assert_eq!(about(&found, "d0 txqueuelen"), [[""; 3]; 0]);
    configure(
        &host,
        "tc qdisc del dev d0 root
         tc qdisc add dev d0 root bfifo limit 1300000",
    );
    let found = findings(&host);
    assert_found(&found, "d0 bfifo limit", ["note", "1.3 MB", REMOVE]);
    configure(
        &host,
        "tc qdisc del dev d0 root
         tc qdisc add dev d0 root pfifo limit 5000",
    );
    let found = findings(&host);
    assert_found(&found, "d0 pfifo limit", ["ok", "5000 packets", ""]);
}

#[test]
fn finds_rates_of_classes_and_of_disciplines_in_them() {
    if !may_use_namespaces() {
        return;
    }
    let host = host();
    configure(
        &host,
        "tc qdisc add dev d0 root handle 1: htb default 30
         tc class add dev d0 parent 1: classid 1:1 htb rate 40mbit
         tc class add dev d0 parent 1:1 classid 1:30 htb rate 5mbit ceil 900mbit
         tc class add dev d0 parent 1: classid 1:20 htb rate 20mbit
         tc qdisc add dev d0 parent 1:20 tbf rate 12gbit burst 1mb limit 30mb",
    );
    let found = findings(&host);
    let default = ["limit", "40 Mbit/s in class 1:30", REMOVE];
    assert_found(&found, "d0 htb rate", default);
    let slowest = ["note", "20 Mbit/s in class 1:20", REMOVE];
    assert_found(&found, "d0 htb class", slowest);
    assert_found(&found, "d0 tbf rate", ["ok", "12 Gbit/s", ""]);
    configure(
        &host,
        "tc class change dev d0 classid 1:1 htb rate 20gbit
         tc class change dev d0 classid 1:30 htb rate 20gbit
         tc class change dev d0 classid 1:20 htb rate 50gbit",
    );
    let found = findings(&host);
    let default = ["ok", "20 Gbit/s in class 1:30", ""];
    assert_found(&found, "d0 htb rate", default);
    assert_eq!(about(&found, "d0 htb class"), [[""; 3]; 0]);
}

#[test]
fn finds_metrics_of_routes_and_the_command_removes_them() {
    if !may_use_namespaces() {
        return;
    }
    let host = host();
    configure(
        &host,
        "ip route add 10.8.0.0/16 via 10.9.9.2 window 10000 initcwnd 1 advmss 256 rto_min 5s cwnd lock 40 mtu 1400
         ip route add default via 10.9.9.2 metric 100 window 10000
         ip -6 route add 2001:db8::/32 dev d0 window 10000",
    );
    let found = findings(&host);
    let fix = "ip route change 10.8.0.0/16 via 10.9.9.2 dev d0 mtu 1400";
    for (metric, severity, value) in [
        ("window", "limit", "10000"),
        ("cwnd lock", "limit", "40"),
        ("advmss", "limit", "256"),
        ("initcwnd", "note", "1"),
        ("rto_min", "note", "5 s"),
    ] {
        let setting = format!("route 10.8.0.0/16 {metric}");
        assert_found(&found, &setting, [severity, value, fix]);
    }
    assert_found(&found, "route 10.8.0.0/16 mtu", ["ok", "1400", ""]);
    let default = "ip route change default via 10.9.9.2 dev d0 metric 100";
    let window = ["limit", "10000", default];
    assert_found(&found, "route default window", window);
    let ipv6 = about(&found, "IPv6 route 2001:db8::/32 window").remove(0);
    configure(&host, fix);
    configure(&host, default);
    configure(&host, &ipv6[2]);
    let limits = |finding: &&Value| {
        let setting = finding["setting"].as_str().unwrap();
        setting.contains("route ") && finding["severity"] != "ok"
    };
    assert_eq!(findings(&host).iter().find(limits), None);
}

#[test]
fn finds_settings_of_loss_recovery_and_pacing() {
    if !may_use_namespaces() {
        return;
    }
    let host = host();
    let settings = [
        ("tcp_dsack", "0", "1"),
        ("tcp_frto", "0", "2"),
        ("tcp_no_ssthresh_metrics_save", "0", "1"),
        ("tcp_pacing_ss_ratio", "10", "200"),
        ("tcp_pacing_ca_ratio", "10", "120"),
        ("tcp_max_reordering", "3", "300"),
    ];
    for (name, bad, _) in settings {
        host.set(&format!("net.ipv4.{name}"), bad);
    }
    host.set("net.ipv4.tcp_no_metrics_save", "0");
    let found = findings(&host);
    for (name, bad, fixed) in settings {
        let name = format!("net.ipv4.{name}");
        let fix = format!("sysctl -w {name}='{fixed}'");
        assert_found(&found, &name, ["note", bad, &fix]);
    }
    // Not read in vain: `--fix` sets them.
    let args = ["doctor", "--fix", "--filter", "net.ipv4.tcp_dsack"];
    let output = host.command(longhaul_testprograms::longhaul(), &args);
    let message = String::from_utf8_lossy(&output.stdout);
    assert!(message.contains("net.ipv4.tcp_dsack: 0 -> 1"), "{message}");
}

#[test]
fn facts_with_disciplines_and_routes_are_read_again() {
    if !may_use_namespaces() {
        return;
    }
    let host = host();
    configure(
        &host,
        "tc qdisc add dev d0 root handle 1: htb default 30
         tc class add dev d0 parent 1: classid 1:30 htb rate 10mbit
         ip route add default via 10.9.9.2 window 10000",
    );
    let first = host.command(longhaul_testprograms::longhaul(), &["doctor", "--json"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("facts.json");
    std::fs::write(&file, &first.stdout).unwrap();
    let second = Command::new(longhaul_testprograms::longhaul())
        .args(["doctor", "--json", "--facts"])
        .arg(&file)
        .output()
        .unwrap();
    let parse = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    assert_eq!(
        parse(&first.stdout)["findings"],
        parse(&second.stdout)["findings"]
    );
}
