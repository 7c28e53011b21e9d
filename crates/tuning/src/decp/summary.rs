// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a sample and of a whole run: JSON for programs and lines of text for people.

use super::sampler::SampledConnection;
use crate::decp::model::{Change, Estimate, Phase};
use longhaul_stats::fairness::jain;
use longhaul_units::{BitRate, Time};
use serde::Serialize;
use std::{collections::HashMap, fmt, net::SocketAddr};

/// One sample, as a JSON line.
#[derive(Debug, Serialize)]
pub(super) struct SampleRecord {
    /// Seconds since the start.
    pub(super) time_s: f64,
    /// Whether caps hold fast connections back.
    pub(super) capping: bool,
    /// Connections that match, and how many of them send in bulk.
    pub(super) connections: usize,
    pub(super) bulk: usize,
    /// Connections that have a cap now.
    pub(super) capped: usize,
    /// Greatest recent and current delivery rate of all connections together.
    pub(super) capacity_bps: f64,
    pub(super) delivered_bps: f64,
    /// Rate that caps leave to each connection; absent where no connection is above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fair_share_bps: Option<f64>,
    /// Standing queue, and the queue that caps aim at, as shares of the BDP.
    pub(super) queue: f64,
    pub(super) headroom: f64,
    /// Fastest rate over slowest.
    pub(super) fastest_to_slowest: f64,
    /// Number of caps that the controller changes after this sample.
    pub(super) changes: usize,
    pub(super) windows: Vec<Window>,
}

/// One connection in a sample.
#[derive(Debug, Serialize)]
pub(super) struct Window {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Segments; the receiver's window if that is smaller.
    pub(super) window_segments: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cap_segments: Option<u32>,
    pub(super) rtt_us: u32,
    /// Rate of the payload delivered since the previous sample.
    pub(super) rate_bps: f64,
    pub(super) retransmits: u32,
    pub(super) bulk: bool,
}

/// The whole run.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) seconds: f64,
    /// Connections that sent in bulk for at least a tenth of the longest bulk time of any.
    pub(super) connections: usize,
    /// Payload of all connections together, while they were observed.
    pub(super) bytes: u64,
    pub(super) rate_bps: f64,
    /// Jain's index of, and ratio between, the rates of those connections over their time in bulk; 1 of a single one.
    pub(super) jain_index: f64,
    pub(super) slowest_to_fastest: f64,
    pub(super) retransmits: u64,
    pub(super) caps_set: u64,
    pub(super) caps_removed: u64,
    pub(super) capping_s: f64,
}

/// Totals of a run, updated with each sample.
#[derive(Default)]
pub(super) struct Summarizer {
    totals: HashMap<u64, ConnectionTotals>,
    last: Time,
    caps_set: u64,
    caps_removed: u64,
    capping: Time,
}

#[derive(Default)]
struct ConnectionTotals {
    delivered: u32,
    retransmits: u32,
    bytes: u64,
    retransmitted: u64,
    bulk: Time,
    rate_bps: f64,
    capped: bool,
}

impl Summarizer {
    /// Adds one sample and the changes that follow from it; returns its record.
    pub(super) fn add(
        &mut self,
        now: Time,
        samples: &[SampledConnection],
        estimate: Estimate,
        changes: &[Change],
    ) -> SampleRecord {
        let passed = now.since(self.last);
        self.last = now;
        for one in samples {
            let totals = self
                .totals
                .entry(one.observation.id)
                .or_insert_with(|| ConnectionTotals::new(one));
            totals.update(one, passed);
            match (totals.capped, one.observation.cap.is_some()) {
                (false, true) => self.caps_set += 1,
                (true, false) => self.caps_removed += 1,
                _ => {}
            }
            totals.capped = one.observation.cap.is_some();
        }
        if estimate.phase == Phase::Level {
            self.capping += passed;
        }
        self.describe(now, samples, estimate, changes)
    }

    fn describe(
        &self,
        now: Time,
        samples: &[SampledConnection],
        estimate: Estimate,
        changes: &[Change],
    ) -> SampleRecord {
        let windows = samples.iter().map(|one| Window {
            local: one.connection.local,
            remote: one.connection.remote,
            window_segments: one.observation.window_segments,
            cap_segments: one.observation.cap,
            rtt_us: one.connection.rtt_us,
            rate_bps: self.totals[&one.observation.id].rate_bps,
            retransmits: one.connection.retransmits,
            bulk: one.observation.bulk,
        });
        let fair_share_bps = estimate.level * 8.0;
        SampleRecord {
            time_s: now.as_secs_f64(),
            capping: estimate.phase == Phase::Level,
            connections: samples.len(),
            bulk: estimate.bulk,
            capped: samples
                .iter()
                .filter(|one| one.observation.cap.is_some())
                .count(),
            capacity_bps: estimate.capacity * 8.0,
            delivered_bps: estimate.delivered * 8.0,
            fair_share_bps: (fair_share_bps.is_finite() && fair_share_bps > 0.0)
                .then_some(fair_share_bps),
            queue: estimate.queue,
            headroom: estimate.headroom,
            fastest_to_slowest: estimate.spread,
            changes: changes.len(),
            windows: windows.collect(),
        }
    }

    /// Returns the summary of the run so far.
    pub(super) fn summary(&self, now: Time) -> Summary {
        let longest = self.totals.values().map(|totals| totals.bulk).max();
        // A connection that was busy only briefly is not a stream.
        let least = Time::from_nanos(longest.unwrap_or(Time::ZERO).as_nanos() / 10);
        let is_stream =
            |totals: &&ConnectionTotals| totals.bulk > Time::ZERO && totals.bulk >= least;
        let bulk = || self.totals.values().filter(is_stream);
        let rates: Vec<f64> = bulk()
            .map(|totals| totals.bytes as f64 / totals.bulk.as_secs_f64())
            .collect();
        let bytes: u64 = self.totals.values().map(|totals| totals.bytes).sum();
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        Summary {
            seconds: now.as_secs_f64(),
            connections: rates.len(),
            bytes,
            rate_bps: bytes as f64 * 8.0 / now.as_secs_f64().max(1e-9),
            jain_index: jain(&rates).unwrap_or(1.0),
            slowest_to_fastest: if fastest > 0.0 {
                slowest / fastest
            } else {
                1.0
            },
            retransmits: self
                .totals
                .values()
                .map(|totals| totals.retransmitted)
                .sum(),
            caps_set: self.caps_set,
            caps_removed: self.caps_removed,
            capping_s: self.capping.as_secs_f64(),
        }
    }
}

impl ConnectionTotals {
    fn new(one: &SampledConnection) -> Self {
        Self {
            delivered: one.observation.delivered_segments,
            retransmits: one.observation.retransmits,
            ..Self::default()
        }
    }

    fn update(&mut self, one: &SampledConnection, passed: Time) {
        let observation = &one.observation;
        let segments = observation.delivered_segments.wrapping_sub(self.delivered);
        let bytes = u64::from(segments) * u64::from(observation.mss_bytes);
        self.bytes += bytes;
        self.retransmitted += u64::from(observation.retransmits.wrapping_sub(self.retransmits));
        self.rate_bps = bytes as f64 * 8.0 / passed.as_secs_f64().max(1e-9);
        (self.delivered, self.retransmits) =
            (observation.delivered_segments, observation.retransmits);
        if observation.bulk {
            self.bulk += passed;
        }
    }
}

fn rate(bps: f64) -> String {
    BitRate::measured(bps as u64)
}

impl fmt::Display for SampleRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:6.1} s  {} of {} connections capped, delivering {} of {}, queue {:.0}%, fastest {:.1} × slowest",
            self.time_s,
            self.capped,
            self.connections,
            rate(self.delivered_bps),
            rate(self.capacity_bps),
            self.queue * 100.0,
            self.fastest_to_slowest,
        )
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cap = self
            .cap_segments
            .map_or_else(|| "-".to_owned(), |cap| cap.to_string());
        write!(
            f,
            "{:>22} → {:<22} {:>8} {cap:>8} {:>7.1} ms {:>12}",
            self.local.to_string(),
            self.remote.to_string(),
            self.window_segments,
            f64::from(self.rtt_us) / 1e3,
            rate(self.rate_bps).to_string(),
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} s: {} over {} connections, Jain {:.3}, slowest/fastest {:.2}, {} retransmitted; \
             {} caps set, {} of them removed before the end, capping for {:.1} s",
            self.seconds,
            rate(self.rate_bps),
            self.connections,
            self.jain_index,
            self.slowest_to_fastest,
            self.retransmits,
            self.caps_set,
            self.caps_removed,
            self.capping_s,
        )
    }
}
