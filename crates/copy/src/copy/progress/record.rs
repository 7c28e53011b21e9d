// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record of a copy, as JSON and as text.

use super::plan::Plan;
use crate::protocol::report::StreamStats;
use longhaul_scheduling::Verdict;
use longhaul_units::{BitRate, Bytes, Time};
use serde::{Serialize, Serializer};
use std::fmt;

/// Record of a copy, as JSON and as text.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Record {
    /// Entries found so far, and bytes in their files.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// Whether the scan is complete.
    pub(super) scanned: bool,
    pub(super) unchanged: u64,
    pub(super) copied: u64,
    /// Entries of a kind that the options leave out.
    pub(super) skipped: u64,
    pub(crate) failed: u64,
    /// Entries that were removed at the source before they were read.
    pub(crate) vanished: u64,
    pub(super) removed: u64,
    /// Bytes that were at the target already, that were sent, and that were made durable.
    pub(super) present_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) durable_bytes: u64,
    /// Bytes sent a second time, on another stream, near the end.
    pub(super) duplicate_bytes: u64,
    pub(super) seconds: f64,
    pub(super) average_bps: u64,
    /// Rate in the last seconds; not in the final record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining_s: Option<f64>,
    /// Streams open now; in the final record, the maximum.
    pub(super) open_streams: u32,
    pub(super) rtt_us: u32,
    pub(super) retransmitted_segments: u64,
    pub(super) retransmitted_bytes: u64,
    #[serde(serialize_with = "limited_by")]
    pub(super) limited_by: Option<Verdict>,
    /// Actions that a copy would perform, in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Plan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workers: Option<WorkerTotals>,
    /// Statistics of each stream; only in the final record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) streams: Option<Vec<StreamRecord>>,
    /// Bytes at the target, of all bytes.
    #[serde(skip)]
    pub(super) at_target_bytes: u64,
}

/// Statistics of one stream.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StreamRecord {
    duration_s: f64,
    acked_bytes: u64,
    retransmitted_bytes: u64,
    rtt_us: u32,
}

impl From<StreamStats> for StreamRecord {
    fn from(stats: StreamStats) -> Self {
        let StreamStats {
            duration_s,
            acked_bytes,
            retransmitted_bytes,
            rtt_us,
        } = stats;
        Self {
            duration_s,
            acked_bytes,
            retransmitted_bytes,
            rtt_us,
        }
    }
}

#[allow(clippy::ref_option, reason = "as serde calls it")]
fn limited_by<S: Serializer>(verdict: &Option<Verdict>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct LimitedBy<'a> {
        bottleneck: &'a str,
        evidence: &'a str,
    }
    let limited_by = verdict.as_ref().map(|verdict| LimitedBy {
        bottleneck: verdict.bottleneck.name(),
        evidence: &verdict.evidence,
    });
    limited_by.serialize(to)
}

/// Totals of the workers before the first session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WorkerTotals {
    /// Workers of this process.
    pub(crate) count: usize,
    /// Work of all processes. Null if another process removed the job before this one read the totals.
    #[serde(flatten)]
    pub(crate) job: JobTotals,
    pub(crate) seconds: f64,
}

/// Extents, failed extents and bytes of the workers of all processes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct JobTotals {
    pub(crate) extents: Option<u64>,
    pub(crate) failed: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

impl Record {
    /// Combines the records of several workers. Of all extents, `left` bytes remain and `done` bytes are finished, by the
    /// workers of any process.
    pub(crate) fn of_workers(workers: Vec<Self>, left: u64, done: u64) -> Self {
        let slowest = workers.iter().filter(|record| record.limited_by.is_some());
        let slowest = slowest.min_by_key(|record| record.current_bps);
        let limited_by = slowest.and_then(|record| record.limited_by.clone());
        let mut all = Self {
            limited_by,
            bytes: left + done,
            ..Self::default()
        };
        for record in workers {
            all.add(&record);
        }
        all.at_target_bytes = all.at_target_bytes.max(done).min(all.bytes);
        let rate = all.current_bps.filter(|rate| *rate > 0);
        all.remaining_s =
            rate.map(|rate| (all.bytes - all.at_target_bytes) as f64 * 8.0 / rate as f64);
        all
    }

    /// Sums the records of several sessions, each with entries of its own.
    pub(crate) fn sum(each: Vec<Self>) -> Self {
        let scanned = each.iter().all(|record| record.scanned);
        let of_all = |what: fn(&Self) -> u64| each.iter().map(what).sum();
        let (failed, vanished, removed) = (
            of_all(|record| record.failed),
            of_all(|record| record.vanished),
            of_all(|record| record.removed),
        );
        let bytes = of_all(|record| record.bytes);
        Self {
            scanned,
            failed,
            vanished,
            removed,
            ..Self::of_workers(each, bytes, 0)
        }
    }

    fn add(&mut self, record: &Self) {
        self.unchanged += record.unchanged;
        self.copied += record.copied;
        self.skipped += record.skipped;
        self.entries += record.entries;
        self.present_bytes += record.present_bytes;
        self.sent_bytes += record.sent_bytes;
        self.duplicate_bytes += record.duplicate_bytes;
        self.durable_bytes += record.durable_bytes;
        self.seconds = self.seconds.max(record.seconds);
        self.average_bps += record.average_bps;
        self.current_bps = self
            .current_bps
            .into_iter()
            .chain(record.current_bps)
            .reduce(|a, b| a + b);
        self.open_streams += record.open_streams;
        self.rtt_us = self.rtt_us.max(record.rtt_us);
        self.retransmitted_segments += record.retransmitted_segments;
        self.retransmitted_bytes += record.retransmitted_bytes;
        self.at_target_bytes += record.at_target_bytes;
    }

    /// Returns the record of a dry run, which performed nothing.
    pub(crate) fn with_plan(self, plan: Plan) -> Self {
        Self {
            copied: 0,
            removed: 0,
            limited_by: None,
            plan: Some(plan),
            ..self
        }
    }

    /// Returns the bytes that are not at the target yet.
    pub(super) fn remaining_bytes(&self) -> Option<u64> {
        self.bytes.checked_sub(self.at_target_bytes)
    }

    /// Returns the progress, from 0 to 1.
    pub(crate) fn fraction_done(&self) -> f64 {
        (self.at_target_bytes as f64 / self.bytes.max(1) as f64).min(1.0)
    }

    /// Describes the amount of data and entries done, of all.
    pub(crate) fn amount(&self) -> String {
        let (at, all) = (
            Bytes::new(self.at_target_bytes.min(self.bytes)),
            Bytes::new(self.bytes),
        );
        let done = self.unchanged + self.copied + self.skipped + self.failed;
        let more = if self.scanned { "" } else { " found so far" };
        let left = self
            .remaining_s
            .filter(|left| *left > 0.0)
            .map(|left| format!(", about {} left", Time::from_secs(left.ceil() as u64)));
        format!(
            "{at} of {all}, {done} of {}{more}{}",
            count(self.entries, "entry", "entries"),
            left.unwrap_or_default()
        )
    }

    /// Describes the rates and the streams.
    pub(crate) fn speed(&self) -> String {
        let rate = BitRate::measured;
        let now = self.current_bps.map(|now| format!("now {}, ", rate(now)));
        let rtt = Time::from_micros(self.rtt_us.into());
        let rtt = (self.rtt_us > 0).then(|| format!(", RTT {rtt}"));
        format!(
            "{}{} on average; {}{}, {} retransmitted",
            now.unwrap_or_default(),
            rate(self.average_bps),
            count(self.open_streams.into(), "stream", "streams"),
            rtt.unwrap_or_default(),
            count(self.retransmitted_segments, "segment", "segments"),
        )
    }

    /// Describes the bottleneck, if it is known.
    pub(crate) fn limit(&self) -> Option<String> {
        let verdict = self.limited_by.as_ref()?;
        Some(format!("limited by {verdict}"))
    }
}

impl Record {
    /// Writes the number of entries. After workers, the last session finds theirs unchanged, so it cannot tell copied
    /// entries from unchanged ones.
    fn write_entries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (copied, unchanged) = (self.copied, self.unchanged);
        match self.workers {
            Some(_) => {
                let all = count(copied + unchanged, "entry", "entries");
                write!(f, "{all} copied or unchanged, ")
            }
            None => write!(f, "{copied} copied, {unchanged} unchanged, "),
        }
    }

    fn write_sent(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, seconds) = (self.sent_bytes, self.seconds);
        if bytes == 0 {
            return write!(f, "no data sent in {seconds:.1} s");
        }
        let rate = (bytes as f64 * 8.0 / seconds.max(1e-9)) as u64;
        let (bytes, rate) = (Bytes::new(bytes), BitRate::measured(rate));
        write!(f, "{bytes} of data in {seconds:.1} s ({rate})")
    }
}

/// Writes the result of a copy.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            Some(plan) => write!(f, "{plan}; {} unchanged", self.unchanged)?,
            None => {
                self.write_entries(f)?;
                self.write_sent(f)?;
            }
        }
        for (count, what) in [
            (self.skipped, "skipped"),
            (self.failed, "failed"),
            (self.vanished, "vanished"),
            (self.removed, "removed"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if let Some(totals) = &self.workers {
            let workers = count(totals.count as u64, "worker", "workers");
            write!(f, "\n{workers}, {:.1} s of the total", totals.seconds)?;
            if let (Some(extents), Some(bytes)) = (totals.job.extents, totals.job.bytes) {
                let (extents, bytes) = (count(extents, "extent", "extents"), Bytes::new(bytes));
                write!(f, "; {extents} with {bytes} of all commands")?;
            }
        }
        match self.limit() {
            Some(limit) => write!(f, "\n{limit}"),
            None => Ok(()),
        }
    }
}

fn count(number: u64, record: &str, many: &str) -> String {
    match number {
        1 => format!("1 {record}"),
        _ => format!("{number} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_scheduling::Endpoint;

    #[test]
    fn shows_the_work_of_all_commands_after_workers() {
        let record = |job| Record {
            copied: 1,
            unchanged: 9,
            sent_bytes: 108_000_000,
            seconds: 8.0,
            workers: Some(WorkerTotals {
                count: 1,
                job,
                seconds: 7.0,
            }),
            ..Record::default()
        };
        let known = record(JobTotals {
            extents: Some(14),
            failed: Some(0),
            bytes: Some(216_000_000),
        });
        insta::assert_snapshot!(known, @r"
        10 entries copied or unchanged, 108 MB of data in 8.0 s (108 Mbit/s)
        1 worker, 7.0 s of the total; 14 extents with 216 MB of all commands
        ");
        let json = serde_json::to_value(&known).unwrap();
        assert_eq!(json["workers"]["bytes"], 216_000_000);
        let unknown = record(JobTotals::default());
        insta::assert_snapshot!(unknown, @r"
        10 entries copied or unchanged, 108 MB of data in 8.0 s (108 Mbit/s)
        1 worker, 7.0 s of the total
        ");
        let json = serde_json::to_value(&unknown).unwrap();
        assert_eq!(json["workers"]["bytes"], serde_json::Value::Null);
    }

    #[test]
    fn json_has_the_bottleneck_and_the_streams() {
        let stream = StreamStats {
            duration_s: 1.5,
            acked_bytes: 2,
            retransmitted_bytes: 3,
            rtt_us: 4,
        };
        let record = Record {
            limited_by: Some(Verdict::silent(Endpoint::Target, 7)),
            streams: Some(vec![stream.into()]),
            ..Record::default()
        };
        let json = serde_json::to_string(&record).unwrap();
        let limited_by = r#""limited_by":{"bottleneck":"peer","evidence":"#;
        assert!(json.contains(limited_by), "{json}");
        let streams =
            r#""streams":[{"duration_s":1.5,"acked_bytes":2,"retransmitted_bytes":3,"rtt_us":4}]"#;
        assert!(json.contains(streams), "{json}");
        let unknown = serde_json::to_string(&Record::default()).unwrap();
        assert!(unknown.contains(r#""limited_by":null"#), "{unknown}");
    }
}
