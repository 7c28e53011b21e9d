// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a direction counts, and the records that it tells.

use hdrhistogram::Histogram;
use longhaul_netem::{Batch, Delivery, Drop, Line};
use longhaul_packet::super_packet::SuperPacket;
use longhaul_units::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// Counters of one direction, owned by its thread.
#[derive(Debug)]
pub(super) struct Counters {
    link: String,
    direction: Direction,
    start: Time,
    packets: u64,
    segments: u64,
    bytes: u64,
    writes: u64,
    delivered_segments: u64,
    delivered_bytes: u64,
    drops: Drops,
    pub(super) duplicated: u64,
    corrupted: u64,
    /// Packets that are not IP or whose GSO headers make no sense.
    pub(super) malformed: u64,
    /// Packets that found the memory bound reached.
    pub(super) no_memory: u64,
    refused: u64,
    /// What the tap could not record, if there is one.
    pub(super) tap_missed: Option<DroppedRecords>,
    lateness: Histogram<u64>,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// From the left end to the right end.
    Forward,
    /// From the right end to the left end.
    Backward,
}

impl Direction {
    /// As the flags and the terminal call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

/// Lost segments by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Drops {
    /// The loss process.
    pub(crate) loss: u64,
    /// A full queue.
    pub(crate) overflow: u64,
    /// CoDel or RED.
    pub(crate) queue_rule: u64,
    /// ACK thinning or pacing.
    pub(crate) ack_rule: u64,
}

/// Segments that are not in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DroppedRecords {
    /// Before the queue.
    pub(crate) arrivals: u64,
    /// At the end.
    pub(crate) departures: u64,
}

/// How late segments were handed on, against the time at which the model said that they were due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lateness {
    /// Half of them were at most so late, in microseconds.
    pub(crate) median_us: f64,
    /// 99 % of them.
    pub(crate) p99_us: f64,
    /// All of them.
    pub(crate) max_us: f64,
}

/// The state of one direction: one JSON line an interval, totals since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "link")]
pub(crate) struct Snapshot {
    /// The link's name.
    pub(crate) link: String,
    /// Which way.
    pub(crate) direction: Direction,
    /// Seconds since the start.
    pub(crate) seconds: f64,
    /// Packets read, super-packets counting as one.
    pub(crate) packets: u64,
    /// Segments in them.
    pub(crate) segments: u64,
    /// Bytes of all segments, from their IP headers on.
    pub(crate) bytes: u64,
    /// Segments handed on.
    pub(crate) delivered_segments: u64,
    /// Bytes handed on.
    pub(crate) delivered_bytes: u64,
    /// Writes that handed them on.
    pub(crate) writes: u64,
    /// Lost segments by cause.
    pub(crate) drops: Drops,
    /// Segments sent twice.
    pub(crate) duplicated: u64,
    /// Segments handed on with a wrong bit.
    pub(crate) corrupted: u64,
    /// Packets that made no sense.
    pub(crate) malformed: u64,
    /// Packets lost to the memory bound.
    pub(crate) no_memory: u64,
    /// Packets that the kernel refused to take.
    pub(crate) refused: u64,
    /// Bytes that wait now.
    pub(crate) queue_bytes: u64,
    /// Segments that wait now.
    pub(crate) queue_segments: usize,
    /// How long the first of them has waited.
    pub(crate) queue_delay_us: f64,
    /// Segments on the wire.
    pub(crate) in_flight: usize,
    /// Segments that the tap could not record; absent without one.
    #[serde(
        rename = "tap_missed",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) tap_missed: Option<DroppedRecords>,
    /// Timing accuracy so far.
    pub(crate) lateness: Lateness,
}

/// A minute: no delivery is later than that and still a delivery.
const LATENESS_MAX_NANOS: u64 = 60_000_000_000;

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drops = self.drops;
        write!(
            f,
            "{} segments came, {} went; lost {} by loss, {} by overflow, {} by the rule, {} ACKs; queue {}, {:.1} ms",
            self.segments,
            self.delivered_segments,
            drops.loss,
            drops.overflow,
            drops.queue_rule,
            drops.ack_rule,
            longhaul_units::Bytes::new(self.queue_bytes),
            self.queue_delay_us / 1_000.0
        )
    }
}

impl Counters {
    pub(super) fn new(link: &str, direction: Direction, start: Time) -> Self {
        let lateness = Histogram::new_with_bounds(1, LATENESS_MAX_NANOS, 2);
        Self {
            link: link.to_owned(),
            direction,
            start,
            packets: 0,
            segments: 0,
            bytes: 0,
            writes: 0,
            delivered_segments: 0,
            delivered_bytes: 0,
            drops: Drops::default(),
            duplicated: 0,
            corrupted: 0,
            malformed: 0,
            no_memory: 0,
            refused: 0,
            tap_missed: None,
            lateness: lateness.expect("1 to 60 s with two digits is a valid range"),
        }
    }

    pub(super) fn count_arrival(&mut self, layout: &SuperPacket) {
        self.packets += 1;
        self.segments += u64::from(layout.segments());
        self.bytes += layout.wire_len();
    }

    pub(super) fn count_drop(&mut self, cause: Drop) {
        match cause {
            Drop::Loss => self.drops.loss += 1,
            Drop::Overflow => self.drops.overflow += 1,
            Drop::Aqm => self.drops.queue_rule += 1,
            Drop::AckFiltering => self.drops.ack_rule += 1,
        }
    }

    pub(super) fn count_delivery(
        &mut self,
        layout: &SuperPacket,
        batch: &Batch,
        taken: bool,
        now: Time,
    ) {
        if !taken {
            self.refused += 1;
            return;
        }
        self.writes += 1;
        self.delivered_segments += batch.segments.len() as u64;
        self.delivered_bytes += layout.run_len(batch.segments.clone());
        self.corrupted += u64::from(batch.corrupt.is_some());
        self.lateness
            .saturating_record(now.since(batch.due).as_nanos().max(1));
    }

    pub(super) fn snapshot(&self, now: Time, line: &Line) -> Snapshot {
        Snapshot {
            link: self.link.clone(),
            direction: self.direction,
            seconds: now.since(self.start).as_secs_f64(),
            packets: self.packets,
            segments: self.segments,
            bytes: self.bytes,
            delivered_segments: self.delivered_segments,
            delivered_bytes: self.delivered_bytes,
            writes: self.writes,
            drops: self.drops,
            duplicated: self.duplicated,
            corrupted: self.corrupted,
            malformed: self.malformed,
            no_memory: self.no_memory,
            refused: self.refused,
            queue_bytes: line.backlog_bytes(),
            queue_segments: line.backlog_segments(),
            queue_delay_us: micros(line.queue_delay(now).as_nanos()),
            in_flight: line.in_flight(),
            tap_missed: self.tap_missed,
            lateness: self.lateness(),
        }
    }

    fn lateness(&self) -> Lateness {
        let quantile_us = |quantile| micros(self.lateness.value_at_quantile(quantile));
        Lateness {
            median_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            max_us: micros(self.lateness.max()),
        }
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

/// A direction as it is now.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DirectionState {
    pub(super) link: String,
    pub(super) direction: Direction,
    /// Each key with its value in force.
    pub(super) settings: Vec<(String, String)>,
    /// None before the first interval is over.
    pub(super) counters: Option<Snapshot>,
}

impl DirectionState {
    /// The counters' record with the settings in it.
    pub(super) fn to_json(&self) -> serde_json::Result<Value> {
        let mut record = match &self.counters {
            Some(counters) => serde_json::to_value(counters)?,
            None => json!({"record": "link", "link": self.link, "direction": self.direction}),
        };
        let settings = self.settings.iter();
        let settings = settings.map(|(key, value)| (key.clone(), Value::from(value.as_str())));
        record["settings"] = Value::Object(settings.collect());
        Ok(record)
    }
}

impl fmt::Display for DirectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.link, self.direction.name())?;
        for (key, value) in &self.settings {
            write!(f, "\n  {key:<12}{value}")?;
        }
        match &self.counters {
            Some(counters) => write!(f, "\n  {counters}"),
            None => f.write_str("\n  no counters yet"),
        }
    }
}

/// The last record of a direction: what became of its segments and how accurate the times were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "selfcheck")]
pub(crate) struct TimingReport {
    /// The link's name.
    pub(crate) link: String,
    /// Which way.
    pub(crate) direction: Direction,
    /// How due segments were handed on.
    pub(crate) delivery: String,
    /// Segments that came in.
    pub(crate) segments: u64,
    /// Segments handed on.
    pub(crate) delivered_segments: u64,
    /// Bytes handed on.
    pub(crate) delivered_bytes: u64,
    /// Lost segments by cause.
    pub(crate) drops: Drops,
    /// Packets lost before the link read them: the interface's transmit queue was full because
    /// the machine was too slow.
    pub(crate) device_overflow: u64,
    /// Packets lost to the memory bound.
    pub(crate) no_memory: u64,
    /// Segments that the tap could not record; absent without one.
    #[serde(
        rename = "tap_missed",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) tap_missed: Option<DroppedRecords>,
    /// Timing accuracy.
    pub(crate) lateness: Lateness,
}

impl TimingReport {
    pub(super) fn new(last: &Snapshot, delivery: Delivery, device_overflow: u64) -> Self {
        Self {
            link: last.link.clone(),
            direction: last.direction,
            delivery: delivery.to_string(),
            segments: last.segments,
            delivered_segments: last.delivered_segments,
            delivered_bytes: last.delivered_bytes,
            drops: last.drops,
            device_overflow,
            no_memory: last.no_memory,
            tap_missed: last.tap_missed,
            lateness: last.lateness,
        }
    }
}

impl fmt::Display for TimingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lateness, drops, ..
        } = self;
        write!(
            f,
            "link {} {}: {} of {} segments delivered ({}), lost {} by loss, {} to a full queue, \
             {} to the queue rule, {} to ACK rules, {} before the link, {} for want of memory; \
             late by {:.0} µs median, {:.0} µs p99, {:.0} µs at most",
            self.link,
            self.direction.name(),
            self.delivered_segments,
            self.segments,
            self.delivery,
            drops.loss,
            drops.overflow,
            drops.queue_rule,
            drops.ack_rule,
            self.device_overflow,
            self.no_memory,
            lateness.median_us,
            lateness.p99_us,
            lateness.max_us
        )
    }
}
