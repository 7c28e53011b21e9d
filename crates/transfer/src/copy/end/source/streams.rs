// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that monitors all streams: their number, their rates, and their statistics.

use super::state::{Source, State};
use crate::protocol::{
    control::Begin,
    message::SourceMsg,
    report::{Report, StreamStats},
};
use longhaul_linux::{clock, tcp_info::TcpInfo};
use longhaul_scheduling::{
    StreamRate,
    streams::{STREAMS_MAX, StreamCount, StreamSample, sees_queue},
};
use longhaul_transport::blocking::Handle;
use longhaul_units::Time;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Interval between samples.
const INTERVAL: Duration = Duration::from_millis(250);

/// State of the stream monitor.
#[derive(Debug, Default)]
struct Seen {
    watched: BTreeMap<u64, Watched>,
    /// Streams at the last sample.
    there: usize,
    deciding: Option<StreamCount>,
}

impl Source {
    /// Monitors the streams until the session ends, and then reports what each carried. If the user set their
    /// number, it does not change.
    pub(super) fn watch_streams(self: Arc<Self>, begin: &Begin) {
        let mut seen = Seen::default();
        let fixed = begin.options.streams_fixed().is_some();
        while !self.shared.is_over() {
            self.shared.sleep(INTERVAL);
            let streams: Vec<(u64, Handle)> = self.shared.read(State::streams);
            self.give_up_ended(&streams);
            let infos = self.look(&mut seen, &streams);
            if !fixed {
                self.decide(&mut seen, &infos);
            }
            self.repeat(&infos);
        }
        let figures = seen.watched.into_values().map(|one| one.figures);
        self.reporter.send(&Report::Streams(figures.collect()));
    }

    /// Removes streams that the peer closed, or that broke, while nothing was written to them. The target
    /// reports what arrived on them, even if it never started to read one. Then their threads end.
    fn give_up_ended(&self, streams: &[(u64, Handle)]) {
        for (number, _) in streams
            .iter()
            .filter(|(_, one)| one.connection().has_ended())
        {
            let carried = self
                .shared
                .update_silent(|state| state.streams.remove(number));
            if carried.is_some() {
                self.orders
                    .put(SourceMsg::StreamAbandoned { stream: *number });
            }
        }
    }

    /// Samples each stream. If their number has changed, divides the pacing rate among them again.
    fn look(&self, seen: &mut Seen, streams: &[(u64, Handle)]) -> BTreeMap<u64, TcpInfo> {
        if seen.there != streams.len() {
            seen.there = streams.len();
            self.tuning.share(streams.iter().map(|(_, stream)| stream));
        }
        let now = clock::now();
        let mut infos = BTreeMap::new();
        for (number, stream) in streams {
            let Some(info) = stream.connection().tcp_info() else {
                continue;
            };
            let watched = seen.watched.entry(*number);
            watched.or_insert_with(|| Watched::new(now)).see(now, &info);
            self.tuning
                .keep_short(stream, info.delivery_rate_bytes_per_s);
            infos.insert(*number, info);
        }
        infos
    }

    /// Returns the maximum bytes still to send, once the scan is complete.
    fn left(&self) -> Option<u64> {
        let now = self.tally.snapshot();
        now.scanned.then(|| now.bytes.saturating_sub(now.sent))
    }

    fn decide(&self, seen: &mut Seen, infos: &BTreeMap<u64, TcpInfo>) {
        let sampled = |info: &&TcpInfo| info.rtt_min_us < u32::MAX;
        let infos: Vec<&TcpInfo> = infos.values().filter(sampled).collect();
        let Some(rtt) = infos.iter().map(|info| info.rtt_min_us).max() else {
            return;
        };
        let share = |which: fn(&TcpInfo) -> bool| {
            infos.iter().filter(|info| which(info)).count() as f64 / infos.len() as f64
        };
        let look = StreamSample {
            acked_bytes: seen
                .watched
                .values()
                .map(|one| one.figures.acked_bytes)
                .sum(),
            rtt: micros(rtt),
            waiting: share(|info| info.notsent_bytes > 0),
            queued: share(|info| sees_queue(micros(info.rtt_us), micros(info.rtt_min_us))),
            left_bytes: self.left(),
        };
        let streams = seen
            .deciding
            .get_or_insert_with(|| StreamCount::new(infos.len(), STREAMS_MAX));
        let before = streams.count();
        let count = streams.update(clock::now(), &look);
        if count != before {
            self.shared.update(|state| state.streams_max = Some(count));
            self.opener.set_wanted(count);
            self.orders.put(SourceMsg::StreamCount(count as u16));
        }
    }

    /// Lets idle streams carry data in flight on slow ones. Not under a `--limit`, where no stream is slow by
    /// itself.
    fn repeat(&self, infos: &BTreeMap<u64, TcpInfo>) {
        if self.limit.is_some() {
            return;
        }
        let pace = |(number, info): (&u64, &TcpInfo)| (*number, pace_of(info));
        let paces = infos.iter().map(pace).collect();
        self.shared
            .update(|state| state.repeat(&paces, clock::now()));
    }
}

fn pace_of(info: &TcpInfo) -> StreamRate {
    StreamRate {
        window_bytes: u64::from(info.cwnd_segments) * u64::from(info.mss_bytes),
        rtt: micros(info.rtt_us),
        most_bytes_per_s: info.max_pacing_rate_bytes_per_s,
    }
}

fn micros(count: u32) -> Time {
    Time::from_micros(count.into())
}

/// Statistics of a stream since its first sample.
#[derive(Debug)]
struct Watched {
    began: Time,
    figures: StreamStats,
}

impl Watched {
    fn new(now: Time) -> Self {
        Self {
            began: now,
            figures: StreamStats::default(),
        }
    }

    fn see(&mut self, now: Time, info: &TcpInfo) {
        self.figures = StreamStats {
            duration_s: now.since(self.began).as_secs_f64(),
            acked_bytes: info.acked_bytes,
            retransmitted_bytes: info.retransmitted_bytes,
            rtt_us: info.rtt_us,
        };
    }
}
