// SPDX-License-Identifier: MIT OR Apache-2.0
//! Last sample of each connection, and totals over groups of legs. Each sample adds the difference to
//! the one before, so that totals never shrink and nothing is counted twice.

use longhaul_admin::record::{LegGroupKey, LegTotals};
use longhaul_linux::{
    limiter::{Limiter, limiter},
    tcp_info::TcpInfo,
};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// Sample of a connection. Counters are totals since its start.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) downstream: Option<LegSample>,
    pub(crate) upstream: Option<LegSample>,
}

/// Sample of one leg.
#[derive(Debug, Clone)]
pub(crate) struct LegSample {
    pub(crate) group: LegGroupKey,
    /// Number among the connection's legs of this side.
    pub(crate) number: u64,
    /// Kernel counters of its socket; of a striped leg, those of all streams, the first stream
    /// first. Never empty.
    pub(crate) streams: Vec<TcpInfo>,
    pub(crate) is_striped: bool,
    pub(crate) buffered_bytes: u64,
    /// Pauses in reading from the leg.
    pub(crate) pauses: u64,
    pub(crate) is_paused: bool,
    /// Whether bytes of the other leg wait for room in this leg's socket.
    pub(crate) writer_waits: bool,
}

impl LegSample {
    /// Returns the sum over the leg's streams.
    pub(crate) fn sum(&self, of: fn(&TcpInfo) -> u64) -> u64 {
        self.streams.iter().map(of).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct SampleStore {
    open: HashMap<u64, Sample>,
    totals: BTreeMap<LegGroupKey, LegTotals>,
}

/// Rates and limiters between two samples.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    pub(crate) downstream: Option<Limiter>,
    pub(crate) upstream: Option<Limiter>,
    pub(crate) bytes_up_per_s: f64,
    pub(crate) bytes_down_per_s: f64,
}

impl SampleStore {
    /// Adds a sample to the totals, and evaluates the time since the previous sample.
    pub(crate) fn record(&mut self, now: Sample) -> Rates {
        let before = self.open.get(&now.number);
        // Two threads may sample at once; the later sample has been counted already.
        if before.is_some_and(|before| before.at >= now.at) {
            return Rates::default();
        }
        for (group, totals) in deltas(before, &now) {
            add(self.totals.entry(group.clone()).or_default(), &totals);
        }
        let rates = before.map_or_else(Rates::default, |before| rates(before, &now));
        self.open.insert(now.number, now);
        rates
    }

    /// Forgets a connection that has ended.
    pub(crate) fn remove(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Returns the totals of these listeners, and forgets those of others.
    pub(crate) fn totals(&mut self, listeners: &[String]) -> BTreeMap<LegGroupKey, LegTotals> {
        self.totals
            .retain(|group, _| listeners.contains(&group.listener));
        self.totals.clone()
    }
}

/// Returns what each leg adds to the totals of its group.
fn deltas<'a>(before: Option<&Sample>, now: &'a Sample) -> Vec<(&'a LegGroupKey, LegTotals)> {
    let counted = |of: fn(&Sample) -> u64| before.map_or(0, of);
    let bytes_up = now.bytes_up.saturating_sub(counted(|b| b.bytes_up));
    let bytes_down = now.bytes_down.saturating_sub(counted(|b| b.bytes_down));
    let legs = [
        (&now.downstream, before.and_then(|b| b.downstream.as_ref())),
        (&now.upstream, before.and_then(|b| b.upstream.as_ref())),
    ];
    let new = |(leg, before): (&'a Option<LegSample>, Option<&LegSample>)| {
        let leg = leg.as_ref()?;
        let totals = LegTotals {
            bytes_up,
            bytes_down,
            ..leg_delta(before, leg)
        };
        Some((&leg.group, totals))
    };
    legs.into_iter().filter_map(new).collect()
}

/// Returns the increase of a leg's counters since the previous sample, which may be of another
/// socket.
fn leg_delta(before: Option<&LegSample>, now: &LegSample) -> LegTotals {
    let same = before.filter(|before| before.number == now.number);
    let grown = |of: fn(&TcpInfo) -> u64| {
        let counted = same.map_or(0, |before| before.sum(of));
        now.sum(of).saturating_sub(counted)
    };
    LegTotals {
        opened: u64::from(same.is_none()),
        // Pauses count for the connection, whichever sockets it had.
        reading_pauses: now.pauses.saturating_sub(before.map_or(0, |b| b.pauses)),
        retransmitted_segments: grown(|info| info.retransmits.into()),
        retransmitted_bytes: grown(|info| info.retransmitted_bytes),
        sent_bytes: grown(|info| info.sent_bytes),
        busy_us: grown(|info| info.busy_us),
        receive_window_limited_us: grown(|info| info.rwnd_limited_us),
        send_buffer_limited_us: grown(|info| info.sndbuf_limited_us),
        ..LegTotals::default()
    }
}

fn add(sum: &mut LegTotals, new: &LegTotals) {
    sum.opened += new.opened;
    sum.bytes_up += new.bytes_up;
    sum.bytes_down += new.bytes_down;
    sum.reading_pauses += new.reading_pauses;
    sum.retransmitted_segments += new.retransmitted_segments;
    sum.retransmitted_bytes += new.retransmitted_bytes;
    sum.sent_bytes += new.sent_bytes;
    sum.busy_us += new.busy_us;
    sum.receive_window_limited_us += new.receive_window_limited_us;
    sum.send_buffer_limited_us += new.send_buffer_limited_us;
}

fn rates(before: &Sample, now: &Sample) -> Rates {
    let elapsed = now.at - before.at;
    let per_s = |bytes: u64| bytes as f64 / elapsed.as_secs_f64();
    Rates {
        downstream: limited_by(before.downstream.as_ref(), now.downstream.as_ref(), elapsed),
        upstream: limited_by(before.upstream.as_ref(), now.upstream.as_ref(), elapsed),
        bytes_up_per_s: per_s(now.bytes_up.saturating_sub(before.bytes_up)),
        bytes_down_per_s: per_s(now.bytes_down.saturating_sub(before.bytes_down)),
    }
}

fn limited_by(
    before: Option<&LegSample>,
    now: Option<&LegSample>,
    elapsed: Duration,
) -> Option<Limiter> {
    let (before, now) = (before?, now?);
    let same = before.number == now.number;
    let us = elapsed.as_micros() as u64;
    same.then(|| limiter(&combined(before), &combined(now), now.writer_waits, us))
}

/// Combines the streams to one connection: the mean of their times, the sum of their windows.
fn combined(leg: &LegSample) -> TcpInfo {
    let mean = |of| leg.sum(of) / leg.streams.len().max(1) as u64;
    let sum = |of| leg.sum(of).try_into().unwrap_or(u32::MAX);
    TcpInfo {
        busy_us: mean(|info| info.busy_us),
        rwnd_limited_us: mean(|info| info.rwnd_limited_us),
        sndbuf_limited_us: mean(|info| info.sndbuf_limited_us),
        notsent_bytes: sum(|info| info.notsent_bytes.into()),
        in_flight_segments: sum(|info| info.in_flight_segments.into()),
        cwnd_segments: sum(|info| info.cwnd_segments.into()),
        mss_bytes: leg.streams.first().map_or(0, |info| info.mss_bytes),
        send_window_bytes: sum(|info| info.send_window_bytes.into()),
        ..TcpInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_admin::record::Leg;
    use std::time::Instant;

    fn info(sent: u64, retransmits: u32) -> TcpInfo {
        TcpInfo {
            cwnd_segments: 10,
            mss_bytes: 1000,
            retransmits,
            sent_bytes: sent,
            ..TcpInfo::default()
        }
    }

    fn leg(leg: Leg, number: u64, sent: u64, retransmits: u32, pauses: u64) -> LegSample {
        LegSample {
            group: group(leg),
            number,
            streams: vec![info(sent, retransmits)],
            is_striped: false,
            buffered_bytes: 0,
            pauses,
            is_paused: false,
            writer_waits: false,
        }
    }

    fn group(leg: Leg) -> LegGroupKey {
        LegGroupKey {
            listener: "web".into(),
            leg,
            peer: None,
        }
    }

    struct Clock(Instant);

    impl Clock {
        fn sample(
            &self,
            ms: u64,
            bytes_up: u64,
            downstream: LegSample,
            upstream: LegSample,
        ) -> Sample {
            Sample {
                number: 7,
                at: self.0 + Duration::from_millis(ms),
                bytes_up,
                bytes_down: 0,
                downstream: Some(downstream),
                upstream: Some(upstream),
            }
        }
    }

    fn totals(store: &mut SampleStore, of: Leg) -> LegTotals {
        store.totals(&["web".to_owned()])[&group(of)]
    }

    #[test]
    fn adds_difference_between_samples() {
        let (mut store, clock) = (SampleStore::default(), Clock(Instant::now()));
        let downstream = |pauses| leg(Leg::Downstream, 0, 0, 0, pauses);
        store.record(clock.sample(0, 100, downstream(1), leg(Leg::Upstream, 1, 100, 1, 0)));
        let rates =
            store.record(clock.sample(500, 150, downstream(3), leg(Leg::Upstream, 1, 170, 2, 0)));
        assert_eq!(rates.bytes_up_per_s, 100.0);
        assert_eq!(rates.upstream, Some(Limiter::Application));
        let upstream = totals(&mut store, Leg::Upstream);
        assert_eq!(
            (upstream.opened, upstream.bytes_up, upstream.sent_bytes),
            (1, 150, 170)
        );
        assert_eq!(upstream.retransmitted_segments, 2);
        assert_eq!(totals(&mut store, Leg::Downstream).reading_pauses, 3);
    }

    #[test]
    fn replacement_leg_counts_from_zero() {
        let (mut store, clock) = (SampleStore::default(), Clock(Instant::now()));
        let downstream = || leg(Leg::Downstream, 0, 0, 0, 0);
        store.record(clock.sample(0, 100, downstream(), leg(Leg::Upstream, 1, 100, 5, 2)));
        let rates =
            store.record(clock.sample(9, 130, downstream(), leg(Leg::Upstream, 2, 30, 1, 2)));
        assert_eq!(
            (rates.upstream, rates.downstream),
            (None, Some(Limiter::Application))
        );
        let upstream = totals(&mut store, Leg::Upstream);
        assert_eq!(
            (upstream.opened, upstream.bytes_up, upstream.sent_bytes),
            (2, 130, 130)
        );
        assert_eq!(
            (upstream.retransmitted_segments, upstream.reading_pauses),
            (6, 2)
        );
    }

    /// The second stream may join between two samples.
    #[test]
    fn sums_counters_over_streams_of_leg() {
        let (mut store, clock) = (SampleStore::default(), Clock(Instant::now()));
        let downstream = || leg(Leg::Downstream, 0, 0, 0, 0);
        let upstream = |streams: &[(u64, u32)]| LegSample {
            streams: streams
                .iter()
                .map(|&(sent, retransmits)| info(sent, retransmits))
                .collect(),
            is_striped: true,
            ..leg(Leg::Upstream, 1, 0, 0, 0)
        };
        store.record(clock.sample(0, 100, downstream(), upstream(&[(100, 1)])));
        store.record(clock.sample(9, 900, downstream(), upstream(&[(400, 2), (500, 7)])));
        let totals = totals(&mut store, Leg::Upstream);
        assert_eq!(
            (totals.opened, totals.bytes_up, totals.sent_bytes),
            (1, 900, 900)
        );
        assert_eq!(totals.retransmitted_segments, 9);
    }

    #[test]
    fn limiter_treats_streams_as_one_connection() {
        let with = |busy_us, in_flight_segments| TcpInfo {
            busy_us,
            in_flight_segments,
            notsent_bytes: 5000,
            send_window_bytes: 1 << 20,
            ..info(0, 0)
        };
        let at = |first, second| LegSample {
            streams: vec![first, second],
            is_striped: true,
            ..leg(Leg::Upstream, 1, 0, 0, 0)
        };
        let begin = at(with(0, 0), with(0, 0));
        let judged = |now| limited_by(Some(&begin), Some(&now), Duration::from_millis(10));
        let all_busy = at(with(10_000, 10), with(10_000, 10));
        assert_eq!(judged(all_busy), Some(Limiter::CongestionWindow));
        // A single busy stream does not limit the leg.
        let one_idle = at(with(9_000, 10), with(0, 0));
        assert_eq!(judged(one_idle), Some(Limiter::Application));
    }

    #[test]
    fn ignores_older_sample() {
        let (mut store, clock) = (SampleStore::default(), Clock(Instant::now()));
        let downstream = || leg(Leg::Downstream, 0, 0, 0, 0);
        store.record(clock.sample(5, 100, downstream(), leg(Leg::Upstream, 1, 100, 0, 0)));
        store.record(clock.sample(4, 90, downstream(), leg(Leg::Upstream, 1, 90, 0, 0)));
        assert_eq!(totals(&mut store, Leg::Upstream).sent_bytes, 100);
    }

    #[test]
    fn forgets_totals_of_removed_listeners() {
        let (mut store, clock) = (SampleStore::default(), Clock(Instant::now()));
        let legs = || {
            (
                leg(Leg::Downstream, 0, 0, 0, 0),
                leg(Leg::Upstream, 1, 0, 0, 0),
            )
        };
        store.record(clock.sample(0, 0, legs().0, legs().1));
        assert_eq!(store.totals(&["web".to_owned()]).len(), 2);
        assert_eq!(store.totals(&[]).len(), 0);
    }
}
