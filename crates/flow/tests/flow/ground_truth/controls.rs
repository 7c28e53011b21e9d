// SPDX-License-Identifier: MIT OR Apache-2.0
//! The curve of the window names the congestion control.

use super::simulated_flow::{Case, case};
use longhaul_flow::record::{CongestionControl, ControlName, ControlUnknown};
use longhaul_tcpsim::congestion_control::{
    Ack, CongestionControl as Control, Window,
    cubic::Cubic,
    reno::{Reno, additive_increase, slow_start},
};
use longhaul_units::Time;

/// Scalable TCP (Kelly, 2003) as Linux has it.
struct Scalable;

impl Control for Scalable {
    fn init(&mut self, _window: &mut Window, _now: Time) {}

    fn ssthresh(&mut self, window: &Window, _now: Time) -> u32 {
        (window.cwnd - window.cwnd / 8).max(2)
    }

    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack) {
        let left = if window.in_slow_start() {
            slow_start(window, ack.acked)
        } else {
            ack.acked
        };
        additive_increase(window, window.cwnd.min(100), left);
    }
}

/// A window that falls to a quarter, less than any control keeps.
struct Quarter;

impl Control for Quarter {
    fn init(&mut self, _window: &mut Window, _now: Time) {}

    fn ssthresh(&mut self, window: &Window, _now: Time) -> u32 {
        (window.cwnd / 4).max(2)
    }

    fn cong_avoid(&mut self, window: &mut Window, _ack: &Ack) {
        window.cwnd = (window.cwnd + 1).min(130);
    }
}

/// Returns the control as seen beside the sender and in the middle.
fn controls(case: Case) -> [CongestionControl; 2] {
    let truth = case.run();
    [
        truth.flow(),
        truth.flow_before_receiver(Time::from_millis(10)),
    ]
    .map(|flow| flow.upload.congestion_control.expect("long enough"))
}

/// A path of 166 segments with a queue of half of that.
fn queue() -> Case {
    case("20ms", &[("rate", "50mbit"), ("queue", "0.5bdp")], 40.0)
}

fn rare_losses() -> Case {
    case("20ms", &[("rate", "50mbit"), ("loss", "0.05%")], 40.0)
}

#[test]
fn names_reno() {
    for case in [queue(), rare_losses()] {
        for found in controls(case.control(Reno)) {
            assert_eq!(found.name, ControlName::Reno, "{found:?}");
            assert!((found.backoff.unwrap() - 0.5).abs() < 0.03, "{found:?}");
            assert!(
                (found.growth_segments.unwrap() - 1.0).abs() < 0.2,
                "{found:?}"
            );
        }
    }
}

#[test]
fn names_cubic() {
    for case in [queue(), rare_losses()] {
        for found in controls(case.control(Cubic::new(false))) {
            assert_eq!(found.name, ControlName::Cubic, "{found:?}");
            assert!((found.backoff.unwrap() - 0.7).abs() < 0.03, "{found:?}");
        }
    }
}

#[test]
fn names_scalable() {
    let [beside_sender, _] = controls(queue().control(Scalable));
    assert_eq!(
        beside_sender.name,
        ControlName::Scalable,
        "{beside_sender:?}"
    );
    let sentence = beside_sender.describe();
    assert!(
        sentence.starts_with("Congestion control: scalable (the window falls to 0.8"),
        "{sentence}"
    );
}

#[test]
fn names_no_control_that_follows_no_law() {
    for found in controls(rare_losses().control(Quarter)) {
        assert_eq!(
            found.unknown_because,
            Some(ControlUnknown::NoMatch),
            "{found:?}"
        );
        assert!(
            found.describe().starts_with("Congestion control unknown"),
            "{}",
            found.describe()
        );
    }
}

#[test]
fn names_no_control_that_does_not_limit() {
    let pauses = case("20ms", &[("rate", "50mbit")], 20.0)
        .writes((0..100).map(|n| (0.2 * f64::from(n), 60)));
    let window = case("20ms", &[("rate", "50mbit")], 20.0).receive_window(64 << 10);
    for case in [pauses, window] {
        for found in controls(case.control(Cubic::new(false))) {
            assert_eq!(
                found.unknown_because,
                Some(ControlUnknown::NotGoverned),
                "{found:?}"
            );
        }
    }
}

/// A lossless path with an endless queue, on which Reno never leaves slow start.
#[test]
fn names_no_control_without_losses() {
    let endless = case("20ms", &[("rate", "20mbit"), ("queue", "1000bdp")], 4.0);
    for found in controls(endless.control(Reno)) {
        assert_eq!(
            found.unknown_because,
            Some(ControlUnknown::FewReductions),
            "{found:?}"
        );
    }
}
