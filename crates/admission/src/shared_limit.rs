// SPDX-License-Identifier: MIT OR Apache-2.0
//! A limit that all clients share: whether it is reached, how often it was, and how many connections waited for it.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Shortest time between two lines that say that a limit is reached. Clients can reach it as often as they like.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Divisor of a limit for the part that must be free before the limit is no longer reached: clients that come and go
/// would otherwise change the state at every turn.
const FREE_DIVISOR: usize = 32;

/// State and counts of a limit.
#[derive(Debug, Default)]
pub struct SharedLimit {
    is_reached: AtomicBool,
    times_reached: AtomicU64,
    waits: AtomicU64,
    log: Mutex<LimitLog>,
}

/// A log line that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLine {
    /// The limit is reached.
    Reached,
    /// The limit is no longer reached.
    Over,
}

/// State of the log about the limit.
#[derive(Debug, Default)]
struct LimitLog {
    says_reached: bool,
    /// Time of the last line that says that the limit is reached.
    last: Option<Instant>,
}

impl SharedLimit {
    /// Sets whether the limit is reached. Returns the log line that is due. A limit that is reached again within a
    /// minute gets its line after that minute, if it still is.
    pub fn set(&self, is_reached: bool, now: Instant) -> Option<LogLine> {
        if is_reached && !self.is_reached.swap(is_reached, Relaxed) {
            self.times_reached.fetch_add(1, Relaxed);
        }
        self.is_reached.store(is_reached, Relaxed);
        self.log.lock().line(is_reached, now)
    }

    /// Sets whether the limit is reached, by how many of `total` are free.
    pub fn set_free(&self, free: usize, total: usize, now: Instant) -> Option<LogLine> {
        let reserve = if self.is_reached() {
            total / FREE_DIVISOR
        } else {
            0
        };
        self.set(free <= reserve, now)
    }

    /// Counts a connection that has to wait.
    pub fn count_wait(&self) {
        self.waits.fetch_add(1, Relaxed);
    }

    /// Whether the limit is reached.
    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Relaxed)
    }

    /// Returns how often the limit was reached.
    pub fn times_reached(&self) -> u64 {
        self.times_reached.load(Relaxed)
    }

    /// Returns the number of connections that had to wait so far.
    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }
}

impl LimitLog {
    fn line(&mut self, is_reached: bool, now: Instant) -> Option<LogLine> {
        let is_early = self.last.is_some_and(|at| now - at < LOG_INTERVAL);
        if is_reached == self.says_reached || is_reached && is_early {
            return None;
        }
        self.says_reached = is_reached;
        if is_reached {
            self.last = Some(now);
            Some(LogLine::Reached)
        } else {
            Some(LogLine::Over)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_over_only_when_some_are_free() {
        let (limit, now) = (SharedLimit::default(), Instant::now());
        assert_eq!(limit.set_free(1, 64, now), None);
        assert_eq!(limit.set_free(0, 64, now), Some(LogLine::Reached));
        for free in [1, 2, 0, 2] {
            assert_eq!(limit.set_free(free, 64, now), None);
            assert!(limit.is_reached(), "{free}");
        }
        assert_eq!(limit.set_free(3, 64, now), Some(LogLine::Over));
        assert_eq!((limit.is_reached(), limit.times_reached()), (false, 1));
    }

    #[test]
    fn small_limit_is_over_with_one_free() {
        let (limit, now) = (SharedLimit::default(), Instant::now());
        limit.set_free(0, 1, now);
        assert!(limit.is_reached());
        limit.set_free(1, 1, now);
        assert!(!limit.is_reached());
    }

    #[test]
    fn bounds_lines_and_counts_each_time() {
        let (limit, mut now) = (SharedLimit::default(), Instant::now());
        let mut lines = 0;
        for second in 0..600 {
            now += Duration::from_secs(1);
            lines += limit.set(second % 2 == 0, now).iter().count();
        }
        assert_eq!(limit.times_reached(), 300);
        assert!((18..=22).contains(&lines), "{lines}");
    }

    #[test]
    fn lasting_limit_gets_its_line_after_a_short_one() {
        let (limit, now) = (SharedLimit::default(), Instant::now());
        let at = |s| now + Duration::from_secs(s);
        assert_eq!(limit.set(true, at(0)), Some(LogLine::Reached));
        assert_eq!(limit.set(false, at(1)), Some(LogLine::Over));
        assert_eq!(limit.set(true, at(2)), None);
        assert_eq!(limit.set(true, at(60)), Some(LogLine::Reached));
        assert_eq!(limit.set(true, at(200)), None);
    }
}
