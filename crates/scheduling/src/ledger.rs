// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parcels in flight on each stream: sent, and not yet confirmed by the receiver. A stream keeps their order, so the number
//! of confirmed parcels identifies them.
//!
//! Some parcels are sent a second time. At the end of a copy, all streams wait for the slowest. Losses may have left its
//! window so small that its last block takes longer than the rest of the copy. So idle streams send this block as well. Of
//! the two, the one that arrives first is used.

use super::{Parcel, work::PARCEL_LEN};
use longhaul_units::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Parcels in flight on all streams of a session. Memory: an entry for each parcel in flight, 8 bytes for each small
/// file in it, and 8 bytes for each stream that has ended. The data buffers limit the number of parcels in flight.
#[derive(Debug, Default)]
pub struct Ledger {
    streams: BTreeMap<u64, Stream>,
    ended: BTreeSet<u64>,
    /// Parcels that were sent a second time and are still in flight: a parcel or two for each stream.
    resent: BTreeSet<Parcel>,
}

#[derive(Debug)]
struct Stream {
    /// Number of parcels that the receiver has confirmed.
    confirmed: u64,
    in_flight: VecDeque<SentParcel>,
    /// Time at which the oldest parcel in flight became the oldest.
    head_since: Time,
}

/// A parcel in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SentParcel {
    /// The parcel itself.
    parcel: Parcel,
    /// Length in bytes.
    bytes: u64,
}

/// An error: the receiver confirmed more parcels than were sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream {stream}: {count} parcels confirmed of {sent} that were sent")]
pub struct ExcessConfirmation {
    stream: u64,
    count: u64,
    sent: u64,
}

/// An error: the receiver has ended the stream, and the sender may not know it yet. The parcel must be sent on another
/// stream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream has ended")]
pub struct StreamEnded(pub Parcel);

impl Ledger {
    /// Records that a stream begins to carry a parcel of `bytes`. Returns the parcel as an error if the stream has
    /// ended.
    pub fn record_sent(
        &mut self,
        stream: u64,
        parcel: Parcel,
        bytes: u64,
        now: Time,
    ) -> Result<(), StreamEnded> {
        if self.has_ended(stream) {
            return Err(StreamEnded(parcel));
        }
        let stream = self.stream(stream, now);
        if stream.in_flight.is_empty() {
            stream.head_since = now;
        }
        stream.in_flight.push_back(SentParcel { parcel, bytes });
        Ok(())
    }

    fn stream(&mut self, number: u64, now: Time) -> &mut Stream {
        self.streams.entry(number).or_insert_with(|| Stream {
            confirmed: 0,
            in_flight: VecDeque::new(),
            head_since: now,
        })
    }

    /// Records that the receiver has received the first `count` parcels of a stream. Counts may arrive out of order or
    /// after the stream's end, because several threads of the receiver report them. A count of more parcels than were
    /// sent is an error.
    pub fn confirm(
        &mut self,
        stream: u64,
        count: u64,
        now: Time,
    ) -> Result<(), ExcessConfirmation> {
        if self.has_ended(stream) {
            return Ok(());
        }
        let state = self.stream(stream, now);
        let sent = state.confirmed + state.in_flight.len() as u64;
        if count > sent {
            return Err(ExcessConfirmation {
                stream,
                count,
                sent,
            });
        }
        let more = count.saturating_sub(state.confirmed);
        if more > 0 {
            state.in_flight.drain(..more as usize);
            state.confirmed += more;
            state.head_since = now;
        }
        Ok(())
    }

    /// Records that a stream has ended after the receiver received its first `count` parcels. Returns the parcels that
    /// did not arrive. Nothing more is sent on the stream. A count of more parcels than were sent is an error.
    pub fn close(
        &mut self,
        stream: u64,
        count: u64,
        now: Time,
    ) -> Result<VecDeque<Parcel>, ExcessConfirmation> {
        self.confirm(stream, count, now)?;
        self.ended.insert(stream);
        let in_flight = self.streams.remove(&stream).map(|stream| stream.in_flight);
        let lost = in_flight.into_iter().flatten().map(|sent| sent.parcel);
        Ok(lost.collect())
    }

    /// Whether the receiver has ended a stream.
    #[must_use]
    pub fn has_ended(&self, stream: u64) -> bool {
        self.ended.contains(&stream)
    }

    /// Whether a stream has no parcel in flight.
    #[must_use]
    pub fn is_idle(&self, stream: u64) -> bool {
        let state = self.streams.get(&stream);
        state.is_none_or(|stream| stream.in_flight.is_empty())
    }
}

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

impl Ledger {
    /// Returns the parcels that idle streams should send a second time, now that no other work is left. It returns at
    /// most one for each idle stream, those first that still take longest. No parcel is sent a third time. Streams
    /// without an entry in `rates` are ignored.
    pub fn choose_resends(&mut self, rates: &BTreeMap<u64, StreamRate>, now: Time) -> Vec<Parcel> {
        self.remove_arrived();
        let idle: Vec<StreamRate> = rates
            .iter()
            .filter(|(stream, _)| self.is_idle(**stream))
            .map(|(_, rate)| *rate)
            .collect();
        let Some(typical) = median(idle.clone()) else {
            return Vec::new();
        };
        let mut late: Vec<(f64, &Parcel)> = self
            .streams
            .iter()
            .filter_map(|(number, stream)| Some((stream, rates.get(number)?)))
            .flat_map(|(stream, rate)| late_parcels(stream, rate, typical, now))
            .filter(|(_, parcel)| !self.resent.contains(*parcel))
            .collect();
        late.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        late.truncate(idle.len());
        let late: Vec<Parcel> = late.into_iter().map(|(_, parcel)| parcel.clone()).collect();
        self.resent.extend(late.iter().cloned());
        late
    }

    /// Removes resent parcels that are no longer in flight.
    fn remove_arrived(&mut self) {
        let in_flight = || self.streams.values().flat_map(|stream| &stream.in_flight);
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
    stream: &'a Stream,
    rate: &StreamRate,
    typical: StreamRate,
    now: Time,
) -> Vec<(f64, &'a Parcel)> {
    let mut ahead = 0;
    let late = stream.in_flight.iter().map(|SentParcel { parcel, bytes }| {
        ahead += bytes;
        let left = rate.seconds_left(ahead, now.since(stream.head_since));
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

    const NOW: Time = Time::ZERO;

    fn block(block: u64) -> Parcel {
        Parcel::Block { file: 1, block }
    }

    fn is_empty(ledger: &Ledger) -> bool {
        ledger.streams.keys().all(|stream| ledger.is_idle(*stream))
    }

    #[test]
    fn returns_parcels_that_a_broken_stream_lost() {
        let mut ledger = Ledger::default();
        for number in 0..4 {
            ledger
                .record_sent(number % 2, block(number), 9, NOW)
                .unwrap();
        }
        ledger.confirm(0, 1, NOW).unwrap();
        assert_eq!(ledger.close(0, 1, NOW).unwrap(), [block(2)]);
        assert!(!is_empty(&ledger));
        assert_eq!(ledger.close(1, 2, NOW).unwrap(), []);
        assert!(is_empty(&ledger));
    }

    /// The receiver notices first that a stream broke, and reports it before the sender has sent all its parcels.
    #[test]
    fn refuses_parcels_for_a_stream_that_has_ended() {
        let mut ledger = Ledger::default();
        ledger.record_sent(0, block(0), 9, NOW).unwrap();
        assert_eq!(ledger.close(0, 0, NOW).unwrap(), [block(0)]);
        assert_eq!(
            ledger.record_sent(0, block(1), 9, NOW),
            Err(StreamEnded(block(1)))
        );
        assert!(is_empty(&ledger));
        assert_eq!(ledger.close(0, 0, NOW).unwrap(), []);
        ledger.confirm(0, 1, NOW).unwrap();
        assert!(is_empty(&ledger));
        assert_eq!(
            ledger.close(7, 0, NOW).unwrap(),
            [],
            "a stream without parcels"
        );
        assert!(ledger.has_ended(7) && !ledger.has_ended(1));
        assert!(ledger.record_sent(7, block(1), 9, NOW).is_err());
    }

    #[test]
    fn ignores_late_counts_and_refuses_excessive_ones() {
        let mut ledger = Ledger::default();
        ledger.record_sent(0, block(0), 9, NOW).unwrap();
        ledger.record_sent(0, block(1), 9, NOW).unwrap();
        ledger.confirm(0, 2, NOW).unwrap();
        ledger.confirm(0, 1, NOW).unwrap();
        assert!(is_empty(&ledger));
        let error = ledger.confirm(0, 3, NOW).unwrap_err().to_string();
        assert_eq!(error, "stream 0: 3 parcels confirmed of 2 that were sent");
        assert!(ledger.confirm(9, 1, NOW).is_err());
    }
}

#[cfg(test)]
mod resend_tests {
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
        let mut ledger = ledger(&[2, 1, 0, 0]);
        // The first stream takes 15 s for a block, the second 1.8 s, the others 1.1 s.
        let rates = stream_rates(&[100_000, MIB, 2 * MIB, 2 * MIB]);
        let now = Time::from_millis(500);
        assert_eq!(ledger.choose_resends(&rates, now), [block(1), block(0)]);
        assert!(ledger.is_resent(&block(0)) && !ledger.is_resent(&block(2)));
        assert_eq!(ledger.choose_resends(&rates, now), [], "once");
    }

    #[test]
    fn does_not_repeat_parcels_that_would_gain_nothing() {
        let now = Time::from_millis(500);
        let repeat = |blocks: &[u64], windows: &[u64]| {
            ledger(blocks).choose_resends(&stream_rates(windows), now)
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
        let late = ledger(&[1, 0]).choose_resends(&rates, Time::ZERO);
        assert_eq!(late, []);
    }

    #[test]
    fn repeats_parcels_of_a_stalled_stream_with_a_large_window() {
        let rates = stream_rates(&[2 * MIB, 2 * MIB]);
        let repeat = |seconds| {
            let now = Time::from_secs(seconds);
            ledger(&[1, 0]).choose_resends(&rates, now)
        };
        // The block is expected after 1.05 s.
        assert_eq!((repeat(1), repeat(2)), (vec![], vec![]));
        assert_eq!(repeat(3), [block(0)]);
    }

    #[test]
    fn repeats_parcels_of_a_stream_with_a_low_rate_limit() {
        let mut ledger = ledger(&[1, 0]);
        let mut rates = stream_rates(&[2 * MIB, 2 * MIB]);
        rates.get_mut(&0).unwrap().bytes_per_s_max = 100_000;
        let late = ledger.choose_resends(&rates, Time::ZERO);
        assert_eq!(late, [block(0)]);
    }

    #[test]
    fn forgets_parcels_that_have_arrived() {
        let mut ledger = ledger(&[1, 0]);
        let rates = stream_rates(&[100_000, 2 * MIB]);
        assert_eq!(ledger.choose_resends(&rates, Time::ZERO), [block(0)]);
        ledger.confirm(0, 1, Time::ZERO).unwrap();
        assert_eq!(ledger.choose_resends(&rates, Time::ZERO), []);
        assert!(!ledger.is_resent(&block(0)));
    }
}
