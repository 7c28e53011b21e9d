// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parcels that are sent a second time. At the end of a copy, all streams wait for the slowest. Losses may have left
//! its window so small that its last block takes longer than the rest of the copy. So idle streams send this block as
//! well. The first arrival counts.

use super::{Ledger, Parcel, ledger::SentParcel, work::PARCEL_LEN};
use longhaul_units::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Minimum speedup for a second transmission: the time that the parcel still takes over the time of sending it again.
const SPEEDUP_MIN: f64 = 1.5;

/// Minimum time that a second transmission must save, in seconds. Streams are sampled only a few times a second.
const SAVED_MIN_S: f64 = 0.5;

/// The current rate of a stream: a window each round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamRate {
    /// Window, in bytes.
    pub window_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt: Time,
    /// Rate limit of the stream, in bytes a second; `u64::MAX` without a limit.
    pub bytes_per_s_max: u64,
}

/// A stream with parcels in flight, as in [`Ledger::in_flight`].
type BusyStream<'a> = (u64, Time, &'a VecDeque<SentParcel>);

/// Parcels that were sent a second time and are still in flight. Memory: a parcel or two for each stream.
#[derive(Debug, Default)]
pub struct Stragglers {
    resent: BTreeSet<Parcel>,
}

impl Stragglers {
    /// Returns the parcels that idle streams should send a second time, now that no other work is left. It returns at
    /// most one for each idle stream, those first that still take longest. No parcel is sent a third time. Streams
    /// without an entry in `rates` are ignored.
    pub fn choose_resends(
        &mut self,
        ledger: &Ledger,
        rates: &BTreeMap<u64, StreamRate>,
        now: Time,
    ) -> Vec<Parcel> {
        let streams: Vec<BusyStream<'_>> = ledger.in_flight().collect();
        self.remove_arrived(&streams);
        let idle: Vec<StreamRate> = rates
            .iter()
            .filter(|(stream, _)| ledger.is_idle(**stream))
            .map(|(_, rate)| *rate)
            .collect();
        let Some(typical) = median(idle.clone()) else {
            return Vec::new();
        };
        let mut late: Vec<(f64, &Parcel)> = streams
            .iter()
            .flat_map(|stream| late_parcels(stream, rates.get(&stream.0), typical, now))
            .filter(|(_, parcel)| !self.resent.contains(*parcel))
            .collect();
        late.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        late.truncate(idle.len());
        let late: Vec<Parcel> = late.into_iter().map(|(_, parcel)| parcel.clone()).collect();
        self.resent.extend(late.iter().cloned());
        late
    }

    /// Removes resent parcels that are no longer in flight.
    fn remove_arrived(&mut self, streams: &[BusyStream<'_>]) {
        let in_flight = || streams.iter().flat_map(|(.., parcels)| parcels.iter());
        self.resent
            .retain(|parcel| in_flight().any(|sent| sent.parcel == *parcel));
    }

    /// Whether a parcel is in flight for the second time.
    #[must_use]
    pub fn is_resent(&self, parcel: &Parcel) -> bool {
        self.resent.contains(parcel)
    }
}

/// The rate of the median idle stream, by the time that a parcel takes. `None` if no stream is idle.
fn median(mut idle: Vec<StreamRate>) -> Option<StreamRate> {
    let middle = idle.len() / 2;
    let seconds = |rate: &StreamRate| rate.seconds_for(PARCEL_LEN);
    idle.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    idle.get(middle).copied()
}

/// Parcels in flight on a stream that would arrive sooner if sent again at the `typical` rate. The first item of a pair
/// is the seconds that the parcel still takes.
fn late_parcels<'a>(
    (_, since, parcels): &BusyStream<'a>,
    rate: Option<&StreamRate>,
    typical: StreamRate,
    now: Time,
) -> Vec<(f64, &'a Parcel)> {
    let Some(rate) = rate else {
        return Vec::new();
    };
    let mut ahead = 0;
    let late = parcels.iter().map(|SentParcel { parcel, bytes }| {
        ahead += bytes;
        let left = rate.seconds_left(ahead, now.since(*since));
        let instead = typical.seconds_for(*bytes);
        let is_late = left > SPEEDUP_MIN * instead && left > instead + SAVED_MIN_S;
        is_late.then_some((left, parcel))
    });
    late.flatten().collect()
}

impl StreamRate {
    /// Seconds from sending `bytes` until the sender knows that they have arrived.
    fn seconds_for(&self, bytes: u64) -> f64 {
        let rtt = self.rtt.as_secs_f64();
        let rate = self.window_bytes as f64 / rtt.max(1e-6);
        bytes as f64 / rate.min(self.bytes_per_s_max as f64).max(1.0) + rtt
    }

    /// Seconds that `bytes` still take if they have been in flight for `since`. Overdue bytes are expected to take as
    /// long again as they are overdue, because the window does not explain their delay.
    fn seconds_left(&self, bytes: u64, since: Time) -> f64 {
        (self.seconds_for(bytes) - since.as_secs_f64()).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn block(block: u64) -> Parcel {
        Parcel::Block { file: 1, block }
    }

    /// The rate of a stream with this window and an RTT of 350 ms.
    fn stream_rate(window_bytes: u64) -> StreamRate {
        StreamRate {
            window_bytes,
            rtt: Time::from_millis(350),
            bytes_per_s_max: u64::MAX,
        }
    }

    /// A ledger of streams with these numbers of blocks in flight since time zero.
    fn ledger(blocks: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        let mut next = 0;
        for (stream, count) in (0..).zip(blocks) {
            for _ in 0..*count {
                ledger
                    .record_sent(stream, block(next), 4 * MIB, Time::ZERO)
                    .unwrap();
                next += 1;
            }
        }
        ledger
    }

    fn stream_rates(windows: &[u64]) -> BTreeMap<u64, StreamRate> {
        (0..)
            .zip(windows.iter().map(|window| stream_rate(*window)))
            .collect()
    }

    #[test]
    fn idle_streams_repeat_the_latest_parcels() {
        let ledger = ledger(&[2, 1, 0, 0]);
        // The first stream takes 15 s for a block, the second 1.8 s, the others 1.1 s.
        let rates = stream_rates(&[100_000, MIB, 2 * MIB, 2 * MIB]);
        let mut stragglers = Stragglers::default();
        let now = Time::from_millis(500);
        assert_eq!(
            stragglers.choose_resends(&ledger, &rates, now),
            [block(1), block(0)]
        );
        assert!(stragglers.is_resent(&block(0)) && !stragglers.is_resent(&block(2)));
        assert_eq!(stragglers.choose_resends(&ledger, &rates, now), [], "once");
    }

    #[test]
    fn does_not_repeat_parcels_that_would_gain_nothing() {
        let now = Time::from_millis(500);
        let repeat = |blocks: &[u64], windows: &[u64]| {
            Stragglers::default().choose_resends(&ledger(blocks), &stream_rates(windows), now)
        };
        assert_eq!(repeat(&[1, 0], &[2 * MIB, 2 * MIB]), []);
        assert_eq!(repeat(&[1, 0], &[MIB, 2 * MIB]), []);
        assert_eq!(
            repeat(&[1, 1], &[100_000, 2 * MIB]),
            [],
            "no stream is idle"
        );
        assert_eq!(repeat(&[1, 0], &[100_000, 100_000]), [], "all are slow");
        assert_eq!(repeat(&[1, 0], &[100_000]), [], "the second has no rate");
    }

    #[test]
    fn does_not_repeat_parcels_that_arrive_within_moments() {
        let mut rates = stream_rates(&[100_000, 2 * MIB]);
        for rate in rates.values_mut() {
            rate.rtt = Time::from_millis(4);
        }
        let late = Stragglers::default().choose_resends(&ledger(&[1, 0]), &rates, Time::ZERO);
        assert_eq!(late, []);
    }

    #[test]
    fn repeats_parcels_of_a_stalled_stream_with_a_large_window() {
        let (ledger, rates) = (ledger(&[1, 0]), stream_rates(&[2 * MIB, 2 * MIB]));
        let repeat = |seconds| {
            let now = Time::from_secs(seconds);
            Stragglers::default().choose_resends(&ledger, &rates, now)
        };
        // The block is expected after 1.05 s.
        assert_eq!((repeat(1), repeat(2)), (vec![], vec![]));
        assert_eq!(repeat(3), [block(0)]);
    }

    #[test]
    fn repeats_parcels_of_a_stream_with_a_low_rate_limit() {
        let ledger = ledger(&[1, 0]);
        let mut rates = stream_rates(&[2 * MIB, 2 * MIB]);
        rates.get_mut(&0).unwrap().bytes_per_s_max = 100_000;
        let late = Stragglers::default().choose_resends(&ledger, &rates, Time::ZERO);
        assert_eq!(late, [block(0)]);
    }

    #[test]
    fn forgets_parcels_that_have_arrived() {
        let mut ledger = ledger(&[1, 0]);
        let rates = stream_rates(&[100_000, 2 * MIB]);
        let mut stragglers = Stragglers::default();
        assert_eq!(
            stragglers.choose_resends(&ledger, &rates, Time::ZERO),
            [block(0)]
        );
        ledger.confirm(0, 1, Time::ZERO).unwrap();
        assert_eq!(stragglers.choose_resends(&ledger, &rates, Time::ZERO), []);
        assert!(!stragglers.is_resent(&block(0)));
    }
}
