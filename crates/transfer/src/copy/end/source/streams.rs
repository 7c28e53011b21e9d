// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that looks at all streams: how many there shall be, what each may send, and what each has carried.

use super::state::{Source, State};
use crate::protocol::{
    message::Order,
    order::Begin,
    report::{Report, StreamFigures},
};
use longhaul_linux::{clock, tcp_info::TcpInfo};
use longhaul_scheduling::{
    Pace,
    streams::{Look, STREAMS_MAX, Streams, sees_queue},
};
use longhaul_transport::blocking::Handle;
use longhaul_units::Time;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// What was seen of streams.
#[derive(Debug, Default)]
struct Seen {
    watched: BTreeMap<u64, Watched>,
    /// How many there were at the last look.
    there: usize,
    deciding: Option<Streams>,
}

impl Source {
    /// Until all is over; tells the driver what each stream carried. `fixed`: their number stays as it is.
    pub(super) fn watch_streams(self: Arc<Self>, begin: &Begin) {
        let mut seen = Seen::default();
        let fixed = begin.options.streams_fixed().is_some();
        while !self.shared.is_over() {
            self.shared.pause(INTERVAL);
            let streams: Vec<(u64, Handle)> = self.shared.look(State::streams);
            self.give_up_ended(&streams);
            let infos = self.look(&mut seen, &streams);
            if !fixed {
                self.decide(&mut seen, &infos);
            }
            self.repeat(&infos);
        }
        let figures = seen.watched.into_values().map(|one| one.figures);
        self.reporter.say(&Report::Streams(figures.collect()));
    }

    /// Those that the far end closed, or that broke, while nothing was written to them. The target tells what arrived by
    /// them, even if it never began with them; then their threads end.
    fn give_up_ended(&self, streams: &[(u64, Handle)]) {
        for (number, _) in streams
            .iter()
            .filter(|(_, one)| one.connection().has_ended())
        {
            let carried = self.shared.note(|state| state.streams.remove(number));
            if carried.is_some() {
                self.orders.put(Order::Gone { stream: *number });
            }
        }
    }

    /// What each stream has done so far; each gets its share if their number has changed.
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

    /// What is still to be sent at most, once all is known that there is.
    fn left(&self) -> Option<u64> {
        let now = self.tally.now();
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
        let look = Look {
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
            .get_or_insert_with(|| Streams::new(infos.len(), STREAMS_MAX));
        let before = streams.count();
        let count = streams.look(clock::now(), &look);
        if count != before {
            self.shared.change(|state| state.streams_max = Some(count));
            self.opener.want(count);
            self.orders.put(Order::Streams(count as u16));
        }
    }

    /// Has idle streams carry what slow ones have under way. Under a `--limit` none is slow by itself.
    fn repeat(&self, infos: &BTreeMap<u64, TcpInfo>) {
        if self.limit.is_some() {
            return;
        }
        let pace = |(number, info): (&u64, &TcpInfo)| (*number, pace_of(info));
        let paces = infos.iter().map(pace).collect();
        self.shared
            .change(|state| state.repeat(&paces, clock::now()));
    }
}

fn pace_of(info: &TcpInfo) -> Pace {
    Pace {
        window_bytes: u64::from(info.cwnd_segments) * u64::from(info.mss_bytes),
        rtt: micros(info.rtt_us),
        most_bytes_per_s: info.max_pacing_rate_bytes_per_s,
    }
}

fn micros(count: u32) -> Time {
    Time::from_micros(count.into())
}

/// A stream since it was first seen.
#[derive(Debug)]
struct Watched {
    began: Time,
    figures: StreamFigures,
}

impl Watched {
    fn new(now: Time) -> Self {
        Self {
            began: now,
            figures: StreamFigures::default(),
        }
    }

    fn see(&mut self, now: Time, info: &TcpInfo) {
        self.figures = StreamFigures {
            lasted_s: now.since(self.began).as_secs_f64(),
            acked_bytes: info.acked_bytes,
            sent_again_bytes: info.retransmitted_bytes,
            rtt_us: info.rtt_us,
        };
    }
}
