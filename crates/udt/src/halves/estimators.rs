// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimators of a receiver: arrival rate, link capacity and round-trip time (draft-gg-udt-03 §6.1, §6.2).

use crate::packet::number::Seq;
use longhaul_units::Time;

/// Number of intervals in the estimate of the arrival rate.
const ARRIVAL_INTERVALS_MAX: usize = 16;
/// Number of packet trains in the estimate of the link capacity, and the least number that gives one. A train is sent
/// back to back; the shortest is a pair.
const TRAINS_MAX: usize = 64;
const TRAINS_MIN: usize = 4;
/// Number of packets per packet pair: two of so many are sent back to back (§6.1).
pub(crate) const PAIR_EVERY: u32 = 16;
/// Factor from the median beyond which an interval is an outlier: an interruption, or a burst.
const OUTLIER_FACTOR: u64 = 8;
/// Minimum interval. Packets that the kernel receives as one segment have none; UDT4's clock counts microseconds,
/// too.
const INTERVAL_MIN: Time = Time::from_micros(1);

/// Ring of the newest intervals between packets, in nanoseconds, and the number of packets that had each.
#[derive(Debug, Clone)]
struct Intervals<const N: usize> {
    ring: [(u64, u32); N],
    /// Number of intervals in the ring.
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

    /// Averages the intervals near the median. The median counts packets, not intervals: where a small window leaves
    /// gaps, one interval covers all packets between two gaps, and the next interval is a gap.
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

/// Returns the interval of packet number `nth`, in order of intervals.
fn weighted_median(sorted: &[(u64, u32)], nth: u64) -> u64 {
    let mut before = 0;
    let interval = sorted.iter().find(|(_, packets)| {
        before += u64::from(*packets);
        before > nth
    });
    interval.map_or(0, |(interval, _)| *interval)
}

/// Sums over the intervals near the median.
#[derive(Debug, Clone, Copy)]
struct FilteredMean {
    total_ns: f64,
    packets: u64,
    /// Number of packets of all intervals, outliers included.
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

    /// Returns the mean rate in packets per second.
    fn rate(&self) -> f64 {
        self.packets as f64 * 1e9 / self.total_ns
    }
}

/// Minimum span of an interval of the arrival rate, which covers all packets in it. Packets come in bursts: a
/// sender's timer is no finer, and a network card delivers several at once. (UDT4: one packet, whatever its distance
/// to the next.)
const SPAN_MIN: Time = Time::from_millis(1);

/// Estimator of the arrival rate (§6.1): the mean over the packets of 16 intervals. It is known if more than half of
/// the packets have an interval near the median.
#[derive(Debug, Clone)]
pub(crate) struct ArrivalRate {
    intervals: Intervals<ARRIVAL_INTERVALS_MAX>,
    /// Start of the current interval, and its packets so far.
    span_start: Option<Time>,
    span_packets: u32,
}

impl ArrivalRate {
    /// Creates an estimator without packets.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            // UDT4 starts with intervals of a second (window.cpp). A loss among its first packets leaves it with a
            // rate of one packet per second.
            intervals: Intervals::empty(),
            span_start: None,
            span_packets: 0,
        }
    }

    /// Counts a packet that arrived at `now`.
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

    /// Returns the rate in packets per second; `None` while there are too few packets, or their intervals vary too
    /// much.
    #[must_use]
    pub(crate) fn rate(&self) -> Option<f64> {
        let mean = self.intervals.filtered_mean();
        let known = self.intervals.count > ARRIVAL_INTERVALS_MAX / 2
            && mean.packets * 2 > mean.total_packets;
        known.then(|| mean.rate())
    }
}

impl Default for ArrivalRate {
    fn default() -> Self {
        Self::new()
    }
}

/// Estimator of the link capacity (§6.1): the mean interval of 64 packet trains, whose packets were sent back to
/// back.
#[derive(Debug, Clone)]
pub(crate) struct CapacityEstimator {
    intervals: Intervals<TRAINS_MAX>,
    train: Option<Train>,
}

/// Packet train: a pair, or all packets that were sent in the same microsecond, because timers send several at once.
/// (UDT4: pairs only. A network card that coalesces interrupts often delivers both at once, which tells nothing.)
#[derive(Debug, Clone, Copy)]
struct Train {
    first: Seq,
    sent_us: u32,
    received_at: Time,
    /// Number of intervals between its packets. Then the number of intervals before the last burst, and the time when
    /// that burst arrived.
    intervals: u32,
    last_burst: (u32, Time),
}

impl Train {
    fn starting_with(first: Seq, sent_us: u32, received_at: Time) -> Self {
        Self {
            first,
            sent_us,
            received_at,
            intervals: 0,
            last_burst: (0, received_at),
        }
    }

    /// Adds a packet if it continues the train. Returns whether it does.
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

    /// Returns the mean interval and the number of intervals. A burst has the receive time of its first packet.
    fn interval(&self) -> Option<(Time, u32)> {
        let (before, last_came) = self.last_burst;
        let intervals = if before > 0 { before } else { self.intervals };
        let elapsed = last_came.since(self.received_at).as_nanos();
        let each = elapsed.checked_div(u64::from(intervals))?;
        Some((Time::from_nanos(each), intervals))
    }
}

impl CapacityEstimator {
    /// Creates an estimator without packets.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            intervals: Intervals::empty(),
            train: None,
        }
    }

    /// Counts a packet that arrived at `now`. `sent_us` is the sender's timestamp.
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

    /// Returns the capacity in packets per second; 1000 until a few trains arrived. (UDT4 starts as if 64 pairs of
    /// that rate had arrived; 500 packets pass before others outweigh them.)
    #[must_use]
    pub(crate) fn rate(&self) -> f64 {
        let mean = self.intervals.filtered_mean();
        match mean.intervals {
            TRAINS_MIN.. => mean.rate(),
            _ => 1000.0,
        }
    }
}

impl Default for CapacityEstimator {
    fn default() -> Self {
        Self::new()
    }
}

/// Estimator of the round-trip time and its variation (§6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RttEstimator {
    /// Smoothed round-trip time, with weight 7/8 of the old value.
    pub(crate) smoothed: Time,
    /// Mean deviation, with weight 3/4 of the old value (UDT4's code and the draft; the note of 2009 says 7/8).
    pub(crate) variation: Time,
}

impl RttEstimator {
    /// Value before the first sample: ten times SYN (UDT4 core.cpp; the draft has none).
    pub(crate) const INITIAL: Self = Self {
        smoothed: Time::from_millis(100),
        variation: Time::from_millis(50),
    };

    /// Adds a sample. The first replaces the initial value. (UDT4 smooths it in, and takes a second to leave the
    /// initial value on a path of 100 ms.)
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

    /// Returns the time within which nearly every reply comes: the mean plus four variations.
    #[must_use]
    pub(crate) fn upper_bound(&self) -> Time {
        Time::from_nanos(self.smoothed.as_nanos() + 4 * self.variation.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_the_rate_of_evenly_spaced_packets() {
        let mut rate = ArrivalRate::new();
        assert_eq!(rate.rate(), None);
        let mut now = Time::ZERO;
        for _ in 0..400 {
            now += Time::from_micros(100);
            rate.on_packet(now);
        }
        assert_eq!(rate.rate(), Some(10_000.0));
        // An interruption of a second is an outlier.
        rate.on_packet(now + Time::from_secs(1));
        assert_eq!(rate.rate(), Some(10_000.0));
    }

    #[test]
    fn measures_the_mean_rate_of_bursts() {
        let mut rate = ArrivalRate::new();
        for train in 0..40 {
            for packet in 0..20 {
                rate.on_packet(Time::from_micros(2000 * train + packet / 10));
            }
        }
        assert_eq!(rate.rate(), Some(10_000.0));
    }

    /// If intervals were counted instead, a burst of many packets would count as much as one of few. The rate would
    /// be too low, and the window that follows from it would shrink again and again.
    #[test]
    fn weights_intervals_by_their_packets() {
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
    fn has_no_rate_while_intervals_vary() {
        let mut rate = ArrivalRate::new();
        let mut now = Time::ZERO;
        for step in 0..40_u32 {
            now += Time::from_millis(10_u64.pow(1 + step % 4));
            rate.on_packet(now);
        }
        assert_eq!(rate.rate(), None);
    }

    /// Returns the capacity estimate for packets with these send and receive times in µs.
    fn capacity(packets: impl IntoIterator<Item = (u32, u64)>) -> f64 {
        let mut capacity = CapacityEstimator::new();
        for (seq, (sent_us, came_us)) in (0..).zip(packets) {
            capacity.on_packet(Seq::new(seq), sent_us, Time::from_micros(came_us));
        }
        capacity.rate()
    }

    /// libudt sends the second packet of a pair at once, which takes a few microseconds.
    #[test]
    fn capacity_ignores_delayed_pairs() {
        let packets = (0..1024).map(|seq: u32| {
            let (pair, nth) = (seq / 16, seq % 16);
            let delay_us = if pair % 8 == 0 { 1000 } else { 12 };
            let received_at = u64::from(pair) * 10_000 + u64::from(nth) * 100;
            match nth {
                1 => (pair * 10_000 + 3, u64::from(pair) * 10_000 + delay_us),
                _ => (received_at as u32, received_at),
            }
        });
        let found = capacity(packets);
        assert!((found - 1e6 / 12.0).abs() < 1.0, "{found}");
    }

    /// Trains of 40 packets over a link that takes 12 µs per packet; up to eight arrive in one burst.
    #[test]
    fn measures_capacity_from_trains_that_arrive_in_bursts() {
        let packets = (0..4000_u32).map(|seq| {
            let (train, nth) = (seq / 40, u64::from(seq % 40));
            (train * 1000, u64::from(train) * 1000 + (nth / 8 * 8) * 12)
        });
        let found = capacity(packets);
        assert!((found - 1e6 / 12.0).abs() < 1.0, "{found}");
    }

    #[test]
    fn reports_the_default_capacity_without_trains() {
        assert_eq!(capacity((0..15).map(|seq| (seq, u64::from(seq)))), 1000.0);
    }

    #[test]
    fn smooths_the_round_trip_time() {
        let mut rtt = RttEstimator::INITIAL;
        rtt.add_sample(Time::from_millis(20));
        assert_eq!(rtt.smoothed, Time::from_millis(20));
        assert_eq!(rtt.variation, Time::from_millis(10));
        rtt.add_sample(Time::from_millis(180));
        assert_eq!(rtt.smoothed, Time::from_millis(40));
        assert_eq!(rtt.variation, Time::from_micros(47_500));
        (0..100).for_each(|_| rtt.add_sample(Time::from_millis(180)));
        let error_ns = Time::from_millis(180).as_nanos() - rtt.smoothed.as_nanos();
        assert!(error_ns < 10_000, "{error_ns}");
    }
}
