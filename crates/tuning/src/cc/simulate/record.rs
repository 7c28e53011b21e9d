// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a simulation in progress. Times are simulated seconds since the start.

use longhaul_tcpsim::{congestion_control::INFINITE_SSTHRESH, sender::Backoff};
use serde::Serialize;

/// Record, written as one JSON line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum Record {
    /// State of a flow at the end of an interval.
    Flow(FlowRecord),
    /// Reduction of a congestion window.
    Backoff(BackoffRecord),
}

#[derive(Debug, Serialize)]
pub(super) struct FlowRecord {
    pub(super) time_s: f64,
    pub(super) flow: usize,
    pub(super) cwnd_packets: u32,
    /// Absent before the first loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ssthresh_packets: Option<u32>,
    /// Payload acknowledged in this interval, bits a second.
    pub(super) goodput_bps: f64,
    pub(super) srtt_s: f64,
    pub(super) in_flight_packets: u64,
    /// Packets retransmitted in this interval.
    pub(super) retransmitted_packets: u64,
    /// Bytes queued at the bottleneck, of all flows.
    pub(super) queue_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct BackoffRecord {
    time_s: f64,
    flow: usize,
    /// Congestion window before the reduction.
    cwnd_packets: u32,
    ssthresh_packets: u32,
    timeout: bool,
}

impl BackoffRecord {
    pub(super) fn new(flow: usize, backoff: &Backoff) -> Self {
        Self {
            time_s: backoff.at.as_secs_f64(),
            flow,
            cwnd_packets: backoff.cwnd,
            ssthresh_packets: backoff.ssthresh,
            timeout: backoff.timeout,
        }
    }
}

/// Returns the slow-start threshold; `None` if it is infinite.
pub(super) fn threshold(ssthresh: u32) -> Option<u32> {
    (ssthresh < INFINITE_SSTHRESH).then_some(ssthresh)
}
