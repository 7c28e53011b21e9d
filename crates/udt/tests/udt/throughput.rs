// SPDX-License-Identifier: MIT OR Apache-2.0
//! Share of the path that a flow gets, and the queueing delay of its packets, by rate, round-trip time and loss. The
//! tables of both congestion controls are snapshots.

use crate::testbed::{Bed, bbr, native};
use longhaul_udt::ControlFactory;
use longhaul_units::Time;
use std::fmt::Write as _;

/// Returns the share of the path's capacity that a flow gets, and the mean queueing delay in milliseconds. Both are of
/// the second half of a transfer of 20 s, or of 10 s at 1 Gbit/s, where that is a million packets.
fn share_and_delay_ms(
    control: ControlFactory<'_>,
    rate_mbit: u64,
    rtt_ms: u64,
    loss: &str,
) -> (f64, f64) {
    let path = [
        ("rate", format!("{rate_mbit}mbit")),
        ("delay", format!("{}us", rtt_ms * 500)),
        ("loss", loss.to_owned()),
    ];
    let path = path.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut bed = Bed::with_control(control, &path, &[]);
    let all = |_, to: &mut [u8]| to.len();
    let half = if rate_mbit < 1000 { 10 } else { 5 };
    bed.stream(Time::from_secs(half), all, |_, _| {});
    bed.wires[0].delays = (0, Time::ZERO);
    let (_, second) = bed.stream(Time::from_secs(2 * half), all, |_, _| {});
    let (packets, delays) = bed.wires[0].delays;
    let delay_ms = delays.as_secs_f64() * 1e3 / packets as f64 - rtt_ms as f64 / 2.0;
    let capacity_bytes = rate_mbit as f64 * 1e6 / 8.0 * half as f64 * 1456.0 / 1500.0;
    (second as f64 / capacity_bytes, delay_ms)
}

fn table(control: ControlFactory<'_>) -> String {
    let mut table = String::from(
        "Mbit/s  RTT ms   loss 0   1e-4   1e-3   1e-2   ms queued 0   1e-4   1e-3   1e-2\n",
    );
    for rate in [10, 100, 1000] {
        for rtt in [2, 38, 180] {
            let cells = ["0%", "0.01%", "0.1%", "1%"]
                .map(|loss| share_and_delay_ms(control, rate, rtt, loss));
            write!(table, "{rate:6}  {rtt:6} ").unwrap();
            for (share, _) in cells {
                write!(table, " {share:6.2}").unwrap();
            }
            write!(table, "       ").unwrap();
            for (_, delay_ms) in cells {
                write!(table, " {delay_ms:6.1}").unwrap();
            }
            table.push('\n');
        }
    }
    table
}

#[test]
fn shares_of_the_native_control() {
    insta::assert_snapshot!(table(&native));
}

#[test]
fn shares_of_bbr() {
    insta::assert_snapshot!(table(&bbr));
}
