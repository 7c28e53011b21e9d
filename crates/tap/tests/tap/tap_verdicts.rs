// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on captures of real traffic with a known main limit and congestion control. `tests/captures/verdicts` has a file
//! for each; its name is LIMIT.CAUSE-CONTROL.CAPTURE-POINT. `bench/verdicts/run.py` made most of them, and judges hundreds more.

use longhaul_flow::{
    ecn::negotiation::EcnNegotiation,
    record::{ControlName, Direction, Limit},
    verdict::limit_shares,
};
use longhaul_tap::capture;
use std::path::Path;

fn limit_of(name: &str) -> Limit {
    match name.split('.').next() {
        Some("application") => Limit::Application,
        Some("receive-window") => Limit::ReceiveWindow,
        Some("congestion-window") => Limit::CongestionWindow,
        Some("bottleneck-bandwidth") => Limit::BottleneckBandwidth,
        Some("ack-stream") => Limit::AckStream,
        _ => panic!("{name} begins with no limit"),
    }
}

/// Returns the name and the analysed data of each recorded transfer.
fn recorded_transfers() -> Vec<(String, Direction)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/verdicts");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 20, "{files:?}");
    let analyse = |file: &std::path::PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let mut report = capture(file).unwrap();
        let flow = report.analysis.flows.swap_remove(0);
        let data = [flow.upload, flow.download];
        let data = data
            .into_iter()
            .max_by_key(|direction| direction.data.unique_bytes);
        (name, data.unwrap())
    };
    files.iter().map(analyse).collect()
}

#[test]
fn main_limit_of_recorded_transfers_is_right() {
    let mut wrong = Vec::new();
    for (name, data) in recorded_transfers() {
        let main = limit_shares(&data.limits).first().map(|(limit, _)| *limit);
        if main != Some(limit_of(&name)) {
            wrong.push(format!("{name}: {}", data.verdict));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn congestion_control_of_recorded_transfers_is_right_or_unknown() {
    let (mut known, mut wrong) = (0, Vec::new());
    for (name, data) in recorded_transfers() {
        let found = data.congestion_control.unwrap_or_default();
        if found.name != ControlName::Unknown {
            known += 1;
            let own = format!("-{}.", found.name.as_str());
            if !name.contains(&own) {
                wrong.push(format!("{name}: {}", found.describe()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(known >= 5, "{known} known");
}

/// A Linux receiver reports by AccECN as many marks as a capture between the queue and the receiver sees.
#[test]
fn accecn_reports_of_linux_equal_the_marks() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let analyse = |file: &str| capture(&captures.join(file)).unwrap().analysis.flows;
    let [sender] = &analyse("accecn-sender.pcap.gz")[..] else {
        panic!("not one flow");
    };
    let [marked] =
        &analyse("verdicts/bottleneck-bandwidth.queue-before-tap-cubic.middle.pcap.gz")[..]
    else {
        panic!("not one flow");
    };
    assert_eq!(sender.handshake.ecn, EcnNegotiation::Accurate);
    assert_eq!(marked.upload.ecn.ce_data_segments, 16);
    assert_eq!(sender.upload.ecn.reported_ce_packets, 16);
    assert_eq!(marked.upload.ecn.reported_ce_packets, 16);
}
