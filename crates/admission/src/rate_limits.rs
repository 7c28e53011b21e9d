// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate limits that connections share, for each direction separately.

use longhaul_units::BitRate;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// The time at the full rate whose bytes are the burst after an idle time, and the size of one read.
const BURST: Duration = Duration::from_millis(50);
/// The least size of a read in bytes, whatever the rate.
const CHUNK_MIN: u64 = 4096;

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the destination.
    Up,
    /// From the destination to the client.
    Down,
}

/// The virtual scheduling algorithm (ITU-T I.371, GCRA) in bytes: a connection reads first, and then waits for the time
/// that its bytes take at the rate.
#[derive(Debug)]
pub struct Bucket {
    rate: BitRate,
    theoretical_arrival: Mutex<Instant>,
}

impl Bucket {
    /// Creates a bucket of `rate`, which begins with a burst.
    pub fn new(rate: BitRate, now: Instant) -> Self {
        Self {
            rate,
            theoretical_arrival: Mutex::new(now),
        }
    }

    /// Takes `bytes` at `now`; returns the time at which the next bytes may be taken.
    pub fn spend(&self, bytes: usize, now: Instant) -> Instant {
        let time = Duration::from(self.rate.time_for(bytes as u64));
        let mut theoretical_arrival = self.theoretical_arrival.lock();
        *theoretical_arrival = (*theoretical_arrival).max(now) + time;
        theoretical_arrival.checked_sub(BURST).unwrap_or(now)
    }

    /// The most bytes of one read.
    fn chunk(&self) -> usize {
        let bytes = self.rate.bytes_in(longhaul_units::Time::from(BURST));
        bytes.max(CHUNK_MIN) as usize
    }
}

/// A rate limit in bits per second, for each direction separately.
#[derive(Debug)]
pub struct RateLimit {
    up: Bucket,
    down: Bucket,
}

impl RateLimit {
    /// Creates a limit of `rate` in each direction.
    pub fn new(rate: BitRate, now: Instant) -> Self {
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

/// All rate limits that apply to one connection; most connections have none.
#[derive(Debug, Clone, Default)]
pub struct RateLimits(Vec<Arc<RateLimit>>);

impl RateLimits {
    /// Combines several limits: the slowest one decides.
    pub fn new(limits: impl IntoIterator<Item = Arc<RateLimit>>) -> Self {
        Self(limits.into_iter().collect())
    }

    /// Takes `bytes`; returns the time until which the connection must wait, if it must.
    pub fn spend(
        &self,
        direction: Direction,
        bytes: usize,
        now: impl FnOnce() -> Instant,
    ) -> Option<Instant> {
        if self.0.is_empty() {
            return None;
        }
        let now = now();
        let until = |limit: &Arc<RateLimit>| limit.bucket(direction).spend(bytes, now);
        self.0.iter().map(until).max().filter(|until| *until > now)
    }

    /// The most bytes of one read.
    pub fn chunk(&self, direction: Direction) -> usize {
        let chunk = |limit: &Arc<RateLimit>| limit.bucket(direction).chunk();
        self.0.iter().map(chunk).min().unwrap_or(usize::MAX)
    }
}

/// The rate limits of client addresses that have connections.
#[derive(Debug, Default)]
pub struct ClientRateLimits(Mutex<HashMap<IpAddr, Weak<RateLimit>>>);

/// Least number of entries at which those of clients without connections are removed. They are removed whenever the
/// table is full, before it grows.
const CLEANUP_FROM: usize = 64;

impl ClientRateLimits {
    /// Returns the rate limit that all connections of `client` share.
    pub fn limit(&self, client: IpAddr, rate: BitRate, now: Instant) -> Arc<RateLimit> {
        let mut pairs = self.0.lock();
        if let Some(pair) = pairs.get(&client).and_then(Weak::upgrade)
            && pair.up.rate == rate
        {
            return pair;
        }
        if pairs.len() >= CLEANUP_FROM && pairs.len() == pairs.capacity() {
            pairs.retain(|_, pair| pair.strong_count() > 0);
        }
        let pair = Arc::new(RateLimit::new(rate, now));
        pairs.insert(client, Arc::downgrade(&pair));
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitRate = BitRate::from_bits(8_000_000);

    /// Reads as fast as the limits allow, and returns the bytes read in the time `until`.
    fn reads(limits: &RateLimits, start: Instant, until: Duration) -> usize {
        let (mut now, mut total) = (start, 0);
        while now < start + until {
            total += 10_000;
            now = limits.spend(Direction::Up, 10_000, || now).unwrap_or(now);
        }
        total
    }

    #[test]
    fn holds_the_rate_and_bounds_the_burst() {
        let start = Instant::now();
        let limits = RateLimits::new([Arc::new(RateLimit::new(RATE, start))]);
        let total = reads(&limits, start, Duration::from_secs(10));
        let (rate, burst) = (10_000_000, 50_000);
        assert!((rate..=rate + burst + 10_000).contains(&total), "{total}");
    }

    #[test]
    fn allows_one_burst_after_an_idle_time() {
        let start = Instant::now();
        let limits = RateLimits::new([Arc::new(RateLimit::new(RATE, start))]);
        limits.spend(Direction::Up, 10_000, || start);
        let later = start + Duration::from_secs(3600);
        let total = reads(&limits, later, Duration::from_millis(1));
        assert!((50_000..=70_000).contains(&total), "{total}");
    }

    #[test]
    fn connections_share_a_limit_and_directions_do_not() {
        let now = Instant::now();
        let clients = ClientRateLimits::default();
        let client = [192, 0, 2, 1].into();
        let (one, two) = (
            clients.limit(client, RATE, now),
            clients.limit(client, RATE, now),
        );
        let (one, two) = (RateLimits::new([one]), RateLimits::new([two]));
        assert_eq!(one.spend(Direction::Up, 50_000, || now), None);
        assert!(two.spend(Direction::Up, 50_000, || now).is_some());
        assert_eq!(two.spend(Direction::Down, 50_000, || now), None);
    }

    #[test]
    fn removes_clients_without_connections() {
        let (clients, now) = (ClientRateLimits::default(), Instant::now());
        for n in 0..100_000u32 {
            clients.limit(IpAddr::V4(n.into()), RATE, now);
        }
        assert!(clients.0.lock().len() < 1000);
    }

    #[test]
    fn applies_the_slowest_limit() {
        let now = Instant::now();
        let fast = Arc::new(RateLimit::new(BitRate::from_bits(8_000_000_000), now));
        let slow = Arc::new(RateLimit::new(RATE, now));
        let limits = RateLimits::new([fast, slow]);
        assert_eq!(limits.chunk(Direction::Up), 50_000);
        let until = limits.spend(Direction::Up, 1_050_000, || now).unwrap();
        assert_eq!((until - now).as_millis(), 1000);
        assert_eq!(RateLimits::default().chunk(Direction::Up), usize::MAX);
    }
}
