// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate limits: bytes that connections share, each direction by itself.

use crate::records::counters::Direction;
use longhaul_units::BitRate;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// What may pass at once after silence, and how much a single read takes: this long at the rate.
const BURST: Duration = Duration::from_millis(50);
/// Reads are no smaller than this, however low the rate.
const CHUNK_MIN: u64 = 4096;

/// The virtual scheduling algorithm (ITU-T I.371, GCRA) in bytes: a connection reads first and
/// then waits until what it read would have come at the rate.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: BitRate,
    paid_until: Mutex<Instant>,
}

impl Bucket {
    fn new(rate: BitRate, now: Instant) -> Self {
        Self {
            rate,
            paid_until: Mutex::new(now),
        }
    }

    /// Takes `bytes` at `now`, and says when the next may be taken.
    fn spend(&self, bytes: usize, now: Instant) -> Instant {
        let time = Duration::from(self.rate.time_for(bytes as u64));
        let mut paid_until = self.paid_until.lock();
        *paid_until = (*paid_until).max(now) + time;
        paid_until.checked_sub(BURST).unwrap_or(now)
    }

    /// Bytes that one read may take.
    fn chunk(&self) -> usize {
        let bytes = self.rate.bytes_in(longhaul_units::Time::from(BURST));
        bytes.max(CHUNK_MIN) as usize
    }
}

/// A bucket a direction.
#[derive(Debug)]
pub(crate) struct Pair {
    up: Bucket,
    down: Bucket,
}

impl Pair {
    pub(crate) fn new(rate: BitRate, now: Instant) -> Self {
        Self {
            up: Bucket::new(rate, now),
            down: Bucket::new(rate, now),
        }
    }

    fn bucket(&self, direction: Direction) -> &Bucket {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

/// All limits that one connection is under; most have none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits(Vec<Arc<Pair>>);

impl Limits {
    pub(crate) fn new(pairs: impl IntoIterator<Item = Arc<Pair>>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Takes `bytes`, and says until when the connection has to wait.
    pub(crate) fn spend(
        &self,
        direction: Direction,
        bytes: usize,
        now: impl FnOnce() -> Instant,
    ) -> Option<Instant> {
        if self.0.is_empty() {
            return None;
        }
        let now = now();
        let until = |pair: &Arc<Pair>| pair.bucket(direction).spend(bytes, now);
        self.0.iter().map(until).max().filter(|until| *until > now)
    }

    /// Bytes that one read may take.
    pub(crate) fn chunk(&self, direction: Direction) -> usize {
        let chunk = |pair: &Arc<Pair>| pair.bucket(direction).chunk();
        self.0.iter().map(chunk).min().unwrap_or(usize::MAX)
    }
}

/// The buckets of client addresses that have connections now.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<HashMap<IpAddr, Weak<Pair>>>);

/// Clients that are gone are forgotten at the latest when there are this many entries, and at
/// every doubling.
const FORGET_FROM: usize = 64;

impl Clients {
    /// The buckets that all connections of `client` share.
    pub(crate) fn pair(&self, client: IpAddr, rate: BitRate, now: Instant) -> Arc<Pair> {
        let mut pairs = self.0.lock();
        if let Some(pair) = pairs.get(&client).and_then(Weak::upgrade)
            && pair.up.rate == rate
        {
            return pair;
        }
        if pairs.len() >= FORGET_FROM && pairs.len() == pairs.capacity() {
            pairs.retain(|_, pair| pair.strong_count() > 0);
        }
        let pair = Arc::new(Pair::new(rate, now));
        pairs.insert(client, Arc::downgrade(&pair));
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitRate = BitRate::from_bits(8_000_000);

    /// Reads as fast as the limit lets it; bytes read by `until`.
    fn reads(limits: &Limits, start: Instant, until: Duration) -> usize {
        let (mut now, mut total) = (start, 0);
        while now < start + until {
            total += 10_000;
            now = limits.spend(Direction::Up, 10_000, || now).unwrap_or(now);
        }
        total
    }

    #[test]
    fn the_rate_holds_over_time_and_the_burst_is_bounded() {
        let start = Instant::now();
        let limits = Limits::new([Arc::new(Pair::new(RATE, start))]);
        let total = reads(&limits, start, Duration::from_secs(10));
        let (rate, burst) = (10_000_000, 50_000);
        assert!((rate..=rate + burst + 10_000).contains(&total), "{total}");
    }

    #[test]
    fn silence_earns_no_more_than_a_burst() {
        let start = Instant::now();
        let limits = Limits::new([Arc::new(Pair::new(RATE, start))]);
        limits.spend(Direction::Up, 10_000, || start);
        let later = start + Duration::from_secs(3600);
        let total = reads(&limits, later, Duration::from_millis(1));
        assert!((50_000..=70_000).contains(&total), "{total}");
    }

    #[test]
    fn connections_share_and_directions_do_not() {
        let now = Instant::now();
        let clients = Clients::default();
        let client = [192, 0, 2, 1].into();
        let (one, two) = (
            clients.pair(client, RATE, now),
            clients.pair(client, RATE, now),
        );
        let (one, two) = (Limits::new([one]), Limits::new([two]));
        assert_eq!(one.spend(Direction::Up, 50_000, || now), None);
        assert!(two.spend(Direction::Up, 50_000, || now).is_some());
        assert_eq!(two.spend(Direction::Down, 50_000, || now), None);
    }

    #[test]
    fn clients_that_left_are_forgotten() {
        let (clients, now) = (Clients::default(), Instant::now());
        for n in 0..100_000u32 {
            clients.pair(IpAddr::V4(n.into()), RATE, now);
        }
        assert!(clients.0.lock().len() < 1000);
    }

    #[test]
    fn the_strictest_limit_counts() {
        let now = Instant::now();
        let fast = Arc::new(Pair::new(BitRate::from_bits(8_000_000_000), now));
        let slow = Arc::new(Pair::new(RATE, now));
        let limits = Limits::new([fast, slow]);
        assert_eq!(limits.chunk(Direction::Up), 50_000);
        let until = limits.spend(Direction::Up, 1_050_000, || now).unwrap();
        assert_eq!((until - now).as_millis(), 1000);
        assert_eq!(Limits::default().chunk(Direction::Up), usize::MAX);
    }
}
