// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan measure` across a running `longhaul link`. A busy machine delays packets; it never sends them early,
//! and never restores packets that the link dropped.

use longhaul_testnet::{
    link_process::{Testbed, may_use_namespaces},
    namespace::run_with_input,
};
use longhaul_testprograms::{process::Running, wait::wait_for_line};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Starts a responder in the right namespace.
fn start_responder(bed: &Testbed) -> Running {
    let address = format!("{}:5990", bed.right_address());
    let mut command = bed.right.command(longhaul_testprograms::longhaul());
    command.args(["plan", "measure", "--duration", "10min", "--serve"]);
    command.arg(address).stdout(Stdio::piped());
    let mut responder = Running(command.spawn().unwrap());
    wait_for_line(responder.stdout.take().unwrap(), "answering");
    responder
}

/// Returns the only leg in the output of a probe from the left.
fn probe(bed: &Testbed, flags: &[&str], host: &str) -> Value {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["plan", "measure", "--json", "--name", "left"]);
    command.args(flags).arg(host);
    let output = bed.left.run(|| command.output()).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    file["paths"][0].clone()
}

#[test]
fn plan_measure_measures_loss_round_trip_mtu_and_capacity() {
    if !may_use_namespaces() {
        return;
    }
    // The first packet requests the cookie.
    let link = [
        "--delay",
        "20ms",
        "--rate",
        "50mbit",
        "--forward",
        "loss=at:5,7-8",
    ];
    let bed = Testbed::start("plan-probe", ["10.66.9.1/30", "10.66.9.2/30"], &link);
    black_hole(&bed);
    let _responder = start_responder(&bed);
    let host = format!("right={}:5990", bed.right_address());
    let leg = probe(&bed, &["--count", "40", "--interval", "5ms"], &host);
    assert_eq!(
        (&leg["from"], &leg["to"]),
        (&"left".into(), &"right".into())
    );
    let measured = &leg["measured"];
    assert_eq!(
        (&measured["sent"], &measured["lost"]),
        (&40.into(), &3.into()),
        "{leg}"
    );
    assert!(measured["rtt_s"]["min"].as_f64().unwrap() >= 0.04, "{leg}");
    assert_eq!(leg["mtu"], 1200, "{leg}");
    // A stall makes single trains too fast or too slow, but not all of them.
    let capacity = |figure: &str| measured["capacity"][figure].as_f64().unwrap() / 50e6;
    assert!(
        capacity("min_bps") < 1.25 && capacity("max_bps") > 0.75,
        "{leg}"
    );
    assert_eq!(measured["capacity"]["lower_bound"], false, "{leg}");
}

/// Drops packets longer than 1,200 bytes without an ICMP message.
fn black_hole(bed: &Testbed) {
    let rules = "table inet plan {
        chain input {
            type filter hook input priority 0;
            meta length > 1200 drop
        }
    }";
    run_with_input(&bed.right, "nft", &["-f", "-"], rules);
}

#[test]
fn plan_measure_falls_back_to_icmp_and_tcp() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start(
        "plan-icmp",
        ["10.66.9.1/30", "10.66.9.2/30"],
        &["--delay", "10ms"],
    );
    let ping = "/proc/sys/net/ipv4/ping_group_range";
    bed.left
        .run(|| std::fs::write(ping, "0 2147483647"))
        .unwrap();
    let address = bed.right_address().to_string();
    let icmp = probe(&bed, &["--count", "10"], &address);
    assert_eq!(icmp["measured"]["method"], "icmp", "{icmp}");
    assert_eq!(icmp["measured"]["lost"], 0, "{icmp}");
    assert!(
        icmp["measured"]["rtt_s"]["min"].as_f64().unwrap() >= 0.02,
        "{icmp}"
    );
    assert_eq!(
        (icmp["mtu"].clone(), icmp["rate"].clone()),
        (1500.into(), Value::Null)
    );
    // No program listens there: a refusal takes a round trip too.
    let tcp = probe(&bed, &["--count", "3"], &format!("{address}:9"));
    assert_eq!(tcp["measured"]["method"], "tcp", "{tcp}");
    assert!(
        tcp["measured"]["rtt_s"]["min"].as_f64().unwrap() >= 0.02,
        "{tcp}"
    );
}
