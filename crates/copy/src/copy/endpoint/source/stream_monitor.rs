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
use longhaul_transport::blocking;
use longhaul_units::Time;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Interval between samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// State of the stream monitor.
#[derive(Debug, Default)]
struct StreamMonitor {
    streams: BTreeMap<u64, MonitoredStream>,
    /// Streams at the last sample.
    count: usize,
    controller: Option<StreamCount>,
}

impl Source {
    /// Monitors the streams until the session ends, and then reports what each carried. If the user set their
    /// number, it does not change.
    pub(super) fn monitor_streams(self: Arc<Self>, begin: &Begin) {
        let mut monitor = StreamMonitor::default();
        let fixed = begin.options.streams_fixed().is_some();
        while !self.shared.is_over() {
            self.shared.sleep(SAMPLE_INTERVAL);
            let streams: Vec<(u64, Arc<blocking::Connection>)> = self.shared.read(State::streams);
            self.remove_ended(&streams);
            let infos = self.sample(&mut monitor, &streams);
            if !fixed {
                self.adjust_stream_count(&mut monitor, &infos);
            }
            self.queue_resends(&infos);
        }
        let stats = monitor.streams.into_values().map(|one| one.stats);
        self.reporter.send(&Report::Streams(stats.collect()));
    }

    /// Removes streams that the peer closed, or that broke, while nothing was written to them. The target
    /// reports what arrived on them, even if it never started to read one. Then their threads end.
    fn remove_ended(&self, streams: &[(u64, Arc<blocking::Connection>)]) {
        for (number, _) in streams.iter().filter(|(_, one)| one.has_ended()) {
            let removed = self
                .shared
                .update_silent(|state| state.streams.remove(number));
            if removed.is_some() {
                self.to_target
                    .push(SourceMsg::StreamAbandoned { stream: *number });
            }
        }
    }

    /// Samples each stream. If their number has changed, divides the pacing rate among them again.
    fn sample(
        &self,
        monitor: &mut StreamMonitor,
        streams: &[(u64, Arc<blocking::Connection>)],
    ) -> BTreeMap<u64, TcpInfo> {
        if monitor.count != streams.len() {
            monitor.count = streams.len();
            self.tuning
                .divide_rate(streams.iter().map(|(_, stream)| &**stream));
        }
        let now = clock::now();
        let mut infos = BTreeMap::new();
        for (number, stream) in streams {
            let Some(info) = stream.tcp_info() else {
                continue;
            };
            let stream_entry = monitor.streams.entry(*number);
            stream_entry
                .or_insert_with(|| MonitoredStream::new(now))
                .update(now, &info);
            self.tuning
                .limit_unsent(stream, info.delivery_rate_bytes_per_s);
            infos.insert(*number, info);
        }
        infos
    }

    /// Returns the maximum bytes still to send, once the scan is complete.
    fn remaining_bytes(&self) -> Option<u64> {
        let progress = self.counters.snapshot();
        progress
            .scanned
            .then(|| progress.bytes.saturating_sub(progress.sent))
    }

    fn adjust_stream_count(&self, monitor: &mut StreamMonitor, infos: &BTreeMap<u64, TcpInfo>) {
        let sampled = |info: &&TcpInfo| info.rtt_min_us < u32::MAX;
        let infos: Vec<&TcpInfo> = infos.values().filter(sampled).collect();
        let Some(rtt) = infos.iter().map(|info| info.rtt_min_us).max() else {
            return;
        };
        let fraction = |which: fn(&TcpInfo) -> bool| {
            infos.iter().filter(|info| which(info)).count() as f64 / infos.len() as f64
        };
        let sample = StreamSample {
            acked_bytes: monitor
                .streams
                .values()
                .map(|one| one.stats.acked_bytes)
                .sum(),
            rtt: micros(rtt),
            waiting: fraction(|info| info.notsent_bytes > 0),
            queued: fraction(|info| sees_queue(micros(info.rtt_us), micros(info.rtt_min_us))),
            remaining_bytes: self.remaining_bytes(),
        };
        let streams = monitor
            .controller
            .get_or_insert_with(|| StreamCount::new(infos.len(), STREAMS_MAX));
        let before = streams.count();
        let count = streams.update(clock::now(), &sample);
        if count != before {
            self.shared.update(|state| state.streams_max = Some(count));
            self.opener.set_wanted(count);
            self.to_target.push(SourceMsg::StreamCount(count as u16));
        }
    }

    /// Lets idle streams carry data in flight on slow ones. Not under a `--limit`, where no stream is slow by
    /// itself.
    fn queue_resends(&self, infos: &BTreeMap<u64, TcpInfo>) {
        if self.limit.is_some() {
            return;
        }
        let rate = |(number, info): (&u64, &TcpInfo)| (*number, stream_rate(info));
        let rates = infos.iter().map(rate).collect();
        self.shared
            .update(|state| state.queue_resends(&rates, clock::now()));
    }
}

fn stream_rate(info: &TcpInfo) -> StreamRate {
    StreamRate {
        window_bytes: info.cwnd_bytes(),
        rtt: micros(info.rtt_us),
        bytes_per_s_max: info.max_pacing_rate_bytes_per_s,
    }
}

fn micros(count: u32) -> Time {
    Time::from_micros(count.into())
}

/// Statistics of a stream since its first sample.
#[derive(Debug)]
struct MonitoredStream {
    first_sample: Time,
    stats: StreamStats,
}

impl MonitoredStream {
    fn new(now: Time) -> Self {
        Self {
            first_sample: now,
            stats: StreamStats::default(),
        }
    }

    fn update(&mut self, now: Time, info: &TcpInfo) {
        self.stats = StreamStats {
            duration_s: now.since(self.first_sample).as_secs_f64(),
            acked_bytes: info.acked_bytes,
            retransmitted_bytes: info.retransmitted_bytes,
            rtt_us: info.rtt_us,
        };
    }
}
