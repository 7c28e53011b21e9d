// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the bins of several widths, and of the time series.

use crate::scripted::script::{MS, client, run, run_with, settings};
use longhaul_flow::Settings;

#[test]
fn leaves_out_empty_bins() {
    let results = run(&[
        client(500, 1, 1).data(10),
        client(MS - 1, 11, 1).data(20),
        client(7 * MS, 31, 1).data(30),
        client(1_000 * MS, 61, 1).data(40),
    ]);
    let bytes = |width| -> Vec<(u64, u64)> {
        let series = results.series(0, true, width);
        series
            .iter()
            .map(|(at, bin)| (*at, bin.data_bytes))
            .collect()
    };
    assert_eq!(bytes(0), [(0, 30), (7 * MS, 30), (1_000 * MS, 40)]);
    assert_eq!(bytes(1), [(0, 60), (1_000 * MS, 40)]);
}

#[test]
fn keeps_backward_time_in_open_bin() {
    let results = run(&[
        client(5 * MS, 1, 1).data(10),
        client(6 * MS, 11, 1).data(20),
        client(6 * MS - 1, 31, 1).data(30),
        client(6 * MS + 1, 61, 1).data(40),
    ]);
    let series = results.series(0, true, 0);
    let bytes: Vec<_> = series
        .iter()
        .map(|(at, bin)| (*at, bin.data_bytes))
        .collect();
    assert_eq!(bytes, [(5 * MS, 10), (6 * MS, 90)]);
}

#[test]
fn accepts_widths_that_do_not_divide_each_other() {
    let odd = Settings {
        bin_widths_ns: vec![7, 10, 1],
        time_series_width_ns: 3,
        ..settings()
    };
    let segments: Vec<_> = (0..40u32)
        .map(|i| client(u64::from(i), 1 + i, 1).data(1))
        .collect();
    let results = run_with(&segments, [0, 0], &odd);
    results.check_consistency(3);
    let counts = |width| -> Vec<u64> {
        let series = results.series(0, true, width);
        series.iter().map(|(_, bin)| bin.data_bytes).collect()
    };
    assert_eq!(counts(0), [7, 7, 7, 7, 7, 5]);
    assert_eq!(counts(1), [10; 4]);
    assert_eq!(counts(2), [1; 40]);
    let series = &results.flows[0].upload.time_series;
    assert_eq!((series.width_ns, series.bins.len()), (3, 14));
}

/// A packet every 10 ms: 64 bins of 8 ms each cover the 400 ms.
#[test]
fn resolution_is_independent_of_other_flows() {
    let slow = (0..40u32).map(|i| client(u64::from(i) * 10 * MS, 1 + i, 1).data(1));
    let others = |count: u16| (0..count).map(|port| client(0, 1, 1).data(10).port(2_000 + port));
    let width_ms = |count| {
        let segments: Vec<_> = others(count).chain(slow.clone()).collect();
        let mut results = run(&segments);
        let last = results.flows.pop().unwrap();
        assert_eq!(last.upload.data.packets, 40);
        last.upload.time_series.width_ns / MS
    };
    assert_eq!([0, 1, 50].map(width_ms), [8; 3]);
}

#[test]
fn bounds_time_series() {
    let segments: Vec<_> = (0..1_000u32)
        .map(|i| client(u64::from(i) * MS, 1 + i, 1).data(1))
        .collect();
    let results = run(&segments);
    let series = &results.flows[0].upload.time_series;
    assert_eq!((series.width_ns, series.bins.len()), (16 * MS, 63));
    assert!(series.bins[..62].iter().all(|bin| bin.data_bytes == 16));
    // The bin has the window that the first packet advertised.
    assert_eq!(results.flows[0].download.time_series.bins.len(), 1);
}
