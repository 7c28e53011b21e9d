// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a direction, and the records made from them.

use hdrhistogram::Histogram;
use longhaul_netem::{Batch, Delivery, DropCause, Line, setting::QueueCapacity};
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
    /// Packets that are not IP or have invalid GSO headers.
    pub(super) malformed: u64,
    /// Packets dropped because the memory was full.
    pub(super) no_memory: u64,
    refused: u64,
    /// Records that the capture dropped, if there is a capture.
    pub(super) capture_dropped: Option<DroppedRecords>,
    lateness: Histogram<u64>,
}

/// Direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// From the left end to the right end.
    Forward,
    /// From the right end to the left end.
    Backward,
}

impl Direction {
    /// Returns the name that the flags and the terminal use.
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
    /// Lost by the loss process.
    pub(crate) loss: u64,
    /// Dropped by a full queue.
    pub(crate) overflow: u64,
    /// Dropped by CoDel or RED.
    pub(crate) aqm: u64,
    /// Dropped by ACK filtering: thinning or pacing.
    pub(crate) ack_filtering: u64,
}

/// Capture records that are not in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DroppedRecords {
    /// Records of arrivals, before the queue.
    pub(crate) arrivals: u64,
    /// Records of departures, at the end of the link.
    pub(crate) departures: u64,
}

/// Lateness of deliveries: time of the write minus the departure time by the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lateness {
    /// Median, µs.
    pub(crate) median_us: f64,
    /// 99th percentile, µs.
    pub(crate) p99_us: f64,
    /// Maximum, µs.
    pub(crate) max_us: f64,
}

/// State of one direction, with totals since the start: one line of JSON for each interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "link")]
pub(crate) struct Snapshot {
    /// The link's name.
    pub(crate) link: String,
    /// Direction that it counts.
    pub(crate) direction: Direction,
    /// Seconds since the start.
    pub(crate) seconds: f64,
    /// Packets read; a super-packet counts as one.
    pub(crate) packets: u64,
    /// Segments in these packets.
    pub(crate) segments: u64,
    /// Bytes of all segments, from their IP headers on.
    pub(crate) bytes: u64,
    /// Segments delivered.
    pub(crate) delivered_segments: u64,
    /// Bytes delivered.
    pub(crate) delivered_bytes: u64,
    /// Writes of deliveries.
    pub(crate) writes: u64,
    /// Lost segments by cause.
    pub(crate) drops: Drops,
    /// Segments delivered twice.
    pub(crate) duplicated: u64,
    /// Segments delivered with a wrong bit.
    pub(crate) corrupted: u64,
    /// Malformed packets.
    pub(crate) malformed: u64,
    /// Packets dropped because the memory was full.
    pub(crate) no_memory: u64,
    /// Segments that the receiver's kernel refused to accept, such as while the interface was down.
    pub(crate) refused: u64,
    /// Packets that the sender's interface dropped before the link read them, because the machine was too slow; `None`
    /// if the interface could not be asked.
    #[serde(default)]
    pub(crate) device_overflow: Option<u64>,
    /// Segments inside the link: those that arrived, and copies, less those that were delivered, dropped or refused.
    #[serde(default)]
    pub(crate) inside: u64,
    /// Bytes in the queue.
    pub(crate) queue_bytes: u64,
    /// Segments in the queue.
    pub(crate) queue_segments: usize,
    /// Time that the first segment in the queue has waited so far, µs.
    pub(crate) queue_delay_us: f64,
    /// Segments in flight.
    pub(crate) in_flight: usize,
    /// Records that the capture dropped; absent without a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capture_dropped: Option<DroppedRecords>,
    /// Lateness of deliveries so far.
    pub(crate) lateness: Lateness,
}

/// Greatest lateness that is recorded: one minute.
const LATENESS_MAX_NANOS: u64 = 60_000_000_000;

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drops = self.drops;
        write!(
            f,
            "{} segments arrived, {} delivered; dropped {} by loss, {} by overflow, {} by AQM, {} by ACK filtering; \
             {} refused, {} inside; {} lost before the link, {} for lack of memory, {} malformed; queue {}, {:.1} ms; \
             late by {:.0} µs median, {:.0} µs p99",
            self.segments,
            self.delivered_segments,
            drops.loss,
            drops.overflow,
            drops.aqm,
            drops.ack_filtering,
            self.refused,
            self.inside,
            number_or_unknown(self.device_overflow),
            self.no_memory,
            self.malformed,
            longhaul_units::Bytes::new(self.queue_bytes),
            self.queue_delay_us / 1_000.0,
            self.lateness.median_us,
            self.lateness.p99_us
        )
    }
}

fn number_or_unknown(count: Option<u64>) -> String {
    count.map_or_else(|| "an unknown number".to_owned(), |count| count.to_string())
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
            capture_dropped: None,
            lateness: lateness.expect("1 to 60 s with two digits is a valid range"),
        }
    }

    pub(super) fn count_arrival(&mut self, layout: &SuperPacket) {
        self.packets += 1;
        self.segments += u64::from(layout.segments());
        self.bytes += layout.wire_len();
    }

    pub(super) fn count_drop(&mut self, cause: DropCause) {
        match cause {
            DropCause::Loss => self.drops.loss += 1,
            DropCause::Overflow => self.drops.overflow += 1,
            DropCause::Aqm => self.drops.aqm += 1,
            DropCause::AckFiltering => self.drops.ack_filtering += 1,
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
            self.refused += batch.segments.len() as u64;
            return;
        }
        self.writes += 1;
        self.delivered_segments += batch.segments.len() as u64;
        self.delivered_bytes += layout.run_len(batch.segments.clone());
        self.corrupted += u64::from(batch.corrupt.is_some());
        self.lateness
            .saturating_record(now.since(batch.due).as_nanos().max(1));
    }

    pub(super) fn snapshot(&self, now: Time, line: &Line, inside: u64) -> Snapshot {
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
            device_overflow: None,
            inside,
            queue_bytes: line.backlog_bytes(),
            queue_segments: line.backlog_segments(),
            queue_delay_us: micros(line.queue_delay(now).as_nanos()),
            in_flight: line.in_flight(),
            capture_dropped: self.capture_dropped,
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

/// Current state of a direction.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DirectionState {
    pub(super) link: String,
    pub(super) direction: Direction,
    /// Keys with their current values.
    pub(super) settings: Vec<(String, String)>,
    /// Queue limit that holds now; `None` at an unlimited rate, which has no queue.
    #[serde(flatten)]
    pub(super) queue_limit: Option<EffectiveQueueLimit>,
    /// Newest counters; `None` before the end of the first interval.
    pub(super) counters: Option<Snapshot>,
}

/// Queue limit that holds now, as a number. A setting in BDPs becomes bytes at the time when it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum EffectiveQueueLimit {
    /// Most bytes that may wait.
    #[serde(rename = "queue_limit_bytes")]
    Bytes(u64),
    /// Most segments that may wait.
    #[serde(rename = "queue_limit_packets")]
    Packets(usize),
}

impl From<QueueCapacity> for EffectiveQueueLimit {
    fn from(capacity: QueueCapacity) -> Self {
        match capacity.bytes {
            u64::MAX => Self::Packets(capacity.packets),
            bytes => Self::Bytes(bytes),
        }
    }
}

impl fmt::Display for EffectiveQueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => longhaul_units::Bytes::new(*bytes).fmt(f),
            Self::Packets(packets) => write!(f, "{packets} packets"),
        }
    }
}

impl DirectionState {
    /// Returns the counters' record with the settings in it.
    pub(super) fn to_json(&self) -> serde_json::Result<Value> {
        let mut record = match &self.counters {
            Some(counters) => serde_json::to_value(counters)?,
            None => json!({"record": "link", "link": self.link, "direction": self.direction}),
        };
        let settings = self.settings.iter();
        let settings = settings.map(|(key, value)| (key.clone(), Value::from(value.as_str())));
        record["settings"] = Value::Object(settings.collect());
        match self.queue_limit {
            Some(EffectiveQueueLimit::Bytes(bytes)) => record["queue_limit_bytes"] = bytes.into(),
            Some(EffectiveQueueLimit::Packets(packets)) => {
                record["queue_limit_packets"] = packets.into();
            }
            None => {}
        }
        Ok(record)
    }
}

/// Columns of the longest key and a space.
const KEY_WIDTH: usize = 17;

impl fmt::Display for DirectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.link, self.direction.name())?;
        for (key, value) in &self.settings {
            write!(f, "\n  {key:<KEY_WIDTH$}{value}")?;
            if let Some(limit) = self.queue_limit.filter(|_| key == "queue") {
                write!(f, " ({limit})")?;
            }
        }
        match &self.counters {
            Some(counters) => write!(f, "\n  {counters}"),
            None => f.write_str("\n  no counters yet"),
        }
    }
}

/// Last record of a direction: what happened to its segments, and the accuracy of the times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "timing_report")]
pub(crate) struct TimingReport {
    /// The link's name.
    pub(crate) link: String,
    /// Direction that it reports.
    pub(crate) direction: Direction,
    /// Grouping of due segments into writes.
    pub(crate) delivery: String,
    /// Segments that arrived.
    pub(crate) segments: u64,
    /// Segments delivered.
    pub(crate) delivered_segments: u64,
    /// Bytes delivered.
    pub(crate) delivered_bytes: u64,
    /// Lost segments by cause.
    pub(crate) drops: Drops,
    /// Segments delivered twice.
    pub(crate) duplicated: u64,
    /// Segments that the receiver's kernel refused to accept.
    pub(crate) refused: u64,
    /// Segments that were still inside the link at its end.
    pub(crate) inside: u64,
    /// Packets lost before the link read them: the interface's transmit queue was full because the machine was too
    /// slow. `None` if that is unknown, because the interface was removed.
    pub(crate) device_overflow: Option<u64>,
    /// Packets that are not IP or have invalid headers. They are not among the segments that arrived.
    pub(crate) malformed: u64,
    /// Packets dropped because the memory was full. They are not among the segments that arrived.
    pub(crate) no_memory: u64,
    /// Whether arrivals have the kernel's time. If not, lateness does not include the time until a packet is read.
    pub(crate) kernel_arrivals: bool,
    /// Records that the capture dropped; absent without a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capture_dropped: Option<DroppedRecords>,
    /// Lateness of deliveries.
    pub(crate) lateness: Lateness,
}

impl TimingReport {
    pub(super) fn new(last: &Snapshot, delivery: Delivery, kernel_arrivals: bool) -> Self {
        Self {
            link: last.link.clone(),
            direction: last.direction,
            delivery: delivery.to_string(),
            segments: last.segments,
            delivered_segments: last.delivered_segments,
            delivered_bytes: last.delivered_bytes,
            drops: last.drops,
            duplicated: last.duplicated,
            refused: last.refused,
            inside: last.inside,
            device_overflow: last.device_overflow,
            malformed: last.malformed,
            no_memory: last.no_memory,
            kernel_arrivals,
            capture_dropped: last.capture_dropped,
            lateness: last.lateness,
        }
    }
}

impl fmt::Display for TimingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lateness, drops, ..
        } = self;
        let before_the_link = number_or_unknown(self.device_overflow);
        let since = if self.kernel_arrivals {
            ""
        } else {
            " after the read"
        };
        write!(
            f,
            "link {} {}: {} of {} segments delivered ({}), {} duplicated, lost {} by loss, {} to a full queue, \
             {} to the AQM, {} to ACK filtering, {} refused, {} still inside; \
             {before_the_link} lost before the link, {} for lack of memory, {} malformed; \
             late{since} by {:.0} µs median, {:.0} µs p99, {:.0} µs at most",
            self.link,
            self.direction.name(),
            self.delivered_segments,
            self.segments,
            self.delivery,
            self.duplicated,
            drops.loss,
            drops.overflow,
            drops.aqm,
            drops.ack_filtering,
            self.refused,
            self.inside,
            self.no_memory,
            self.malformed,
            lateness.median_us,
            lateness.p99_us,
            lateness.max_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_with_queue_limit_reads_back() {
        for limit in [
            None,
            Some(EffectiveQueueLimit::Bytes(125_000)),
            Some(EffectiveQueueLimit::Packets(9)),
        ] {
            let state = DirectionState {
                link: "wan".to_owned(),
                direction: Direction::Forward,
                settings: vec![("queue".to_owned(), "1bdp".to_owned())],
                queue_limit: limit,
                counters: None,
            };
            let text = serde_json::to_string(&state).unwrap();
            let read: DirectionState = serde_json::from_str(&text).unwrap();
            assert_eq!(read.queue_limit, limit, "{text}");
        }
    }
}
