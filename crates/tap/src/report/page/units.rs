// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formatting of quantities with their units and three significant digits.

use longhaul_flow::record::Direction;
use longhaul_report::{count::plural, metric::Metric};

/// Formats a rate: "7.05 Gbit/s".
pub(super) fn bit_rate(rate_bps: f64) -> String {
    Metric::of("rate_bps").format(rate_bps)
}

/// Formats a number of bytes: "24 GB".
pub(super) fn bytes(count: u64) -> String {
    Metric::of("x_bytes").format(count as f64)
}

/// Formats a duration: "200 ms".
pub(super) fn duration(ns: u64) -> String {
    Metric::of("x_s").format(ns as f64 / 1e9)
}

/// Formats a count: "1.2 M".
pub(super) fn count(count: u64) -> String {
    Metric::of("x").format(count as f64)
}

/// Formats a ratio: "2.1".
pub(super) fn ratio(value: f64) -> String {
    Metric::of("x_ratio").format(value)
}

/// Payload, duration and rate of a direction as texts.
pub(super) struct TransferSummary {
    pub(super) payload: String,
    pub(super) duration: String,
    pub(super) rate: String,
    /// Mean rate, bit/s; 0 if the duration is 0.
    pub(super) rate_bps: f64,
}

impl TransferSummary {
    pub(super) fn new(direction: &Direction) -> Self {
        let rate_bps = direction.goodput_bps().unwrap_or(0.0);
        Self {
            payload: bytes(direction.data.unique_bytes),
            duration: duration(direction.transfer_ns().unwrap_or(0)),
            rate: bit_rate(rate_bps),
            rate_bps,
        }
    }
}

/// Formats a count with its noun: "1 packet", "2 packets".
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {}", count(number), plural(number, noun))
}
