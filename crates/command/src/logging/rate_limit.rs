// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit on the log lines that remote hosts can cause.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// Time after which a line with the same key is written again.
const INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of keys in that time. One line stands for all further keys. Memory: under 1 KiB for keys of 24 bytes.
const KEYS_MAX: usize = 16;

/// Limit of one log line per key in ten minutes, for at most sixteen keys. A key is the cause of a line, often with the
/// network of a remote address.
#[derive(Debug)]
pub struct RateLimit<K>(Mutex<State<K>>);

#[derive(Debug)]
struct State<K> {
    written: HashMap<K, Instant>,
    /// Time of the last line that stood for further keys.
    overflow: Option<Instant>,
}

/// Decision on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write the line.
    Write,
    /// Write one line that says that there are more keys, without their names.
    WriteOverflow,
    /// Write nothing.
    Suppress,
}

impl<K> Default for RateLimit<K> {
    fn default() -> Self {
        Self(Mutex::new(State {
            written: HashMap::new(),
            overflow: None,
        }))
    }
}

impl<K: Eq + Hash> RateLimit<K> {
    /// Decides on a line about `key` now.
    pub fn check(&self, key: K) -> Decision {
        self.check_at(key, Instant::now())
    }

    fn check_at(&self, key: K, now: Instant) -> Decision {
        let mut state = self.0.lock();
        let is_recent = |at: Instant| now.duration_since(at) < INTERVAL;
        state.written.retain(|_, at| is_recent(*at));
        if state.written.contains_key(&key) {
            return Decision::Suppress;
        }
        if state.written.len() < KEYS_MAX {
            state.written.insert(key, now);
            return Decision::Write;
        }
        if state.overflow.is_some_and(is_recent) {
            return Decision::Suppress;
        }
        state.overflow = Some(now);
        Decision::WriteOverflow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_each_key_once_per_interval() {
        let (limit, now) = (RateLimit::default(), Instant::now());
        assert_eq!(limit.check_at("a", now), Decision::Write);
        assert_eq!(limit.check_at("a", now), Decision::Suppress);
        assert_eq!(limit.check_at("b", now), Decision::Write);
        assert_eq!(limit.check_at("a", now + INTERVAL), Decision::Write);
    }

    #[test]
    fn bounds_lines_for_any_number_of_keys() {
        let (limit, now) = (RateLimit::default(), Instant::now());
        let decisions: Vec<_> = (0..200).map(|key| limit.check_at(key, now)).collect();
        assert!(
            decisions[..KEYS_MAX]
                .iter()
                .all(|decision| *decision == Decision::Write)
        );
        assert_eq!(decisions[KEYS_MAX], Decision::WriteOverflow);
        assert!(
            decisions[KEYS_MAX + 1..]
                .iter()
                .all(|decision| *decision == Decision::Suppress)
        );
    }
}
