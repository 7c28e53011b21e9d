// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a receiver measures: how fast packets arrive, what the link could carry, and the round trip
//! (draft-gg-udt-03 §6.1, §6.2).

use units::Time;

/// Intervals between packets that came one after the other.
const ARRIVALS: usize = 16;
/// Intervals of pairs that were sent back to back.
const PAIRS: usize = 64;
/// So many of them say something.
const PAIRS_MIN: usize = 4;
/// What is so many times the median, or so small a part of it, is an interruption or a burst.
const OUTLIER: u64 = 8;
/// Packets that come in one piece have no interval; UDT4's clock counts microseconds, too.
const SHORTEST: Time = Time::from_micros(1);

/// The newest intervals from packet to packet, in nanoseconds, and how many packets had each of them.
#[derive(Debug, Clone)]
struct Intervals<const N: usize> {
    newest: [(u64, u32); N],
    /// Of them; the others are none yet.
    count: usize,
    at: usize,
}

impl<const N: usize> Intervals<N> {
    fn none() -> Self {
        Self {
            newest: [(0, 0); N],
            count: 0,
            at: 0,
        }
    }

    fn add(&mut self, interval: Time, packets: u32) {
        self.newest[self.at] = (interval.max(SHORTEST).as_nanos(), packets);
        self.at = (self.at + 1) % N;
        self.count = (self.count + 1).min(N);
    }

    /// What those have in common that are not far from the median. Packets are counted, not intervals: where a small window
    /// leaves gaps, one interval has all that comes between two of them, and the next is a gap.
    fn usual(&self) -> Usual {
        let mut sorted = self.newest;
        let sorted = &mut sorted[..self.count];
        sorted.sort_unstable();
        let packets: u64 = sorted.iter().map(|(_, packets)| u64::from(*packets)).sum();
        let median = middle(sorted, packets / 2);
        let (low, high) = (median / OUTLIER, median.saturating_mul(OUTLIER));
        sorted
            .iter()
            .filter(|(one, _)| (low + 1..high).contains(one))
            .fold(Usual::of(packets), Usual::and)
    }
}

/// The interval that packet number `nth` of all had.
fn middle(sorted: &[(u64, u32)], nth: u64) -> u64 {
    let mut before = 0;
    let of_it = sorted.iter().find(|(_, packets)| {
        before += u64::from(*packets);
        before > nth
    });
    of_it.map_or(0, |(interval, _)| *interval)
}

/// Intervals that are near their median.
#[derive(Debug, Clone, Copy)]
struct Usual {
    elapsed: f64,
    packets: u64,
    /// Packets of those that are not near, too.
    of: u64,
    intervals: usize,
}

impl Usual {
    fn of(packets: u64) -> Self {
        Self {
            elapsed: 0.0,
            packets: 0,
            of: packets,
            intervals: 0,
        }
    }

    fn and(self, (interval, packets): &(u64, u32)) -> Self {
        Self {
            elapsed: self.elapsed + *interval as f64 * f64::from(*packets),
            packets: self.packets + u64::from(*packets),
            intervals: self.intervals + 1,
            ..self
        }
    }

    /// Packets a second.
    fn rate(&self) -> f64 {
        self.packets as f64 * 1e9 / self.elapsed
    }
}

/// An interval is over so many packets as come in this time, for they come in trains: a sender's timer is no finer, and
/// a network card hands over several at once. (UDT4: one packet, however far from the next.)
const TRAIN: Time = Time::from_millis(1);

/// How fast packets arrive (§6.1): the mean over the packets of 16 intervals, if more than half of them have one that is
/// near their median.
#[derive(Debug, Clone)]
pub struct ArrivalRate {
    intervals: Intervals<ARRIVALS>,
    /// When the last interval ended, and packets since then.
    since: Option<Time>,
    packets: u32,
}

impl ArrivalRate {
    /// Nothing has arrived.
    #[must_use]
    pub fn new() -> Self {
        Self {
            // UDT4 begins with seconds (window.cpp), and a loss among its first packets leaves it with a packet a second.
            intervals: Intervals::none(),
            since: None,
            packets: 0,
        }
    }

    /// A packet arrived.
    pub fn arrived(&mut self, now: Time) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.packets += 1;
        let elapsed = now.since(since);
        if elapsed >= TRAIN {
            let each = elapsed.as_nanos() / u64::from(self.packets);
            self.intervals.add(Time::from_nanos(each), self.packets);
            (self.since, self.packets) = (Some(now), 0);
        }
    }

    /// Packets a second; `None` while there are too few, or they come too unevenly to say.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        let usual = self.intervals.usual();
        let known = self.intervals.count > ARRIVALS / 2 && usual.packets * 2 > usual.of;
        known.then(|| usual.rate())
    }
}

impl Default for ArrivalRate {
    fn default() -> Self {
        Self::new()
    }
}

/// What the link could carry (§6.1): the mean of 64 intervals between packets that were sent back to
/// back.
#[derive(Debug, Clone)]
pub struct Capacity(Intervals<PAIRS>);

impl Capacity {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self(Intervals::none())
    }

    /// The second packet of a pair came so long after the first.
    pub fn pair(&mut self, interval: Time) {
        self.0.add(interval, 1);
    }

    /// Packets a second; 1000 until a few pairs have come. (UDT4: as if 64 had come that say so, and 500 packets pass before
    /// others outweigh them.)
    #[must_use]
    pub fn get(&self) -> f64 {
        let usual = self.0.usual();
        match usual.intervals {
            PAIRS_MIN.. => usual.rate(),
            _ => 1000.0,
        }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self::new()
    }
}

/// The round trip and how much it varies (§6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// Smoothed, 7/8 of the old.
    pub mean: Time,
    /// Of the mean, 3/4 of the old (UDT4's code and the draft; the note of 2009 says 7/8).
    pub variation: Time,
}

impl RoundTrip {
    /// Before anything was measured: ten times SYN (UDT4 core.cpp; the draft says nothing).
    pub const FIRST: Self = Self {
        mean: Time::from_millis(100),
        variation: Time::from_millis(50),
    };

    /// One more; the first counts as it is. (UDT4 takes a second to forget that it knew nothing, on a path of 100 ms.)
    pub fn measured(&mut self, sample: Time) {
        if *self == Self::FIRST {
            let variation = Time::from_nanos(sample.as_nanos() / 2);
            *self = Self {
                mean: sample,
                variation,
            };
            return;
        }
        let [mean, variation, sample] = [self.mean, self.variation, sample].map(Time::as_nanos);
        self.variation = Time::from_nanos((variation * 3 + sample.abs_diff(mean)) / 4);
        self.mean = Time::from_nanos((mean * 7 + sample) / 8);
    }

    /// What an answer takes at the most, but for rare ones: the mean and four times the variation.
    #[must_use]
    pub fn long(&self) -> Time {
        Time::from_nanos(self.mean.as_nanos() + 4 * self.variation.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_come_evenly_have_a_rate() {
        let mut rate = ArrivalRate::new();
        assert_eq!(rate.get(), None);
        let mut now = Time::ZERO;
        for _ in 0..400 {
            now += Time::from_micros(100);
            rate.arrived(now);
        }
        assert_eq!(rate.get(), Some(10_000.0));
        // One interruption of a second is none of the rate's.
        rate.arrived(now + Time::from_secs(1));
        assert_eq!(rate.get(), Some(10_000.0));
    }

    #[test]
    fn packets_that_come_in_trains_have_the_rate_of_both() {
        let mut rate = ArrivalRate::new();
        for train in 0..40 {
            for packet in 0..20 {
                rate.arrived(Time::from_micros(2000 * train + packet / 10));
            }
        }
        assert_eq!(rate.get(), Some(10_000.0));
    }

    /// Were intervals counted instead, many packets in one and few in the next would be fewer than they are, and the window
    /// that follows from that lets fewer and fewer go.
    #[test]
    fn each_packet_counts() {
        let mut rate = ArrivalRate::new();
        for millisecond in 0..40 {
            let packets = if millisecond % 2 == 0 { 60 } else { 15 };
            for packet in 0..packets {
                rate.arrived(Time::from_micros(
                    1000 * millisecond + 1000 / packets * packet,
                ));
            }
        }
        let found = rate.get().unwrap();
        assert!((found - 37_500.0).abs() < 3_000.0, "{found}");
    }

    #[test]
    fn uneven_packets_have_none() {
        let mut rate = ArrivalRate::new();
        let mut now = Time::ZERO;
        for step in 0..40_u32 {
            now += Time::from_millis(10_u64.pow(1 + step % 4));
            rate.arrived(now);
        }
        assert_eq!(rate.get(), None);
    }

    #[test]
    fn capacity_is_what_most_pairs_say() {
        let mut capacity = Capacity::new();
        for pair in 0..64 {
            let late = if pair % 8 == 0 { 1000 } else { 12 };
            capacity.pair(Time::from_micros(late));
        }
        assert!(
            (capacity.get() - 1e6 / 12.0).abs() < 1.0,
            "{}",
            capacity.get()
        );
    }

    #[test]
    fn a_round_trip_is_smoothed() {
        let mut rtt = RoundTrip::FIRST;
        rtt.measured(Time::from_millis(20));
        assert_eq!(rtt.mean, Time::from_millis(20));
        assert_eq!(rtt.variation, Time::from_millis(10));
        rtt.measured(Time::from_millis(180));
        assert_eq!(rtt.mean, Time::from_millis(40));
        assert_eq!(rtt.variation, Time::from_micros(47_500));
        (0..100).for_each(|_| rtt.measured(Time::from_millis(180)));
        let off = Time::from_millis(180).as_nanos() - rtt.mean.as_nanos();
        assert!(off < 10_000, "{off}");
    }
}
