// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a copy stands, from what both ends have told so far.

use super::{
    record::{MoverTotals, Record},
    retry::SessionGain,
};
use crate::protocol::{
    control::Role,
    report::{Progress, StreamStats},
};
use longhaul_scheduling::{End, Metrics, Verdict};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Reports that *now* spans: some four seconds.
const SAMPLES_MAX: usize = 8;

/// An end that says nothing for so long is stuck, or its path is: it reports twice a second.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// What is known of a copy, over all its conversations.
#[derive(Debug)]
pub(crate) struct CopyProgress {
    started_at: Instant,
    source: RecentSamples,
    target: RecentSamples,
    /// Bytes sent, sent twice and made durable in conversations before this one.
    sent_before: u64,
    repeated_before: u64,
    durable_before: u64,
    /// Things made in the pass before this one, over what is the same.
    made_before: u64,
    /// The last reports of the conversation before this one, which finds anew what there is.
    source_before: Progress,
    target_before: Progress,
    gain: SessionGain,
    /// The most streams that were open at a time.
    streams_max: u32,
    movers: Option<MoverTotals>,
}

/// The last reports of one end.
#[derive(Debug, Default)]
struct RecentSamples(VecDeque<(Instant, Progress)>);

impl CopyProgress {
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            started_at: began,
            source: RecentSamples::default(),
            target: RecentSamples::default(),
            sent_before: 0,
            repeated_before: 0,
            durable_before: 0,
            made_before: 0,
            source_before: Progress::default(),
            target_before: Progress::default(),
            gain: SessionGain::default(),
            streams_max: 0,
            movers: None,
        }
    }

    /// Movers brought something before the first conversation.
    pub(crate) fn add_movers(&mut self, brought: MoverTotals, record: &Record) {
        self.movers = Some(brought);
        self.sent_before += record.sent_bytes;
        self.repeated_before += record.repeated_bytes;
        self.durable_before += record.durable_bytes;
    }

    /// Another conversation begins: both ends count from 0 again.
    pub(crate) fn start_session(&mut self) {
        self.sent_before += self.source.last().sent;
        self.repeated_before += self.source.last().repeated;
        self.durable_before += self.target.last().durable;
        self.gain.start_session();
        // A conversation that broke before it began says nothing.
        if !self.source.0.is_empty() {
            let found = self.merge_with_previous(&self.source.last());
            (self.source_before, self.target_before) = (found, self.target.last());
        }
        (self.source, self.target) = (RecentSamples::default(), RecentSamples::default());
    }

    /// All was brought, and another pass finds it.
    pub(crate) fn start_pass(&mut self) {
        self.made_before += self.source.last().made;
        self.start_session();
        (self.source_before, self.target_before) = (Progress::default(), Progress::default());
    }

    pub(crate) fn receive(&mut self, role: Role, progress: Progress, now: Instant) {
        self.streams_max = self.streams_max.max(progress.measured.network.streams);
        self.gain.receive(role, &progress);
        match role {
            Role::Source => self.source.push(progress, now),
            Role::Target => self.target.push(progress, now),
        }
    }

    /// What this conversation brought that those before it did not.
    pub(crate) fn gained(&self) -> u64 {
        self.gain.value()
    }

    /// As it stands while it goes on.
    pub(crate) fn snapshot(&self, now: Instant) -> Record {
        let mut record = self.record(now);
        let rate = self.target.rate();
        record.now_bps = rate;
        let left = record.remaining_bytes().filter(|_| record.scanned);
        record.left_s = left
            .zip(rate)
            .and_then(|(bytes, rate)| (rate > 0).then(|| bytes as f64 * 8.0 / rate as f64));
        let recent = || Verdict::of(&self.source.recent(), &self.target.recent());
        record.limited_by = self.silent_endpoint(now).or_else(recent);
        record
    }

    /// All of it, when it is over.
    pub(crate) fn finish(&self, now: Instant, streams: Vec<StreamStats>) -> Record {
        let mut record = self.record(now);
        record.open_streams = self.streams_max;
        record.streams = Some(streams.into_iter().map(Into::into).collect());
        let measured = |heard: &RecentSamples| heard.last().measured.into();
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
            same: source.same.saturating_sub(self.made_before),
            made: self.made_before + source.made,
            left_out: source.left_out,
            failed: source.failed.max(target.failed),
            removed: source.removed,
            there_bytes: source.present,
            sent_bytes: self.sent_before + source.sent,
            durable_bytes: durable,
            repeated_bytes: self.repeated_before + source.repeated,
            seconds,
            average_bps: (durable as f64 * 8.0 / seconds.max(1e-9)) as u64,
            open_streams: network.streams,
            rtt_us: network.rtt_us,
            retransmitted_segments: network.again_segments,
            retransmitted_bytes: network.again_bytes,
            movers: self.movers.clone(),
            // What came in earlier conversations the source counts as there.
            at_target_bytes: found.present + target.durable,
            ..Record::default()
        }
    }

    /// What there is and what of it is there. Until this conversation has found everything again, that is what the
    /// one before knew, if it is more.
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

    fn silent_endpoint(&self, now: Instant) -> Option<Verdict> {
        let ends = [(End::Source, &self.source), (End::Target, &self.target)];
        ends.into_iter().find_map(|(end, heard)| {
            let (at, _) = heard.0.back()?;
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

    /// Bits a second that became durable; `None` before there are two reports.
    fn rate(&self) -> Option<u64> {
        let ((first_at, first), (last_at, last)) = (self.0.front()?, self.0.back()?);
        let seconds = last_at.duration_since(*first_at).as_secs_f64();
        let bytes = last.durable.saturating_sub(first.durable);
        (seconds > 0.0).then(|| (bytes as f64 * 8.0 / seconds) as u64)
    }

    fn recent(&self) -> Metrics {
        let first = self.0.front().map(|(_, first)| first.measured.into());
        let last = Metrics::from(self.last().measured);
        last.since(&first.unwrap_or_default())
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
    fn rate_and_time_left_are_of_what_became_durable() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut standing = CopyProgress::new(began);
        standing.receive(Role::Source, source(10_000_000, 1_000_000), after(1));
        standing.receive(Role::Target, target(1_000_000), after(1));
        assert_eq!(standing.snapshot(after(1)).now_bps, None);
        standing.receive(Role::Target, target(3_000_000), after(2));
        let now = standing.snapshot(after(4));
        assert_eq!(now.now_bps, Some(16_000_000));
        assert_eq!(now.average_bps, 6_000_000);
        assert_eq!(now.left_s, Some(3.0));
        insta::assert_snapshot!(now.amount(), @"4 MB of 10 MB, 0 of 40 things, about 3 s left");
        insta::assert_snapshot!(now.speed(), @"now 16 Mbit/s, 6 Mbit/s on average; 0 streams, 0 segments sent again");
    }

    #[test]
    fn another_conversation_adds_to_the_ones_before() {
        let began = Instant::now();
        let mut standing = CopyProgress::new(began);
        standing.receive(Role::Target, target(5), began);
        assert_eq!(standing.gained(), 5);
        standing.start_session();
        assert_eq!(standing.gained(), 0);
        standing.receive(Role::Source, source(12, 5), began);
        standing.receive(Role::Target, target(7), began);
        let over = standing.finish(began + Duration::from_secs(1), Vec::new());
        assert_eq!((over.durable_bytes, over.there_bytes), (12, 5));
        assert_eq!(over.remaining_bytes(), Some(0));
    }

    #[test]
    fn broken_conversation_keeps_what_was_found() {
        let began = Instant::now();
        let mut standing = CopyProgress::new(began);
        standing.receive(Role::Source, source(10_000_000, 1_000_000), began);
        standing.receive(Role::Target, target(3_000_000), began);
        let amount = |standing: &CopyProgress| standing.snapshot(began).amount();
        let before = amount(&standing);
        assert_eq!(before, "4 MB of 10 MB, 0 of 40 things");
        // Two that say nothing, and one that begins to scan.
        for _ in 0..2 {
            standing.start_session();
            assert_eq!(amount(&standing), before);
        }
        let scanning = Progress {
            entries: 2,
            bytes: 7,
            scanned: false,
            ..Progress::default()
        };
        standing.receive(Role::Source, scanning, began);
        assert_eq!(amount(&standing), before);
        standing.receive(Role::Source, source(11_000_000, 4_000_000), began);
        assert_eq!(amount(&standing), "4 MB of 11 MB, 0 of 40 things");
    }

    #[test]
    fn nothing_left_has_no_time_left() {
        let record = Record {
            left_s: Some(0.0),
            ..Record::default()
        };
        assert!(!record.amount().contains("left"), "{}", record.amount());
    }

    #[test]
    fn shares_are_one_copy_and_a_last_pass_finds_what_the_first_made() {
        let began = Instant::now();
        let standing = |bytes, made| {
            let mut standing = CopyProgress::new(began);
            let first = Progress {
                made,
                ..source(bytes, 0)
            };
            standing.receive(Role::Source, first, began);
            standing.receive(Role::Target, target(bytes), began);
            standing.start_pass();
            let last = Progress {
                same: made,
                failed: 1,
                ..source(bytes, bytes)
            };
            standing.receive(Role::Source, last, began);
            standing.finish(began + Duration::from_secs(2), Vec::new())
        };
        let all = Record::sum(vec![standing(100, 3), standing(50, 4)]);
        assert_eq!((all.made, all.same, all.failed), (7, 0, 2));
        assert_eq!(
            (all.bytes, all.durable_bytes, all.remaining_bytes()),
            (150, 150, Some(0))
        );
        assert!(all.scanned);
    }

    #[test]
    fn a_copy_that_sent_nothing_has_no_rate() {
        let standing = CopyProgress::new(Instant::now());
        let over = standing.finish(standing.started_at, Vec::new());
        assert_eq!(
            over.to_string(),
            "0 copied, 0 there already, no data sent in 0.0 s"
        );
    }

    #[test]
    fn an_end_that_is_silent_is_what_it_waits_for() {
        let began = Instant::now();
        let mut standing = CopyProgress::new(began);
        assert_eq!(standing.snapshot(began + 2 * SILENCE_MIN).limited_by, None);
        standing.receive(Role::Target, target(5), began);
        let before = SILENCE_MIN - Duration::from_millis(1);
        assert_eq!(standing.snapshot(began + before).limited_by, None);
        let said = standing.snapshot(began + SILENCE_MIN).limit().unwrap();
        assert!(
            said.contains("the target has said nothing for 5 s"),
            "{said}"
        );
    }
}
