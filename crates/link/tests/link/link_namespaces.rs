// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul link` between two network namespaces, with real sockets at both ends.

use longhaul_testnet::{
    link_process::{
        Testbed, may_use_namespaces,
        traffic::{measure_one_way_delay, send_datagrams, transfer},
    },
    namespace::{run, run_ip},
};
use longhaul_testprograms::{process::assert_refused, wait::wait_until};
use rustix::process::Signal;
use std::{
    net::UdpSocket,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

#[test]
fn tcp_survives_all_impairments() {
    if !may_use_namespaces() {
        return;
    }
    let impairments = [
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
        for delivery in ["batched", "per-packet"] {
            let flags = [impairments.as_slice(), &["--delivery", delivery]].concat();
            let bed = Testbed::start("impaired", addresses, &flags);
            transfer(&bed, 4 << 20);
            let report = bed.stop();
            assert!(report.contains("segments delivered"), "{report}");
        }
    }
}

#[test]
fn unknown_link_lists_running_links() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("a-named", ["10.66.9.1/30", "10.66.9.2/30"], &[]);
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["link", "show", "no-such-link"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let name = format!("a-named-{}", std::process::id());
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("there are: ") && stderr.contains(&name),
        "{stderr}"
    );
    bed.stop();
}

#[test]
fn transfers_with_large_packets_and_without_offload() {
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

/// Returns the settings of one direction from `show --json`.
fn settings(bed: &Testbed, direction: usize) -> serde_json::Value {
    let settings = bed.show(&["--json"]);
    let line = settings.lines().nth(direction).unwrap();
    serde_json::from_str::<serde_json::Value>(line).unwrap()["settings"].clone()
}

#[test]
fn shows_settings_and_restores_defaults() {
    if !may_use_namespaces() {
        return;
    }
    let set = [
        ("delay", "1ms"),
        ("jitter", "uniform:1ms"),
        ("allow-reordering", "yes"),
        ("rate", "100mbit"),
        ("overhead", "38"),
        ("queue", "500p"),
        ("aqm", "red"),
        ("loss", "0.1%"),
        ("duplicate", "0.1%"),
        ("corrupt", "0.1%"),
        ("reorder", "1%:1ms"),
        ("ack-thin", "1"),
        ("max-ack-delay", "20ms"),
        ("ack-rate", "60000"),
        ("ack-buffer", "500"),
    ];
    let bed = Testbed::start("shown", ["10.66.21.1/30", "10.66.21.2/30"], &[]);
    let defaults = settings(&bed, 0);
    assert_eq!(
        (&defaults["delay"], &defaults["loss"]),
        (&"0ns".into(), &"none".into())
    );
    assert!(bed.set("rate", "100mbit").success() && bed.set("delay", "1ms").success());
    for (key, value) in set {
        assert!(bed.set(key, value).success(), "{key} {value}");
    }
    for direction in [0, 1] {
        let now = settings(&bed, direction);
        assert_eq!(now["rate"], "100Mbit/s");
        assert_eq!(
            (&now["queue"], &now["loss"]),
            (&"500p".into(), &"0.1%".into())
        );
        assert_eq!(
            (&now["allow-reordering"], &now["max-ack-delay"]),
            (&"yes".into(), &"20ms".into())
        );
    }
    let text = bed.show(&[]);
    for line in [
        "shown",
        "loss             0.1%",
        "queue            500p (500 packets)",
        "allow-reordering yes",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    for key in ["aqm", "queue", "trace"]
        .into_iter()
        .chain(set.map(|(key, _)| key))
    {
        assert!(bed.set(key, "default").success(), "{key}");
    }
    assert_eq!(settings(&bed, 0), defaults);
    for (key, value) in [
        ("reorder", "0"),
        ("reorder", "none"),
        ("duplicate", "none"),
        ("corrupt", "none"),
        ("trace", "none"),
        ("loss", "0"),
        ("loss", "none"),
        ("jitter", "none"),
        ("delay", "0"),
    ] {
        assert!(bed.set(key, value).success(), "{key} {value}");
    }
    for (key, value) in [
        ("queue", "10"),
        ("loss", "1"),
        ("duplicate", "1"),
        ("reorder", "1:5ms"),
    ] {
        assert_eq!(bed.set(key, value).code(), Some(2), "{key} {value}");
    }
    assert_eq!(settings(&bed, 1), defaults, "nothing was touched");
}

#[test]
fn shows_queue_limit_in_bytes() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--rate", "1gbit", "--delay", "5ms", "--queue", "1bdp"];
    let bed = Testbed::start("limit", ["10.66.19.1/30", "10.66.19.2/30"], &flags);
    let limit = || {
        let text = bed.show(&[]);
        let line = text.lines().find(|line| line.contains("queue  ")).unwrap();
        line.split_once("1bdp").unwrap().1.to_owned()
    };
    assert_eq!(limit(), " (1.25 MB)");
    assert!(bed.set("rate", "100mbit").success());
    assert_eq!(
        limit(),
        " (1.25 MB)",
        "a BDP is computed when the limit is set"
    );
    assert!(bed.set("queue", "1bdp").success());
    assert_eq!(limit(), " (125 KB)");
    let json = bed.show(&["--json"]);
    assert!(json.contains("\"queue_limit_bytes\":125000"), "{json}");
}

#[test]
fn shows_scheduled_change() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--delay", "1ms", "--at", "0.1s: delay 2ms"];
    let bed = Testbed::start("scheduled", ["10.66.22.1/30", "10.66.22.2/30"], &flags);
    wait_until(|| settings(&bed, 0)["delay"] == "2ms");
}

/// The limit does not apply here, because a packet on an idle line is not queued.
#[test]
fn idle_line_carries_packet_longer_than_queue() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--rate", "100mbit", "--queue", "10B"];
    let bed = Testbed::start("tiny", ["10.66.23.1/30", "10.66.23.2/30"], &flags);
    assert_eq!(send_datagrams(&bed, 1, 1), [1]);
}

#[test]
fn drops_exactly_the_numbered_packets() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--forward", "loss=at:2,5-7", "--delay", "1ms"];
    let bed = Testbed::start("numbered", ["10.66.2.1/30", "10.66.2.2/30"], &flags);
    assert_eq!(send_datagrams(&bed, 10, 6), [1, 3, 4, 8, 9, 10]);
}

#[test]
fn same_seed_drops_same_packets() {
    if !may_use_namespaces() {
        return;
    }
    let arrived = |seed| {
        let flags = ["--loss", "20%", "--seed", seed];
        let bed = Testbed::start("seed", ["10.66.3.1/30", "10.66.3.2/30"], &flags);
        send_datagrams(&bed, 200, 100)
    };
    assert_eq!(arrived("5"), arrived("5"));
    assert_ne!(arrived("5"), arrived("6"));
}

#[test]
fn applies_delay_and_runtime_changes() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start(
        "change",
        ["10.66.4.1/30", "10.66.4.2/30"],
        &["--delay", "20ms"],
    );
    assert!(measure_one_way_delay(&bed) >= Duration::from_millis(20));
    assert!(bed.set("delay", "60ms").success());
    assert!(measure_one_way_delay(&bed) >= Duration::from_millis(60));
    assert!(bed.set("loss", "100%").success());
    assert!(send_datagrams(&bed, 5, 0).is_empty());
    assert_eq!(
        bed.set("rate", "0gbit").code(),
        Some(2),
        "refused while it runs"
    );
}

/// Regression test: once, commands were read only when a report was due or a thread was idle.
#[test]
fn busy_link_applies_change_before_set_returns() {
    if !may_use_namespaces() {
        return;
    }
    let addresses = ["10.66.24.1/30", "10.66.24.2/30"];
    let bed = Testbed::start("busy", addresses, &["--interval", "1h"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&bed, &done));
        assert!(bed.set("loss", "100%").success());
        assert!(send_datagrams(&bed, 5, 0).is_empty());
        done.store(true, Relaxed);
    });
}

/// Sends datagrams, which no socket receives, from left to right until `done`, for at most a minute.
fn flood(bed: &Testbed, done: &AtomicBool) {
    let socket = bed.left.run(|| UdpSocket::bind((bed.left_address(), 0)));
    let (socket, end) = (socket.unwrap(), Instant::now() + Duration::from_secs(60));
    while !done.load(Relaxed) && Instant::now() < end {
        // The device may drop datagrams because its queue is full. That does not matter here.
        drop(socket.send_to(&[0; 1000], (bed.right_address(), 9)));
    }
}

#[test]
fn killed_link_leaves_nothing_behind() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("killed", ["10.66.5.1/30", "10.66.5.2/30"], &[]);
    let has_interface = |bed: &Testbed| run(&bed.left, "ip link show").contains("wan0");
    assert!(has_interface(&bed));
    let bed = bed.kill();
    assert!(!has_interface(&bed));
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
    assert_eq!(send_datagrams(&bed, 100, 60).len(), 60);
    let records = bed.records_after_stop();
    let reports: Vec<_> = records
        .iter()
        .filter(|r| r["record"] == "timing_report")
        .collect();
    assert_eq!(reports.len(), 2);
    let forward = reports
        .iter()
        .find(|r| r["direction"] == "forward")
        .unwrap();
    assert_eq!(forward["segments"], 100);
    assert_eq!(forward["delivered_segments"], 60);
    assert_eq!(forward["drops"]["loss"], 40);
    assert_eq!(
        (&forward["refused"], &forward["inside"]),
        (&0.into(), &0.into())
    );
    assert_eq!(forward["device_overflow"], 0);
}

/// Returns the last record of the direction from left to right.
fn forward_report(bed: Testbed) -> serde_json::Value {
    let mut records = bed.records_after_stop();
    records.retain(|r| r["record"] == "timing_report" && r["direction"] == "forward");
    records.remove(0)
}

/// Sends more datagrams than an interface holds while the link is stopped, and returns how many arrive.
fn overflow_while_stopped(bed: &Testbed, count: usize, pause: Duration) -> usize {
    let bind = |address| move || UdpSocket::bind((address, 0));
    let receiver = bed.right.run(bind(bed.right_address())).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let sender = bed.left.run(bind(bed.left_address())).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    bed.pause();
    (0..count).for_each(|_| assert_eq!(sender.send(&[0; 100]).unwrap(), 100));
    std::thread::sleep(pause);
    bed.signal(Signal::CONT);
    std::iter::from_fn(|| receiver.recv(&mut [0; 100]).ok()).count()
}

/// The report once said 0: the interfaces were gone when their counters were read.
#[test]
fn reports_packets_that_overflow_the_interface_of_a_stopped_link() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start(
        "stopped",
        ["10.66.25.1/30", "10.66.25.2/30"],
        &["--delay", "1ms"],
    );
    let pause = Duration::from_millis(300);
    overflow_while_stopped(&bed, 12_000, pause);
    let report = forward_report(bed);
    let number = |key: &str| report[key].as_u64().unwrap();
    assert!(number("device_overflow") >= 1_000, "{report}");
    assert_eq!(number("segments") + number("device_overflow"), 12_000);
    assert_eq!(number("delivered_segments"), number("segments"));
    let median = report["lateness"]["median_us"].as_f64().unwrap();
    assert!(median >= pause.as_micros() as f64, "{report}");
}

#[test]
fn ends_when_a_namespace_is_deleted() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("orphan", ["10.66.27.1/30", "10.66.27.2/30"], &[]);
    bed.delete_left_namespace();
    let deleted = format!("{} was deleted", bed.left.name());
    let (status, text) = bed.wait_for_exit();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains(&deleted), "{text}");
}

/// Once, a link with a thread for each direction waited for the other one for ever.
#[test]
fn ends_when_an_interface_is_deleted_with_two_threads() {
    if !may_use_namespaces() {
        return;
    }
    let addresses = ["10.66.29.1/30", "10.66.29.2/30"];
    let bed = Testbed::start("halved", addresses, &["--threads", "2", "--interval", "1h"]);
    run_ip(&bed.left, "link delete wan0");
    let (status, text) = bed.wait_for_exit();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(
        text.contains("an interface of the link was removed"),
        "{text}"
    );
}

#[test]
fn set_warns_of_what_it_makes_worse() {
    if !may_use_namespaces() {
        return;
    }
    let addresses = ["10.66.30.1/30", "10.66.30.2/30"];
    let bed = Testbed::start(
        "warns",
        addresses,
        &["--delay", "20ms", "--rate", "100mbit"],
    );
    for (key, value, warning) in [
        ("loss", "1%", ""),
        ("rate", "64kbit", "187.5 s"),
        ("loss", "2%", ""),
        (
            "jitter",
            "50ms,correlation=2s",
            "too large for a delay of 20 ms",
        ),
        ("jitter", "1ms", "1ms,correlation=40ms varies slowly"),
    ] {
        let output = bed.set_output(key, value);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains(warning) && text.is_empty() == warning.is_empty(),
            "{key}: {text}"
        );
    }
}

#[test]
fn takes_jitter_from_files_at_any_time() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("delays");
    std::fs::write(&file, "1 20ms\n2 30ms\n").unwrap();
    let trace = format!("trace:{}", file.display());
    let change = format!("1ms: jitter {trace}");
    let addresses = ["10.66.35.1/30", "10.66.35.2/30"];
    let bed = Testbed::start("traced", addresses, &["--at", &change]);
    wait_until(|| settings(&bed, 0)["jitter"] != "none");
    assert!(measure_one_way_delay(&bed) >= Duration::from_millis(20));
    assert!(bed.set("jitter", &trace).success());
    assert_eq!(
        bed.set("jitter", &format!("table:{}", file.display()))
            .code(),
        Some(2)
    );
}

#[test]
fn counts_segments_that_the_receiver_refuses() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("refuses", ["10.66.28.1/30", "10.66.28.2/30"], &[]);
    run_ip(&bed.right, "link set wan0 down");
    assert!(send_datagrams(&bed, 5, 0).is_empty());
    let report = forward_report(bed);
    assert_eq!(
        (&report["segments"], &report["refused"]),
        (&5.into(), &5.into())
    );
}

/// `docs/start/slow-path.md`, which a test runs, shows the only link without its name.
#[test]
fn show_without_a_name_and_a_link_is_refused() {
    let output = Command::new("unshare")
        .args(["--net", longhaul_testprograms::longhaul(), "link", "show"])
        .output()
        .unwrap();
    assert_refused(&output, 2, &["no link runs in this network namespace"]);
}
