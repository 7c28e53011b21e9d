// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a copy, computed from the reports of both endpoints.

use super::{
    record::{Record, WorkerTotals},
    retry::SessionGain,
};
use crate::protocol::{
    control::Role,
    report::{Progress, StreamStats},
};
use longhaul_scheduling::{Endpoint, Metrics, Verdict};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Number of reports in the window for current rates: about four seconds.
const SAMPLES_MAX: usize = 8;

/// Time without a report after which an endpoint counts as silent. Endpoints report twice a second, so an endpoint or its
/// path is stuck then.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// Progress of a copy over all its sessions.
#[derive(Debug)]
pub(crate) struct CopyProgress {
    started_at: Instant,
    source: RecentSamples,
    target: RecentSamples,
    /// Bytes sent, sent twice and made durable in earlier sessions.
    sent_before: u64,
    duplicate_before: u64,
    durable_before: u64,
    /// Entries copied in the previous pass. The current pass counts these as unchanged.
    copied_before: u64,
    /// Last reports of the previous session. A new session scans from the start.
    source_before: Progress,
    target_before: Progress,
    gain: SessionGain,
    /// Largest number of streams that were open at the same time.
    streams_max: u32,
    workers: Option<WorkerTotals>,
}

/// Latest reports of one endpoint.
#[derive(Debug, Default)]
struct RecentSamples(VecDeque<(Instant, Progress)>);

impl CopyProgress {
    pub(crate) fn new(started_at: Instant) -> Self {
        Self {
            started_at,
            source: RecentSamples::default(),
            target: RecentSamples::default(),
            sent_before: 0,
            duplicate_before: 0,
            durable_before: 0,
            copied_before: 0,
            source_before: Progress::default(),
            target_before: Progress::default(),
            gain: SessionGain::default(),
            streams_max: 0,
            workers: None,
        }
    }

    /// Adds the data that workers copied before the first session.
    #[cfg(feature = "leases")]
    pub(crate) fn add_workers(&mut self, totals: WorkerTotals, record: &Record) {
        self.workers = Some(totals);
        self.sent_before += record.sent_bytes;
        self.duplicate_before += record.duplicate_bytes;
        self.durable_before += record.durable_bytes;
    }

    /// Starts a new session, in which both endpoints count from 0.
    pub(crate) fn start_session(&mut self) {
        self.sent_before += self.source.last().sent;
        self.duplicate_before += self.source.last().duplicate;
        self.durable_before += self.target.last().durable;
        self.gain.start_session();
        // A session that broke before its first report adds nothing.
        if !self.source.0.is_empty() {
            let found = self.merge_with_previous(&self.source.last());
            (self.source_before, self.target_before) = (found, self.target.last());
        }
        (self.source, self.target) = (RecentSamples::default(), RecentSamples::default());
    }

    /// Starts another pass, in which a new session finds the copied data at the target.
    pub(crate) fn start_pass(&mut self) {
        self.copied_before += self.source.last().copied;
        self.start_session();
        (self.source_before, self.target_before) = (Progress::default(), Progress::default());
    }

    /// Adds a report.
    pub(crate) fn receive(&mut self, role: Role, progress: Progress, now: Instant) {
        self.streams_max = self.streams_max.max(progress.measured.network.streams);
        self.gain.receive(role, &progress);
        match role {
            Role::Source => self.source.push(progress, now),
            Role::Target => self.target.push(progress, now),
        }
    }

    /// Returns the bytes and entries that this session added to those of earlier sessions.
    pub(crate) fn gained(&self) -> u64 {
        self.gain.value()
    }

    /// Returns the current record of a running copy.
    pub(crate) fn snapshot(&self, now: Instant) -> Record {
        let mut record = self.record(now);
        let rate = self.target.rate(now);
        record.current_bps = rate;
        let remaining = record.remaining_bytes().filter(|_| record.scanned);
        record.remaining_s = remaining
            .zip(rate)
            .and_then(|(bytes, rate)| (rate > 0).then(|| bytes as f64 * 8.0 / rate as f64));
        let recent = || Verdict::of(&self.source.recent(), &self.target.recent());
        record.limited_by = self.silent_endpoint(now).or_else(recent);
        record
    }

    /// Returns the final record.
    pub(crate) fn finish(&self, now: Instant, streams: Vec<StreamStats>) -> Record {
        let mut record = self.record(now);
        record.open_streams = self.streams_max;
        record.streams = Some(streams.into_iter().map(Into::into).collect());
        let measured = |samples: &RecentSamples| samples.last().measured;
        record.limited_by = Verdict::of(&measured(&self.source), &measured(&self.target));
        record
    }

    fn record(&self, now: Instant) -> Record {
        let (source, target) = (self.source.last(), self.target.last());
        let found = self.merge_with_previous(&source);
        let network = source.measured.network;
        let seconds = now.duration_since(self.started_at).as_secs_f64();
        let durable = self.durable_before + target.durable;
        Record {
            entries: found.entries,
            bytes: found.bytes,
            scanned: found.scanned,
            unchanged: source.unchanged.saturating_sub(self.copied_before),
            copied: self.copied_before + source.copied,
            skipped: source.skipped,
            failed: source.failed.max(target.failed),
            vanished: source.vanished,
            removed: source.removed,
            present_bytes: source.present,
            sent_bytes: self.sent_before + source.sent,
            durable_bytes: durable,
            duplicate_bytes: self.duplicate_before + source.duplicate,
            seconds,
            average_bps: (durable as f64 * 8.0 / seconds.max(1e-9)) as u64,
            open_streams: network.streams,
            rtt_us: network.rtt_us,
            retransmitted_segments: network.retransmitted_segments,
            retransmitted_bytes: network.retransmitted_bytes,
            workers: self.workers.clone(),
            // The source counts data of earlier sessions as present.
            at_target_bytes: found.present + target.durable,
            ..Record::default()
        }
    }

    /// Returns the totals of the scan and the data at the target. Until the scan of this session is complete, these are at
    /// least the totals of the previous session.
    fn merge_with_previous(&self, now: &Progress) -> Progress {
        let (before, durable) = (&self.source_before, self.target_before.durable);
        if now.scanned {
            return *now;
        }
        Progress {
            entries: now.entries.max(before.entries),
            bytes: now.bytes.max(before.bytes),
            scanned: before.scanned,
            present: now.present.max(before.present + durable),
            ..*now
        }
    }

    /// Returns the verdict about an endpoint that has sent no report recently.
    fn silent_endpoint(&self, now: Instant) -> Option<Verdict> {
        let endpoints = [
            (Endpoint::Source, &self.source),
            (Endpoint::Target, &self.target),
        ];
        endpoints.into_iter().find_map(|(end, samples)| {
            let (at, _) = samples.0.back()?;
            let silence = now.saturating_duration_since(*at);
            (silence >= SILENCE_MIN).then(|| Verdict::silent(end, silence.as_secs()))
        })
    }
}

impl RecentSamples {
    fn push(&mut self, progress: Progress, now: Instant) {
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, progress));
    }

    fn last(&self) -> Progress {
        self.0.back().map(|(_, last)| *last).unwrap_or_default()
    }

    /// Returns the rate at which data became durable, in bits per second; `None` with fewer than two reports, and 0 after
    /// some time without any.
    fn rate(&self, now: Instant) -> Option<u64> {
        let ((first_at, first), (last_at, last)) = (self.0.front()?, self.0.back()?);
        if now.saturating_duration_since(*last_at) >= SILENCE_MIN {
            return Some(0);
        }
        let seconds = last_at.duration_since(*first_at).as_secs_f64();
        let bytes = last.durable.saturating_sub(first.durable);
        (seconds > 0.0).then(|| (bytes as f64 * 8.0 / seconds) as u64)
    }

    /// Returns the measurements over the window of recent reports.
    fn recent(&self) -> Metrics {
        let first = self.0.front().map(|(_, first)| first.measured);
        self.last().measured.since(&first.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(bytes: u64, there: u64) -> Progress {
        Progress {
            entries: 40,
            bytes,
            scanned: true,
            present: there,
            ..Progress::default()
        }
    }

    fn target(durable: u64) -> Progress {
        Progress {
            durable,
            ..Progress::default()
        }
    }

    #[test]
    fn rate_and_time_left_count_durable_bytes() {
        let started_at = Instant::now();
        let after = |seconds| started_at + Duration::from_secs(seconds);
        let mut progress = CopyProgress::new(started_at);
        progress.receive(Role::Source, source(10_000_000, 1_000_000), after(1));
        progress.receive(Role::Target, target(1_000_000), after(1));
        assert_eq!(progress.snapshot(after(1)).current_bps, None);
        progress.receive(Role::Target, target(3_000_000), after(2));
        let now = progress.snapshot(after(4));
        assert_eq!(now.current_bps, Some(16_000_000));
        assert_eq!(now.average_bps, 6_000_000);
        assert_eq!(now.remaining_s, Some(3.0));
        insta::assert_snapshot!(now.amount(), @"4 MB of 10 MB, 0 of 40 entries, about 3 s left");
        insta::assert_snapshot!(now.speed(), @"now 16 Mbit/s, 6 Mbit/s on average; 0 streams, 0 segments retransmitted");
        // The path is down.
        let later = progress.snapshot(after(7));
        assert_eq!((later.current_bps, later.remaining_s), (Some(0), None));
        insta::assert_snapshot!(later.amount(), @"4 MB of 10 MB, 0 of 40 entries");
    }

    #[test]
    fn sums_bytes_over_sessions() {
        let started_at = Instant::now();
        let mut progress = CopyProgress::new(started_at);
        progress.receive(Role::Target, target(5), started_at);
        assert_eq!(progress.gained(), 5);
        progress.start_session();
        assert_eq!(progress.gained(), 0);
        progress.receive(Role::Source, source(12, 5), started_at);
        progress.receive(Role::Target, target(7), started_at);
        let record = progress.finish(started_at + Duration::from_secs(1), Vec::new());
        assert_eq!((record.durable_bytes, record.present_bytes), (12, 5));
        assert_eq!(record.remaining_bytes(), Some(0));
    }

    #[test]
    fn totals_survive_a_broken_session() {
        let started_at = Instant::now();
        let mut progress = CopyProgress::new(started_at);
        progress.receive(Role::Source, source(10_000_000, 1_000_000), started_at);
        progress.receive(Role::Target, target(3_000_000), started_at);
        let amount = |progress: &CopyProgress| progress.snapshot(started_at).amount();
        let before = amount(&progress);
        assert_eq!(before, "4 MB of 10 MB, 0 of 40 entries");
        // Two sessions without a report, and one that starts to scan.
        for _ in 0..2 {
            progress.start_session();
            assert_eq!(amount(&progress), before);
        }
        let scanning = Progress {
            entries: 2,
            bytes: 7,
            scanned: false,
            ..Progress::default()
        };
        progress.receive(Role::Source, scanning, started_at);
        assert_eq!(amount(&progress), before);
        progress.receive(Role::Source, source(11_000_000, 4_000_000), started_at);
        assert_eq!(amount(&progress), "4 MB of 11 MB, 0 of 40 entries");
    }

    #[test]
    fn hides_the_time_left_when_nothing_is_left() {
        let record = Record {
            remaining_s: Some(0.0),
            ..Record::default()
        };
        assert!(!record.amount().contains("left"), "{}", record.amount());
    }

    #[test]
    fn sums_shares_and_counts_copied_entries_once_over_two_passes() {
        let started_at = Instant::now();
        let progress = |bytes, made| {
            let mut progress = CopyProgress::new(started_at);
            let first = Progress {
                copied: made,
                ..source(bytes, 0)
            };
            progress.receive(Role::Source, first, started_at);
            progress.receive(Role::Target, target(bytes), started_at);
            progress.start_pass();
            let last = Progress {
                unchanged: made,
                failed: 1,
                ..source(bytes, bytes)
            };
            progress.receive(Role::Source, last, started_at);
            progress.finish(started_at + Duration::from_secs(2), Vec::new())
        };
        let all = Record::sum(vec![progress(100, 3), progress(50, 4)]);
        assert_eq!((all.copied, all.unchanged, all.failed), (7, 0, 2));
        assert_eq!(
            (all.bytes, all.durable_bytes, all.remaining_bytes()),
            (150, 150, Some(0))
        );
        assert!(all.scanned);
    }

    #[test]
    fn shows_no_rate_without_data() {
        let progress = CopyProgress::new(Instant::now());
        let record = progress.finish(progress.started_at, Vec::new());
        assert_eq!(
            record.to_string(),
            "0 copied, 0 unchanged, no data sent in 0.0 s"
        );
    }

    #[test]
    fn silent_endpoint_is_the_bottleneck() {
        let started_at = Instant::now();
        let mut progress = CopyProgress::new(started_at);
        assert_eq!(
            progress.snapshot(started_at + 2 * SILENCE_MIN).limited_by,
            None
        );
        progress.receive(Role::Target, target(5), started_at);
        let before = SILENCE_MIN - Duration::from_millis(1);
        assert_eq!(progress.snapshot(started_at + before).limited_by, None);
        let limit = progress.snapshot(started_at + SILENCE_MIN).limit().unwrap();
        assert!(
            limit.contains("no report from the target for 5 s"),
            "{limit}"
        );
    }
}
