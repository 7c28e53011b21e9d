// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on captures of real traffic with a known main limit. `tests/captures/verdicts` has a file for each; its name
//! begins with the limit. `bench/verdicts/run.py` made them, and judges hundreds more.

use longhaul_analysis::capture_with_bins;
use longhaul_flow::{record::Limit, verdict::limit_shares};
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

#[test]
fn main_limit_of_recorded_transfers_is_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/verdicts");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 12, "{files:?}");
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let report = capture_with_bins(file, 0).unwrap();
        let upload = &report.analysis.flows[0].upload;
        let main = limit_shares(&upload.limits)
            .first()
            .map(|(limit, _)| *limit);
        if main != Some(limit_of(name)) {
            wrong.push(format!("{name}: {}", upload.verdict));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
