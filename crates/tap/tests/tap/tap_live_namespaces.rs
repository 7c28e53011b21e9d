// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul tap live` on a link between two namespaces.

use crate::tap_process::Link;
use longhaul_testnet::namespace::may_use_namespaces;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

#[test]
fn records_of_a_flow_sum_to_its_bytes() {
    if !may_use_namespaces() {
        return;
    }
    const BYTES: u64 = 4_000_000;
    let link = Link::new("live");
    let mut live = Command::new(longhaul_testprograms::longhaul())
        .args([
            "tap",
            "live",
            "--json",
            "-i",
            "v0",
            "--netns",
            link.left.name(),
        ])
        .args(["--filter", "tcp port 5201"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(live.stdout.take().unwrap()).lines();
    // JSON output has no line for the start: the first record of a flow shows that the command samples.
    let mut acked_bytes = 0;
    thread::scope(|scope| {
        let transfer = scope.spawn(|| {
            thread::sleep(Duration::from_secs(2));
            link.transfer(BYTES as usize, 5201);
        });
        for line in lines {
            let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(record["server"], "10.66.9.2:5201", "{record}");
            assert_eq!(record["interface"], "v0", "{record}");
            let upload = &record["upload"];
            acked_bytes += upload["acked_bps"].as_u64().unwrap_or(0) / 8;
            if acked_bytes >= BYTES {
                assert!(upload["acks"].as_u64().unwrap() > 0, "{record}");
                assert!(upload["rtt_ns"].as_u64().unwrap() > 0, "{record}");
                break;
            }
        }
        transfer.join().unwrap();
    });
    // SYN and FIN count as a byte each.
    assert!((BYTES..=BYTES + 2).contains(&acked_bytes), "{acked_bytes}");
    kill_process(Pid::from_child(&live), Signal::INT).unwrap();
    assert!(live.wait().unwrap().success());
}
