// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link` between two network namespaces, with real sockets at both ends.

mod link_process;

use link_process::{
    Testbed, may_use_namespaces,
    traffic::{datagrams, transfer},
};
use std::time::{Duration, Instant};

#[test]
fn every_byte_survives_every_trouble() {
    if !may_use_namespaces() {
        return;
    }
    let troubles = [
        "--delay",
        "2ms",
        "--rate",
        "1gbit",
        "--jitter",
        "uniform:300us,reorder",
        "--loss",
        "0.3%",
        "--duplicate",
        "0.5%",
        "--corrupt",
        "0.1%",
        "--reorder",
        "0.5%:1ms",
        "--ack-thin",
        "1",
    ];
    for addresses in [
        ["10.66.0.1/30", "10.66.0.2/30"],
        ["fd66::1/64", "fd66::2/64"],
    ] {
        for delivery in ["bulk", "exact"] {
            let flags = [troubles.as_slice(), &["--delivery", delivery]].concat();
            let bed = Testbed::start("trouble", addresses, &flags);
            transfer(&bed, 4 << 20);
            let end = bed.stop();
            assert!(end.contains("segments delivered"), "{end}");
        }
    }
}

#[test]
fn large_packets_and_no_offload_carry_the_same_bytes() {
    if !may_use_namespaces() {
        return;
    }
    for flags in [
        ["--mtu", "9000"].as_slice(),
        &["--no-offload"],
        &["--threads", "2"],
    ] {
        let bed = Testbed::start("mtu", ["10.66.1.1/30", "10.66.1.2/30"], flags);
        transfer(&bed, 16 << 20);
    }
}

#[test]
fn exactly_the_numbered_packets_are_lost() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--forward", "loss=at:2,5-7", "--delay", "1ms"];
    let bed = Testbed::start("numbered", ["10.66.2.1/30", "10.66.2.2/30"], &flags);
    assert_eq!(datagrams(&bed, 10), [1, 3, 4, 8, 9, 10]);
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    if !may_use_namespaces() {
        return;
    }
    let arrived = |seed| {
        let flags = ["--loss", "20%", "--seed", seed];
        let bed = Testbed::start("seed", ["10.66.3.1/30", "10.66.3.2/30"], &flags);
        datagrams(&bed, 200)
    };
    assert_eq!(arrived("5"), arrived("5"));
    assert_ne!(arrived("5"), arrived("6"));
}

#[test]
fn nothing_arrives_early_and_a_change_takes_hold() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start(
        "change",
        ["10.66.4.1/30", "10.66.4.2/30"],
        &["--delay", "20ms"],
    );
    let one_way = || {
        let start = Instant::now();
        assert_eq!(datagrams(&bed, 1), [1]);
        // The receiver's own patience of 700 ms comes on top of the delay.
        start.elapsed().saturating_sub(Duration::from_millis(700))
    };
    assert!(one_way() >= Duration::from_millis(20));
    assert!(bed.set("delay", "60ms").success());
    assert!(one_way() >= Duration::from_millis(60));
    assert!(bed.set("loss", "100%").success());
    assert!(datagrams(&bed, 5).is_empty());
    assert_eq!(
        bed.set("rate", "0gbit").code(),
        Some(2),
        "refused while it runs"
    );
}

#[test]
fn a_killed_link_leaves_nothing_behind() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("killed", ["10.66.5.1/30", "10.66.5.2/30"], &[]);
    assert!(bed.interfaces().contains("wan0"));
    let bed = bed.kill();
    assert!(!bed.interfaces().contains("wan0"));
    assert_eq!(
        bed.set("delay", "1ms").code(),
        Some(2),
        "its name is free again"
    );
}

#[test]
fn counters_add_up() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--forward", "loss=at:1-40", "--backward", "loss=at:9999"];
    let bed = Testbed::start("counters", ["10.66.6.1/30", "10.66.6.2/30"], &flags);
    assert_eq!(datagrams(&bed, 100).len(), 60);
    let records = bed.records_after_stop();
    let checks: Vec<_> = records
        .iter()
        .filter(|r| r["record"] == "selfcheck")
        .collect();
    assert_eq!(checks.len(), 2);
    let forward = checks.iter().find(|r| r["direction"] == "forward").unwrap();
    assert_eq!(forward["segments"], 100);
    assert_eq!(forward["delivered_segments"], 60);
    assert_eq!(forward["drops"]["loss"], 40);
    assert_eq!(forward["device_overflow"], 0);
}
