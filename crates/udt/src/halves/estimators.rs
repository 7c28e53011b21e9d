// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a receiver measures: how fast packets arrive, what the link could carry, and the round trip
//! (draft-gg-udt-03 §6.1, §6.2).

use crate::packet::number::Seq;
use longhaul_units::Time;

/// Intervals between packets that came one after the other.
const ARRIVAL_INTERVALS_MAX: usize = 16;
/// Trains that were sent back to back, pairs at least, and how many of them say something.
const TRAINS_MAX: usize = 64;
const TRAINS_MIN: usize = 4;
/// Every so many packets two go back to back (§6.1).
pub(crate) const PAIR_EVERY: u32 = 16;
/// What is so many times the median, or so small a part of it, is an interruption or a burst.
const OUTLIER_FACTOR: u64 = 8;
/// Packets that come in one piece have no interval; UDT4's clock counts microseconds, too.
const INTERVAL_MIN: Time = Time::from_micros(1);

/// The newest intervals from packet to packet, in nanoseconds, and how many packets had each of them.
#[derive(Debug, Clone)]
struct Intervals<const N: usize> {
    ring: [(u64, u32); N],
    /// Of them; the others are none yet.
    count: usize,
    next_index: usize,
}

impl<const N: usize> Intervals<N> {
    fn empty() -> Self {
        Self {
            ring: [(0, 0); N],
            count: 0,
            next_index: 0,
        }
    }

    fn add(&mut self, interval: Time, packets: u32) {
        self.ring[self.next_index] = (interval.max(INTERVAL_MIN).as_nanos(), packets);
        self.next_index = (self.next_index + 1) % N;
        self.count = (self.count + 1).min(N);
    }

    /// What those have in common that are not far from the median. Packets are counted, not intervals: where a small window
    /// leaves gaps, one interval has all that comes between two of them, and the next is a gap.
    fn filtered_mean(&self) -> FilteredMean {
        let mut sorted = self.ring;
        let sorted = &mut sorted[..self.count];
        sorted.sort_unstable();
        let packets: u64 = sorted.iter().map(|(_, packets)| u64::from(*packets)).sum();
        let median = weighted_median(sorted, packets / 2);
        let (low, high) = (
            median / OUTLIER_FACTOR,
            median.saturating_mul(OUTLIER_FACTOR),
        );
        sorted
            .iter()
            .filter(|(one, _)| (low + 1..high).contains(one))
            .fold(FilteredMean::empty(packets), FilteredMean::plus)
    }
}

/// The interval that packet number `nth` of all had.
fn weighted_median(sorted: &[(u64, u32)], nth: u64) -> u64 {
    let mut before = 0;
    let of_it = sorted.iter().find(|(_, packets)| {
        before += u64::from(*packets);
        before > nth
    });
    of_it.map_or(0, |(interval, _)| *interval)
}

/// Intervals that are near their median.
#[derive(Debug, Clone, Copy)]
struct FilteredMean {
    total_ns: f64,
    packets: u64,
    /// Packets of those that are not near, too.
    total_packets: u64,
    intervals: usize,
}

impl FilteredMean {
    fn empty(packets: u64) -> Self {
        Self {
            total_ns: 0.0,
            packets: 0,
            total_packets: packets,
            intervals: 0,
        }
    }

    fn plus(self, (interval, packets): &(u64, u32)) -> Self {
        Self {
            total_ns: self.total_ns + *interval as f64 * f64::from(*packets),
            packets: self.packets + u64::from(*packets),
            intervals: self.intervals + 1,
            ..self
        }
    }

    /// Packets a second.
    fn rate(&self) -> f64 {
        self.packets as f64 * 1e9 / self.total_ns
    }
}

/// An interval is over so many packets as come in this time, for they come in trains: a sender's timer is no finer, and
/// a network card hands over several at once. (UDT4: one packet, however far from the next.)
const SPAN_MIN: Time = Time::from_millis(1);

/// How fast packets arrive (§6.1): the mean over the packets of 16 intervals, if more than half of them have one that is
/// near their median.
#[derive(Debug, Clone)]
pub(crate) struct ArrivalRate {
    intervals: Intervals<ARRIVAL_INTERVALS_MAX>,
    /// When the last interval ended, and packets since then.
    span_start: Option<Time>,
    span_packets: u32,
}

impl ArrivalRate {
    /// Nothing has arrived.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            // UDT4 begins with seconds (window.cpp), and a loss among its first packets leaves it with a packet a second.
            intervals: Intervals::empty(),
            span_start: None,
            span_packets: 0,
        }
    }

    /// A packet arrived.
    pub(crate) fn on_packet(&mut self, now: Time) {
        let Some(since) = self.span_start else {
            self.span_start = Some(now);
            return;
        };
        self.span_packets += 1;
        let elapsed = now.since(since);
        if elapsed >= SPAN_MIN {
            let each = elapsed.as_nanos() / u64::from(self.span_packets);
            self.intervals
                .add(Time::from_nanos(each), self.span_packets);
            (self.span_start, self.span_packets) = (Some(now), 0);
        }
    }

    /// Packets a second; `None` while there are too few, or they come too unevenly to say.
    #[must_use]
    pub(crate) fn rate(&self) -> Option<f64> {
        let usual = self.intervals.filtered_mean();
        let known = self.intervals.count > ARRIVAL_INTERVALS_MAX / 2
            && usual.packets * 2 > usual.total_packets;
        known.then(|| usual.rate())
    }
}

impl Default for ArrivalRate {
    fn default() -> Self {
        Self::new()
    }
}

/// What the link could carry (§6.1): the mean interval of 64 trains whose packets were sent back to back.
#[derive(Debug, Clone)]
pub(crate) struct CapacityEstimator {
    intervals: Intervals<TRAINS_MAX>,
    train: Option<Train>,
}

/// Packets that were sent back to back: a pair, or whatever was sent in the same microsecond, for timers send several at once. (UDT4:
/// pairs only. Those often come in one piece, from a network card that lets several come before it interrupts, and then say nothing.)
#[derive(Debug, Clone, Copy)]
struct Train {
    first: Seq,
    sent_us: u32,
    received_at: Time,
    /// Intervals between its packets, and those before the packet that began the last piece, and when that came.
    intervals: u32,
    last_burst: (u32, Time),
}

impl Train {
    fn starting_with(first: Seq, sent_us: u32, came: Time) -> Self {
        Self {
            first,
            sent_us,
            received_at: came,
            intervals: 0,
            last_burst: (0, came),
        }
    }

    /// Whether it was the next.
    fn extend(&mut self, seq: Seq, sent_us: u32, now: Time) -> bool {
        let is_next = seq == self.first.plus(self.intervals + 1);
        let is_second = self.intervals == 0 && self.first.get().is_multiple_of(PAIR_EVERY);
        if !is_next || (sent_us != self.sent_us && !is_second) {
            return false;
        }
        self.intervals += 1;
        if now != self.last_burst.1 {
            self.last_burst = (self.intervals, now);
        }
        true
    }

    /// The mean interval, and of how many. A piece has the time of its first packet.
    fn interval(&self) -> Option<(Time, u32)> {
        let (before, last_came) = self.last_burst;
        let intervals = if before > 0 { before } else { self.intervals };
        let elapsed = last_came.since(self.received_at).as_nanos();
        let each = elapsed.checked_div(u64::from(intervals))?;
        Some((Time::from_nanos(each), intervals))
    }
}

impl CapacityEstimator {
    /// Nothing is known.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            intervals: Intervals::empty(),
            train: None,
        }
    }

    /// A packet came; its sender says when it sent it.
    pub(crate) fn on_packet(&mut self, seq: Seq, sent_us: u32, now: Time) {
        let train = self.train.as_mut();
        if train.is_some_and(|train| train.extend(seq, sent_us, now)) {
            return;
        }
        let ended = self.train.replace(Train::starting_with(seq, sent_us, now));
        if let Some((interval, packets)) = ended.and_then(|train| train.interval()) {
            self.intervals.add(interval, packets);
        }
    }

    /// Packets a second; 1000 until a few trains have come. (UDT4: as if 64 pairs had come that say so, and 500 packets pass
    /// before others outweigh them.)
    #[must_use]
    pub(crate) fn rate(&self) -> f64 {
        let usual = self.intervals.filtered_mean();
        match usual.intervals {
            TRAINS_MIN.. => usual.rate(),
            _ => 1000.0,
        }
    }
}

impl Default for CapacityEstimator {
    fn default() -> Self {
        Self::new()
    }
}

/// The round trip and how much it varies (§6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RttEstimator {
    /// Smoothed, 7/8 of the old.
    pub(crate) smoothed: Time,
    /// Of the mean, 3/4 of the old (UDT4's code and the draft; the note of 2009 says 7/8).
    pub(crate) variation: Time,
}

impl RttEstimator {
    /// Before anything was measured: ten times SYN (UDT4 core.cpp; the draft says nothing).
    pub(crate) const INITIAL: Self = Self {
        smoothed: Time::from_millis(100),
        variation: Time::from_millis(50),
    };

    /// One more; the first counts as it is. (UDT4 takes a second to forget that it knew nothing, on a path of 100 ms.)
    pub(crate) fn add_sample(&mut self, sample: Time) {
        if *self == Self::INITIAL {
            let variation = Time::from_nanos(sample.as_nanos() / 2);
            *self = Self {
                smoothed: sample,
                variation,
            };
            return;
        }
        let [mean, variation, sample] = [self.smoothed, self.variation, sample].map(Time::as_nanos);
        self.variation = Time::from_nanos((variation * 3 + sample.abs_diff(mean)) / 4);
        self.smoothed = Time::from_nanos((mean * 7 + sample) / 8);
    }

    /// What an answer takes at the most, but for rare ones: the mean and four times the variation.
    #[must_use]
    pub(crate) fn upper_bound(&self) -> Time {
        Time::from_nanos(self.smoothed.as_nanos() + 4 * self.variation.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_come_evenly_have_a_rate() {
        let mut rate = ArrivalRate::new();
        assert_eq!(rate.rate(), None);
        let mut now = Time::ZERO;
        for _ in 0..400 {
            now += Time::from_micros(100);
            rate.on_packet(now);
        }
        assert_eq!(rate.rate(), Some(10_000.0));
        // One interruption of a second is none of the rate's.
        rate.on_packet(now + Time::from_secs(1));
        assert_eq!(rate.rate(), Some(10_000.0));
    }

    #[test]
    fn packets_that_come_in_trains_have_the_rate_of_both() {
        let mut rate = ArrivalRate::new();
        for train in 0..40 {
            for packet in 0..20 {
                rate.on_packet(Time::from_micros(2000 * train + packet / 10));
            }
        }
        assert_eq!(rate.rate(), Some(10_000.0));
    }

    /// Were intervals counted instead, many packets in one and few in the next would be fewer than they are, and the window
    /// that follows from that lets fewer and fewer go.
    #[test]
    fn each_packet_counts() {
        let mut rate = ArrivalRate::new();
        for millisecond in 0..40 {
            let packets = if millisecond % 2 == 0 { 60 } else { 15 };
            for packet in 0..packets {
                rate.on_packet(Time::from_micros(
                    1000 * millisecond + 1000 / packets * packet,
                ));
            }
        }
        let found = rate.rate().unwrap();
        assert!((found - 37_500.0).abs() < 3_000.0, "{found}");
    }

    #[test]
    fn uneven_packets_have_none() {
        let mut rate = ArrivalRate::new();
        let mut now = Time::ZERO;
        for step in 0..40_u32 {
            now += Time::from_millis(10_u64.pow(1 + step % 4));
            rate.on_packet(now);
        }
        assert_eq!(rate.rate(), None);
    }

    /// Packets that were sent in these µs and came in those.
    fn capacity(packets: impl IntoIterator<Item = (u32, u64)>) -> f64 {
        let mut capacity = CapacityEstimator::new();
        for (seq, (sent_us, came_us)) in (0..).zip(packets) {
            capacity.on_packet(Seq::new(seq), sent_us, Time::from_micros(came_us));
        }
        capacity.rate()
    }

    /// libudt sends the second at once, which takes a few microseconds.
    #[test]
    fn capacity_is_what_most_pairs_say() {
        let packets = (0..1024).map(|seq: u32| {
            let (pair, nth) = (seq / 16, seq % 16);
            let late = if pair % 8 == 0 { 1000 } else { 12 };
            let came = u64::from(pair) * 10_000 + u64::from(nth) * 100;
            match nth {
                1 => (pair * 10_000 + 3, u64::from(pair) * 10_000 + late),
                _ => (came as u32, came),
            }
        });
        let found = capacity(packets);
        assert!((found - 1e6 / 12.0).abs() < 1.0, "{found}");
    }

    /// Trains of 40 packets of a link that carries one in 12 µs, of which up to eight come in one piece.
    #[test]
    fn a_train_says_what_the_link_carries_though_it_comes_in_pieces() {
        let packets = (0..4000_u32).map(|seq| {
            let (train, nth) = (seq / 40, u64::from(seq % 40));
            (train * 1000, u64::from(train) * 1000 + (nth / 8 * 8) * 12)
        });
        let found = capacity(packets);
        assert!((found - 1e6 / 12.0).abs() < 1.0, "{found}");
    }

    #[test]
    fn without_trains_nothing_is_known_of_the_link() {
        assert_eq!(capacity((0..15).map(|seq| (seq, u64::from(seq)))), 1000.0);
    }

    #[test]
    fn a_round_trip_is_smoothed() {
        let mut rtt = RttEstimator::INITIAL;
        rtt.add_sample(Time::from_millis(20));
        assert_eq!(rtt.smoothed, Time::from_millis(20));
        assert_eq!(rtt.variation, Time::from_millis(10));
        rtt.add_sample(Time::from_millis(180));
        assert_eq!(rtt.smoothed, Time::from_millis(40));
        assert_eq!(rtt.variation, Time::from_micros(47_500));
        (0..100).for_each(|_| rtt.add_sample(Time::from_millis(180)));
        let off = Time::from_millis(180).as_nanos() - rtt.smoothed.as_nanos();
        assert!(off < 10_000, "{off}");
    }
}
