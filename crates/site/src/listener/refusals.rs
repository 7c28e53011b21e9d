// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that are refused: one line a burst, and after each wrong token from an address a longer wait.
//!
//! Strangers choose neither how often something is printed nor how much is kept.

use super::connections::network;
use crate::{lines::Records, record::Record};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// Addresses that are kept, at most, some 150 bytes each. Beyond, the one that was quiet for longest is forgotten.
const ADDRESSES_MAX: usize = 4096;

/// The wait after an address's first wrong token; it doubles with each more. A token has 256 bits: this is not what
/// keeps it from being guessed, but who tries costs no more than a few answers.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// The longest wait, which a client's own timeout should not cut short.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// A burst ends when an address was quiet for so long; and one that goes on is said again so often.
const QUIET: Duration = Duration::from_secs(600);

/// Lines in a row for all addresses together, and how long until there may be one more.
const LINES_MAX: u32 = 32;
const LINE_EVERY: Duration = Duration::from_secs(4);

/// Why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    WrongToken,
    /// It has as many connections as it may have.
    TooManyConnections,
    /// Whatever else.
    Other,
}

/// What follows from a refusal.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// How long the client waits for its answer.
    delay: Duration,
    /// There is to be a line, for so many refusals.
    line: Option<u64>,
}

/// What is known of addresses, or networks of IPv6.
#[derive(Debug)]
pub(crate) struct Refusals(Mutex<Table>);

#[derive(Debug)]
struct Table {
    addresses: HashMap<IpAddr, Known>,
    lines: u32,
    lines_since: Instant,
}

#[derive(Debug, Default)]
struct Known {
    last: Option<Instant>,
    wrong_tokens: u32,
    bursts: [Burst; 3],
}

#[derive(Debug, Default, Clone, Copy)]
struct Burst {
    said: Option<Instant>,
    unsaid: u64,
}

impl Refusals {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Table {
            addresses: HashMap::new(),
            lines: LINES_MAX,
            lines_since: now,
        }))
    }

    /// Says that a client is refused, if it is not said already; how long the client waits.
    pub(crate) fn say(
        &self,
        client: SocketAddr,
        cause: Cause,
        why: &str,
        records: Records,
    ) -> Duration {
        let verdict = self.refuse(client.ip(), cause, Instant::now());
        if let Some(count) = verdict.line {
            let why = why.to_owned();
            records.write(&Record::Refused { client, why, count });
        }
        verdict.delay
    }

    fn refuse(&self, from: IpAddr, cause: Cause, now: Instant) -> Verdict {
        self.0.lock().refuse(network(from), cause, now)
    }
}

impl Table {
    fn refuse(&mut self, from: IpAddr, cause: Cause, now: Instant) -> Verdict {
        self.fill(now);
        self.make_room(from);
        let known = self.addresses.entry(from).or_default();
        if known
            .last
            .is_some_and(|last| now.duration_since(last) >= QUIET)
        {
            *known = Known::default();
        }
        known.last = Some(now);
        let delay = match cause {
            Cause::WrongToken => {
                known.wrong_tokens += 1;
                delay(known.wrong_tokens)
            }
            _ => Duration::ZERO,
        };
        let burst = &mut known.bursts[cause as usize];
        burst.unsaid += 1;
        let is_due = burst
            .said
            .is_none_or(|said| now.duration_since(said) >= QUIET);
        let line = (is_due && self.lines > 0).then_some(burst.unsaid);
        if line.is_some() {
            self.lines -= 1;
            *burst = Burst {
                said: Some(now),
                unsaid: 0,
            };
        }
        Verdict { delay, line }
    }

    /// Lines that have become possible.
    fn fill(&mut self, now: Instant) {
        while self.lines < LINES_MAX && now.duration_since(self.lines_since) >= LINE_EVERY {
            self.lines += 1;
            self.lines_since += LINE_EVERY;
        }
        if self.lines == LINES_MAX {
            self.lines_since = now;
        }
    }

    fn make_room(&mut self, newcomer: IpAddr) {
        if self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&newcomer) {
            return;
        }
        let quietest = self.addresses.iter().min_by_key(|(_, known)| known.last);
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
    use Cause::{Other, TooManyConnections, WrongToken};

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn delays_grow_for_an_address_and_end_with_its_silence() {
        let begin = Instant::now();
        let refusals = Refusals::new(begin);
        let delay = |from, at| refusals.refuse(from, WrongToken, at).delay.as_millis();
        let delays: Vec<_> = (0..8).map(|_| delay(address(1), begin)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(delay(address(2), begin), 100);
        assert_eq!(
            refusals.refuse(address(2), Other, begin).delay.as_millis(),
            0
        );
        assert_eq!(delay(address(1), begin + QUIET), 100);
        for _ in 0..100 {
            assert!(delay(address(3), begin) <= 5000);
        }
    }

    #[test]
    fn says_one_line_a_burst() {
        let begin = Instant::now();
        let refusals = Refusals::new(begin);
        let line = |from, cause, after: u64| {
            let at = begin + Duration::from_secs(after);
            refusals.refuse(address(from), cause, at).line
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
    fn keeps_and_says_little_of_many_addresses() {
        let begin = Instant::now();
        let refusals = Refusals::new(begin);
        let all = 3 * ADDRESSES_MAX as u32;
        let lines = (0..all)
            .filter_map(|number| refusals.refuse(address(number), WrongToken, begin).line)
            .count();
        assert_eq!(lines, LINES_MAX as usize);
        assert_eq!(refusals.0.lock().addresses.len(), ADDRESSES_MAX);
        let later = begin + 2 * LINE_EVERY;
        let lines = (0..100)
            .filter_map(|number| refusals.refuse(address(number), WrongToken, later).line)
            .count();
        assert_eq!(lines, 2);
    }
}
