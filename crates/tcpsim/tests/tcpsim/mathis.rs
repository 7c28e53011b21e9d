// SPDX-License-Identifier: MIT OR Apache-2.0
//! Goodput of a Reno flow over the emulator's link model against theory: MSS/RTT · C/√p (Mathis, Semke, Mahdavi, Ott,
//! "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997).
//!
//! For random loss their table 1 gives C = 1.31 with an ACK for each segment and 0.93 with delayed ACKs. The
//! formula leaves out the round trip without growth after each halving. It also leaves out the fraction of a
//! segment that a window can't send. Both cost more where the window is small.
//!
//! The goodput may therefore be below the formula by a tenth, or by a fifth where the formula's window is below 15
//! segments. It may be above the formula by a tenth, because 400 random losses a row leave some chance.

use super::reno::{AckPolicy, MSS, run};
use longhaul_units::Time;
use std::fmt::Write;

fn predict_goodput(c: f64, rtt: Time, p: f64) -> f64 {
    f64::from(MSS) * 8.0 / rtt.as_secs_f64() * c / p.sqrt()
}

fn assert_near(ratio: f64, window: f64, table: &str) {
    let low = if window < 15.0 { 0.8 } else { 0.9 };
    assert!((low..=1.1).contains(&ratio), "{table}");
}

/// Adds a row to the table and compares it with the formula.
fn add_row(table: &mut String, policy: AckPolicy, c: f64, rtt_ms: u64, p: f64) {
    let rtt = Time::from_millis(rtt_ms);
    let (window, segments) = (c / p.sqrt(), (LOSSES / p) as u64);
    let outcome = run(
        rtt,
        &longhaul_netem::grammar::share_text(p),
        policy,
        window,
        segments,
    );
    let predicted = predict_goodput(c, rtt, p);
    let ratio = outcome.goodput_bps / predicted;
    let (measured, predicted) = (outcome.goodput_bps / 1e6, predicted / 1e6);
    let timeouts = outcome.timeouts;
    writeln!(
        table,
        "{rtt_ms:>4} ms  {:>6}%  {measured:>8.3}  {predicted:>8.3}  {ratio:.3}  {timeouts}",
        p * 100.0
    )
    .unwrap();
    assert_near(ratio, window, table);
}

/// Expected number of losses of each run.
const LOSSES: f64 = 400.0;

const HEADER: &str = "    RTT     loss  Mbit/s    Mathis    ratio  time-outs\n";

#[test]
fn reno_follows_mathis_with_an_ack_for_each_segment() {
    let mut table = HEADER.to_owned();
    for rtt_ms in [10, 100, 350] {
        for p in [0.0003, 0.001, 0.01] {
            add_row(&mut table, AckPolicy::Immediate, 1.31, rtt_ms, p);
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn reno_follows_mathis_with_delayed_acks() {
    let mut table = HEADER.to_owned();
    for p in [0.001, 0.01] {
        add_row(&mut table, AckPolicy::Delayed, 0.93, 100, p);
    }
    insta::assert_snapshot!(table);
}
