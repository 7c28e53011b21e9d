// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet-delivery traces in Mahimahi's format: a link whose capacity changes by the millisecond.
//!
//! Each line is a whole number of milliseconds since the start, never less than the line before:
//! one opportunity to deliver [`OPPORTUNITY_BYTES`]. The same number on several lines makes several
//! opportunities. After the last line the trace begins again, shifted by the last line's time.
//!
//! Bytes are accounted as in mm-link(1): an opportunity may carry several small segments, and a
//! segment may begin in one opportunity and end in the next; it is delivered by the opportunity
//! that carries its last byte. What an opportunity can't fill because nothing waits is lost.

use longhaul_units::{BitRate, Bytes, Time};
use std::{fmt, str::FromStr, sync::Arc};

/// What one opportunity carries.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// A parsed trace: at least one opportunity and a period above zero. Four bytes a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds since the start of the period, in order.
    opportunities: Vec<u32>,
}

impl Trace {
    /// The most lines that a trace may have (64 MiB): an hour at 54 Mbit/s, a minute at 3.3 Gbit/s.
    pub const LINES_MAX: usize = 1 << 24;

    /// How long one pass takes: the time on the last line.
    #[must_use]
    pub fn period(&self) -> Time {
        Time::from_millis(u64::from(self.last()))
    }

    /// Opportunities × 1,500 bytes over the period.
    #[must_use]
    pub fn mean_rate(&self) -> BitRate {
        let bytes = self.opportunities.len() as u64 * u64::from(OPPORTUNITY_BYTES);
        BitRate::mean(Bytes::new(bytes), self.period()).unwrap_or(BitRate::from_bits(1))
    }

    fn last(&self) -> u32 {
        self.opportunities.last().copied().unwrap_or(0)
    }
}

/// Why a text is not a trace. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Neither a number of milliseconds nor blank.
    #[error("line {line}: {text:?} is not a whole number of milliseconds below 2^32")]
    NotANumber {
        /// Where.
        line: usize,
        /// The line, cut to 40 characters.
        text: String,
    },
    /// A time before that of the line above.
    #[error("line {line}: {ms} ms is before {previous} ms on an earlier line")]
    Decreasing {
        /// Where.
        line: usize,
        /// What it says.
        ms: u32,
        /// What came before.
        previous: u32,
    },
    /// Too many lines.
    #[error("line {line}: a trace has at most {} lines", Trace::LINES_MAX)]
    TooLong {
        /// The first line that is too much.
        line: usize,
    },
    /// No line at all.
    #[error("the trace is empty: it needs at least one line with a time in milliseconds")]
    Empty,
    /// All opportunities are at 0 ms, so that the trace would repeat without time passing.
    #[error("line {line}: the last time is 0 ms, so the trace has no length")]
    NoPeriod {
        /// The last line.
        line: usize,
    },
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self {
            opportunities: Vec::new(),
        };
        let mut line = 0;
        for (i, content) in text
            .lines()
            .enumerate()
            .filter(|(_, s)| !s.trim().is_empty())
        {
            line = i + 1;
            trace.push(line, content.trim())?;
        }
        match trace.opportunities.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoPeriod { line }),
            Some(_) => Ok(trace),
        }
    }
}

impl Trace {
    fn push(&mut self, line: usize, text: &str) -> Result<(), TraceError> {
        let previous = self.last();
        if self.opportunities.len() == Self::LINES_MAX {
            return Err(TraceError::TooLong { line });
        }
        match text.parse::<u32>() {
            Err(_) => {
                let text = text.chars().take(40).collect();
                Err(TraceError::NotANumber { line, text })
            }
            Ok(ms) if ms < previous => Err(TraceError::Decreasing { line, ms, previous }),
            Ok(ms) => {
                self.opportunities.push(ms);
                Ok(())
            }
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.opportunities
            .iter()
            .try_for_each(|ms| writeln!(f, "{ms}"))
    }
}

/// A transmitter that follows a [`Trace`] from the link's start, for ever. All times are since that
/// start and exact: whole passes are counted, nothing is added up.
#[derive(Debug, Clone)]
pub struct TraceClock {
    trace: Arc<Trace>,
    pass: u64,
    index: usize,
    /// The opportunity in use.
    current: Time,
    /// Bytes that it can still carry.
    left: u32,
}

impl TraceClock {
    /// A clock before its first opportunity.
    #[must_use]
    pub fn new(trace: Arc<Trace>) -> Self {
        Self {
            trace,
            pass: 0,
            index: 0,
            current: Time::ZERO,
            left: 0,
        }
    }

    /// When the next unused opportunity comes.
    #[must_use]
    pub fn peek(&self) -> Time {
        let ms = u64::from(self.trace.opportunities[self.index]);
        self.start_of_pass() + Time::from_millis(ms)
    }

    /// Uses the next opportunity whole and says when it comes.
    #[expect(clippy::should_implement_trait, reason = "a clock never ends")]
    pub fn next(&mut self) -> Time {
        self.current = self.peek();
        self.left = 0;
        self.index += 1;
        if self.index == self.trace.opportunities.len() {
            self.index = 0;
            self.pass += 1;
        }
        self.current
    }

    /// Transmits a segment of `len` bytes that is at the head of the queue from `ready` on: its
    /// arrival, or the departure of the one before if that is later. Returns its departure.
    ///
    /// Opportunities before `ready`, and what is left of the one in use if it came before `ready`,
    /// found nothing to carry and are lost.
    pub fn carry(&mut self, ready: Time, len: u32) -> Time {
        if self.left == 0 || self.current < ready {
            self.skip_to(ready);
            self.open();
        }
        let mut rest = len;
        while rest > self.left {
            rest -= self.left;
            self.open();
        }
        self.left -= rest;
        self.current
    }

    fn open(&mut self) {
        self.next();
        self.left = OPPORTUNITY_BYTES;
    }

    /// Moves on to the first unused opportunity at or after `time`.
    fn skip_to(&mut self, time: Time) {
        if self.peek() >= time {
            return;
        }
        // A whole number of periods is the end of a pass: its last opportunity comes right then.
        self.pass = (time.as_nanos() - 1) / self.trace.period().as_nanos();
        let into = time.since(self.start_of_pass());
        let early = |ms: &u32| Time::from_millis(u64::from(*ms)) < into;
        self.index = self.trace.opportunities.partition_point(early);
    }

    fn start_of_pass(&self) -> Time {
        self.trace.period() * self.pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn clock(text: &str) -> TraceClock {
        TraceClock::new(Arc::new(text.parse().unwrap()))
    }

    #[test]
    fn a_trace_repeats_after_its_last_line() {
        let mut clock = clock("0\n3\n3\n10\n");
        let times: Vec<Time> = (0..9).map(|_| clock.next()).collect();
        assert_eq!(times, [0, 3, 3, 10, 10, 13, 13, 20, 20].map(MS));
        assert_eq!(clock.peek(), MS(23));
    }

    #[test]
    fn one_line_is_twelve_megabits() {
        let trace: Trace = "1".parse().unwrap();
        assert_eq!(trace.mean_rate(), BitRate::from_bits(12_000_000));
        let mut clock = TraceClock::new(Arc::new(trace));
        assert_eq!(
            (0..1_000_000).map(|_| clock.next()).last(),
            Some(MS(1_000_000))
        );
    }

    #[test]
    fn errors_carry_the_line() {
        let message = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
        assert!(message("1\n\nfive\n").starts_with("line 3: \"five\""));
        assert!(message("5\n4\n").starts_with("line 2: 4 ms is before 5 ms"));
        assert!(message("0\n0\n").starts_with("line 2: the last time is 0 ms"));
        assert!(message("-1").starts_with("line 1"));
        assert!(message("4294967296").starts_with("line 1"));
        assert!(message("\n \n").contains("empty"));
    }

    #[test]
    fn small_segments_share_an_opportunity() {
        let mut clock = clock("1\n2\n3\n");
        let departures = [700, 700, 100, 1].map(|len| clock.carry(Time::ZERO, len));
        assert_eq!(departures, [1, 1, 1, 2].map(MS));
    }

    #[test]
    fn a_segment_spans_opportunities() {
        let mut clock = clock("1\n2\n3\n");
        let departures = [1000, 1000, 4000, 1].map(|len| clock.carry(Time::ZERO, len));
        assert_eq!(departures, [1, 2, 4, 5].map(MS));
    }

    #[test]
    fn what_nobody_uses_is_lost() {
        let mut clock = clock("1\n2\n3\n");
        assert_eq!(clock.carry(Time::ZERO, 100), MS(1));
        assert_eq!(clock.carry(Time::from_nanos(1_000_001), 1500), MS(2));
        assert_eq!(clock.carry(MS(6), 1500), MS(6));
        assert_eq!(clock.carry(MS(1_000_000), 100), MS(1_000_000));
        assert_eq!(clock.carry(MS(1_000_000), 1400), MS(1_000_000));
        assert_eq!(clock.carry(MS(1_000_000), 1), MS(1_000_001));
    }
}
