// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of a flow as texts.

use super::history::{packets_per_ack, rtt_ns};
use longhaul_flow::bin::Bin;
use longhaul_units::{BitRate, Time};

/// Formats the bytes of one second as a rate.
pub(super) fn format_rate(bytes: u64) -> String {
    BitRate::measured(bytes.saturating_mul(8))
}

pub(super) fn format_packets_per_ack(bin: &Bin) -> String {
    packets_per_ack(bin).map_or("–".to_owned(), |count| format!("{count:.1}"))
}

pub(super) fn format_rtt(bin: &Bin) -> String {
    rtt_ns(bin).map_or("–".to_owned(), |ns| Time::from_nanos(ns).to_string())
}
