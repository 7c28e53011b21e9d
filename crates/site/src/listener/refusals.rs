// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log of refused clients: one line for a burst, and a growing delay after each wrong token from a host.
//!
//! Unauthenticated clients can influence neither the rate of lines nor the memory used.

use super::connections::network;
use crate::{record::Record, record_writer::RecordWriter};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// Most hosts remembered, some 150 bytes each. Beyond, the one with the oldest refusal is dropped.
const ADDRESSES_MAX: usize = 4096;

/// Delay after a host's first wrong token. It doubles with each more. A token has 256 bits and can't be guessed; the
/// delay only bounds the cost of attempts.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// Longest delay. It should be shorter than a client's own timeout.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Time without refusals that ends a burst, and the interval to log a burst that continues.
const BURST_GAP: Duration = Duration::from_secs(600);

/// Most lines in a row for all hosts together, and the interval after which one more is allowed.
const LINES_MAX: u32 = 32;
const LINE_INTERVAL: Duration = Duration::from_secs(4);

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalCause {
    WrongToken,
    /// The host has too many connections.
    TooManyConnections,
    /// Any other reason.
    Other,
}

/// Actions that follow a refusal.
#[derive(Debug, PartialEq, Eq)]
struct RefusalAction {
    /// Time that the client waits for its response.
    delay: Duration,
    /// Number of refusals to log in one line; `None` to log nothing.
    line: Option<u64>,
}

/// Refusals by host.
#[derive(Debug)]
pub(crate) struct RefusalLog(Mutex<Table>);

#[derive(Debug)]
struct Table {
    addresses: HashMap<IpAddr, AddressState>,
    lines: u32,
    refilled_at: Instant,
}

#[derive(Debug, Default)]
struct AddressState {
    last: Option<Instant>,
    wrong_tokens: u32,
    bursts: [Burst; 3],
}

#[derive(Debug, Default, Clone, Copy)]
struct Burst {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl RefusalLog {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Table {
            addresses: HashMap::new(),
            lines: LINES_MAX,
            refilled_at: now,
        }))
    }

    /// Logs a refusal, unless its burst is logged already. Returns the time that the client waits.
    pub(crate) fn report(
        &self,
        client: SocketAddr,
        cause: RefusalCause,
        reason: &str,
        records: RecordWriter,
    ) -> Duration {
        let action = self.refuse(client.ip(), cause, Instant::now());
        if let Some(count) = action.line {
            let reason = reason.to_owned();
            records.write(&Record::Refused {
                client,
                reason,
                count,
            });
        }
        action.delay
    }

    fn refuse(&self, from: IpAddr, cause: RefusalCause, now: Instant) -> RefusalAction {
        self.0.lock().refuse(network(from), cause, now)
    }
}

impl Table {
    fn refuse(&mut self, from: IpAddr, cause: RefusalCause, now: Instant) -> RefusalAction {
        self.refill(now);
        self.evict_quietest(from);
        let state = self.addresses.entry(from).or_default();
        if state
            .last
            .is_some_and(|last| now.duration_since(last) >= BURST_GAP)
        {
            *state = AddressState::default();
        }
        state.last = Some(now);
        let delay = match cause {
            RefusalCause::WrongToken => {
                state.wrong_tokens += 1;
                delay(state.wrong_tokens)
            }
            _ => Duration::ZERO,
        };
        let burst = &mut state.bursts[cause as usize];
        burst.unlogged += 1;
        let is_due = burst
            .logged_at
            .is_none_or(|logged_at| now.duration_since(logged_at) >= BURST_GAP);
        let line = (is_due && self.lines > 0).then_some(burst.unlogged);
        if line.is_some() {
            self.lines -= 1;
            *burst = Burst {
                logged_at: Some(now),
                unlogged: 0,
            };
        }
        RefusalAction { delay, line }
    }

    /// Adds the lines that have become available.
    fn refill(&mut self, now: Instant) {
        while self.lines < LINES_MAX && now.duration_since(self.refilled_at) >= LINE_INTERVAL {
            self.lines += 1;
            self.refilled_at += LINE_INTERVAL;
        }
        if self.lines == LINES_MAX {
            self.refilled_at = now;
        }
    }

    fn evict_quietest(&mut self, host: IpAddr) {
        if self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&host) {
            return;
        }
        let quietest = self.addresses.iter().min_by_key(|(_, state)| state.last);
        if let Some(address) = quietest.map(|(address, _)| *address) {
            self.addresses.remove(&address);
        }
    }
}

fn delay(wrong_tokens: u32) -> Duration {
    let doubled = wrong_tokens.saturating_sub(1).min(16);
    (DELAY_MIN * (1 << doubled)).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use RefusalCause::{Other, TooManyConnections, WrongToken};

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn delays_grow_by_host_and_reset_after_a_gap() {
        let begin = Instant::now();
        let refusal_log = RefusalLog::new(begin);
        let delay = |from, at| refusal_log.refuse(from, WrongToken, at).delay.as_millis();
        let delays: Vec<_> = (0..8).map(|_| delay(address(1), begin)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(delay(address(2), begin), 100);
        assert_eq!(
            refusal_log
                .refuse(address(2), Other, begin)
                .delay
                .as_millis(),
            0
        );
        assert_eq!(delay(address(1), begin + BURST_GAP), 100);
        for _ in 0..100 {
            assert!(delay(address(3), begin) <= 5000);
        }
    }

    #[test]
    fn logs_one_line_per_burst() {
        let begin = Instant::now();
        let refusal_log = RefusalLog::new(begin);
        let line = |from, cause, after: u64| {
            let at = begin + Duration::from_secs(after);
            refusal_log.refuse(address(from), cause, at).line
        };
        assert_eq!(line(1, WrongToken, 0), Some(1));
        for second in 1..599 {
            assert_eq!(line(1, WrongToken, second), None);
        }
        assert_eq!(line(1, TooManyConnections, 600), Some(1), "another cause");
        assert_eq!(line(2, WrongToken, 600), Some(1), "another address");
        assert_eq!(line(1, WrongToken, 601), Some(599), "it goes on");
        assert_eq!(line(1, WrongToken, 1300), Some(1), "another burst");
    }

    #[test]
    fn bounds_memory_and_lines_for_many_hosts() {
        let begin = Instant::now();
        let refusal_log = RefusalLog::new(begin);
        let all = 3 * ADDRESSES_MAX as u32;
        let lines = (0..all)
            .filter_map(|number| refusal_log.refuse(address(number), WrongToken, begin).line)
            .count();
        assert_eq!(lines, LINES_MAX as usize);
        assert_eq!(refusal_log.0.lock().addresses.len(), ADDRESSES_MAX);
        let later = begin + 2 * LINE_INTERVAL;
        let lines = (0..100)
            .filter_map(|number| refusal_log.refuse(address(number), WrongToken, later).line)
            .count();
        assert_eq!(lines, 2);
    }
}
