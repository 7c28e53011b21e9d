// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a simulation.

use longhaul_stats::fairness::jain;
use longhaul_tcpsim::{sender::Counters, simulation::Simulation};
use longhaul_units::{BitRate, Time};
use serde::Serialize;
use std::fmt;

/// Results of the whole run.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename = "summary")]
pub(super) struct Summary {
    simulated_s: f64,
    goodput_bps: f64,
    /// Share of the rate that the bottleneck leaves for payload.
    utilisation_ratio: f64,
    /// Jain's index over the flows; absent with a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    jain_index: Option<f64>,
    /// End of the first interval with nine tenths of the rate that the bottleneck leaves for payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_to_90_percent_s: Option<f64>,
    loss_drops: u64,
    overflow_drops: u64,
    aqm_drops: u64,
    flows: Vec<FlowSummary>,
    /// Whether whole trains of segments were simulated at once.
    batched: bool,
    segments: u64,
    wall_s: f64,
    /// Segments simulated in a second of wall-clock time.
    segments_per_second: f64,
}

/// Results of one flow.
#[derive(Debug, Serialize)]
pub(super) struct FlowSummary {
    cc: String,
    bytes: u64,
    goodput_bps: f64,
    segments: u64,
    retransmitted: u64,
    backoffs: u64,
    timeouts: u64,
    acks: u64,
}

/// Bytes and retransmissions of one interval.
pub(super) struct IntervalTotals {
    pub(super) bytes: u64,
    pub(super) retransmitted: u64,
}

impl FlowSummary {
    pub(super) fn new(cc: String) -> Self {
        Self {
            cc,
            bytes: 0,
            goodput_bps: 0.0,
            segments: 0,
            retransmitted: 0,
            backoffs: 0,
            timeouts: 0,
            acks: 0,
        }
    }

    /// Updates the totals; returns the difference to the last call.
    pub(super) fn update(&mut self, bytes: u64, counters: &Counters) -> IntervalTotals {
        let new = IntervalTotals {
            bytes: bytes - self.bytes,
            retransmitted: counters.retransmitted - self.retransmitted,
        };
        self.bytes = bytes;
        self.segments = counters.sent;
        self.retransmitted = counters.retransmitted;
        self.backoffs = counters.backoffs;
        self.timeouts = counters.timeouts;
        self.acks = counters.acks;
        new
    }
}

impl Summary {
    /// `payload_rate` is what the bottleneck leaves for payload, in bits a second.
    pub(super) fn new(
        mut flows: Vec<FlowSummary>,
        simulation: &Simulation,
        payload_rate: f64,
        full_at: Option<Time>,
        wall: Time,
    ) -> Self {
        let simulated_s = simulation.now().as_secs_f64();
        for flow in &mut flows {
            flow.goodput_bps = flow.bytes as f64 * 8.0 / simulated_s;
        }
        let rates: Vec<f64> = flows.iter().map(|flow| flow.goodput_bps).collect();
        let goodput_bps = rates.iter().sum();
        let segments = flows.iter().map(|flow| flow.segments).sum();
        let drops = simulation.drops();
        Self {
            simulated_s,
            goodput_bps,
            utilisation_ratio: goodput_bps / payload_rate,
            jain_index: jain(&rates),
            time_to_90_percent_s: full_at.map(Time::as_secs_f64),
            loss_drops: drops.loss,
            overflow_drops: drops.overflow,
            aqm_drops: drops.aqm,
            flows,
            batched: simulation.moves_trains(),
            segments,
            wall_s: wall.as_secs_f64(),
            segments_per_second: segments as f64 / wall.as_secs_f64(),
        }
    }
}

fn rate(bps: f64) -> String {
    BitRate::measured(bps as u64)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "flow  cc          goodput         segments  retransmitted  backoffs   timeouts"
        )?;
        for (number, flow) in self.flows.iter().enumerate() {
            let goodput = rate(flow.goodput_bps).to_string();
            writeln!(
                f,
                "{number:>4}  {:<10}  {goodput:<12} {:>11}  {:>13}  {:>8}  {:>9}",
                flow.cc, flow.segments, flow.retransmitted, flow.backoffs, flow.timeouts
            )?;
        }
        let utilisation = self.utilisation_ratio * 100.0;
        write!(
            f,
            "all flows {}, {utilisation:.1} % of the payload that the bottleneck carries",
            rate(self.goodput_bps)
        )?;
        if let Some(jain) = self.jain_index {
            write!(f, ", Jain's index {jain:.3}")?;
        }
        match self.time_to_90_percent_s {
            Some(seconds) => writeln!(f, "; 90 % first after {seconds} s")?,
            None => writeln!(f, "; never 90 %")?,
        }
        writeln!(
            f,
            "dropped: {} by loss, {} by queue overflow, {} by the AQM",
            self.loss_drops, self.overflow_drops, self.aqm_drops
        )?;
        let mode = if self.batched {
            "batched"
        } else {
            "per packet"
        };
        writeln!(
            f,
            "{} s simulated in {:.2} s ({mode}): {:.1} million segments a second",
            self.simulated_s,
            self.wall_s,
            self.segments_per_second / 1e6
        )
    }
}
