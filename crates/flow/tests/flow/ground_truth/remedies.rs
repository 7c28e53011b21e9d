// SPDX-License-Identifier: MIT OR Apache-2.0
//! A remedy names the next limit of the flow's own path, from every capture point.

use super::simulated_flow::{Case, case};
use longhaul_tcpsim::congestion_control::cubic::Cubic;
use longhaul_units::{BitRate, Time};

/// Returns the remedies as seen beside the sender, in the middle and beside the receiver.
fn remedies(case: Case) -> [String; 3] {
    let truth = case.run();
    [
        truth.flow(),
        truth.flow_before_receiver(Time::from_millis(5)),
        truth.flow_before_receiver(Time::ZERO),
    ]
    .map(|flow| flow.upload.remedy)
}

/// Returns the rate that follows `before` in `text`, Mbit/s.
fn rate_after(text: &str, before: &str) -> f64 {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{text}"));
    let rate: String = rest
        .trim_start()
        .chars()
        .take_while(|c| *c != 's')
        .collect();
    let rate: BitRate = (rate.replace(['/', ' '], "") + "s")
        .replace("bits", "bit")
        .parse()
        .unwrap();
    rate.bits() as f64 / 1e6
}

#[test]
fn names_what_a_larger_receive_window_allows() {
    for (rate, window) in [("50mbit", 64 << 10), ("1gbit", 256 << 10)] {
        for remedy in remedies(case("20ms", &[("rate", rate)], 5.0).receive_window(window)) {
            let found = rate_after(&remedy, "each 100 KB allow");
            assert!((18.0..=20.0).contains(&found), "{rate}: {remedy}");
        }
    }
}

/// `longhaul plan path --rate 1tbit --rtt 40ms --loss 1%` says 3.55 Mbit/s by its formula for cubic.
#[test]
fn names_what_losses_allow() {
    let path = [("rate", "50mbit"), ("loss", "1%")];
    for remedy in remedies(case("20ms", &path, 20.0).control(Cubic::new(false))) {
        let cubic = rate_after(&remedy, "cubic reaches about");
        assert!((3.2..3.9).contains(&cubic), "{remedy}");
    }
}

#[test]
fn no_larger_window_helps_a_slow_reader_or_a_full_path() {
    let queue = case("20ms", &[("rate", "20mbit"), ("queue", "4bdp")], 20.0);
    for remedy in remedies(queue) {
        assert!(remedy.starts_with("Only a faster path"), "{remedy}");
        assert!(remedy.contains("The queue adds"), "{remedy}");
    }
}
