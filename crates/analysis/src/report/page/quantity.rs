// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities of the report, with their units and three significant digits.

use longhaul_report::{count::plural, metric::Metric};

/// "7.05 Gbit/s".
pub(super) fn bits_a_second(rate_bps: f64) -> String {
    Metric::of("rate_bps").print(rate_bps)
}

/// "24 GB".
pub(super) fn bytes(count: u64) -> String {
    Metric::of("x_bytes").print(count as f64)
}

/// "200 ms".
pub(super) fn span(ns: u64) -> String {
    Metric::of("x_s").print(ns as f64 / 1e9)
}

/// "1.2 M".
pub(super) fn count(count: u64) -> String {
    Metric::of("x").print(count as f64)
}

/// "2.1".
pub(super) fn ratio(value: f64) -> String {
    Metric::of("x_ratio").print(value)
}

/// Bits a second of so many bytes in so many ns; 0 in no time.
pub(super) fn rate_bps(bytes: u64, ns: u64) -> f64 {
    match ns {
        0 => 0.0,
        _ => bytes as f64 * 8e9 / ns as f64,
    }
}

/// "1 packet", "2 packets".
pub(super) fn of(number: u64, thing: &str) -> String {
    format!("{} {}", count(number), plural(number, thing))
}
