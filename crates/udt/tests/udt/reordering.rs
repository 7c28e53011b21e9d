// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers over paths that reorder packets: late packets are not lost ones.

use crate::testbed::{Bed, bbr, native};
use longhaul_udt::{ControlFactory, Counts};
use longhaul_units::Time;

/// Returns the share of a path of 40 Mbit/s and 50 ms that a flow gets within 20 s, its packet
/// counters, and the number of packets that the path lost.
fn share(control: ControlFactory<'_>, settings: &[(&str, &str)]) -> (f64, Counts, u64) {
    let path = [&[("rate", "40mbit"), ("delay", "25ms")], settings].concat();
    let mut bed = Bed::with_control(control, &path, &[]);
    let all = |_, to: &mut [u8]| to.len();
    let (_, read) = bed.stream(Time::from_secs(20), all, |_, _| {});
    let capacity_bytes = 40e6 / 8.0 * 20.0 * 1456.0 / 1500.0;
    let share = read as f64 / capacity_bytes;
    (share, bed.ends[0].counts(), bed.wires[0].lost)
}

/// Asserts that a flow gets this share, and that hardly any retransmission is needless.
fn assert_share(control: ControlFactory<'_>, settings: &[(&str, &str)], share_min: f64) {
    let (share, counts, lost) = share(control, settings);
    assert!(share > share_min, "{settings:?}: {share} {counts:?}");
    assert!(
        counts.retransmitted <= lost + 10,
        "{settings:?}: {lost} lost, {counts:?}"
    );
}

#[test]
fn late_packets_neither_slow_down_bbr_nor_are_retransmitted() {
    for jitter in ["1ms,reorder", "5ms,reorder", "10ms,reorder"] {
        for loss in ["0%", "0.1%"] {
            assert_share(&bbr, &[("jitter", jitter), ("loss", loss)], 0.95);
        }
    }
    for reorder in ["1%:5ms", "1%:20ms"] {
        assert_share(&bbr, &[("reorder", reorder)], 0.95);
    }
}

/// The native control is slow where packets are lost, with or without reordering. A false loss at the start would end
/// slow start, after which it takes a minute to fill the path.
#[test]
fn late_packets_are_no_losses_to_the_native_control() {
    for jitter in ["1ms,reorder", "5ms,reorder", "10ms,reorder"] {
        assert_share(&native, &[("jitter", jitter)], 0.5);
    }
}
