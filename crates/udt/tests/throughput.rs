// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a flow gets of a path, by rate, round trip and loss: the golden table of the native rate control.

mod testbed;

use std::fmt::Write as _;
use testbed::{Bed, config};
use udt::Mode;
use units::Time;

/// The share of what the path carries that arrives in the second half of so many seconds.
fn share(rate_mbit: u64, rtt_ms: u64, loss: &str, seconds: u64) -> f64 {
    let path = [
        ("rate", format!("{rate_mbit}mbit")),
        ("delay", format!("{}us", rtt_ms * 500)),
        ("loss", loss.to_owned()),
    ];
    let path = path.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut bed = Bed::new(config(Mode::Stream), &path, &[]);
    let half = Time::from_secs(seconds / 2);
    let whole = Time::from_secs(seconds);
    let all = |_, to: &mut [u8]| to.len();
    bed.stream(half, all, |_, _| {});
    let (_, second) = bed.stream(whole, all, |_, _| {});
    let payload = 1456.0 / 1500.0;
    let carried = rate_mbit as f64 * 1e6 / 8.0 * (seconds / 2) as f64 * payload;
    second as f64 / carried
}

#[test]
fn shares_by_rate_round_trip_and_loss() {
    let mut table = String::from("Mbit/s  RTT ms   loss 0   1e-4   1e-3   1e-2\n");
    for rate in [10, 100, 1000] {
        for rtt in [2, 38, 180] {
            write!(table, "{rate:6}  {rtt:6} ").unwrap();
            for loss in ["0%", "0.01%", "0.1%", "1%"] {
                write!(table, " {:6.2}", share(rate, rtt, loss, 20)).unwrap();
            }
            table.push('\n');
        }
    }
    insta::assert_snapshot!(table);
}
