// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet-delivery traces in Mahimahi's format, for links whose capacity changes by the millisecond.
//!
//! A line is one opportunity to deliver [`OPPORTUNITY_BYTES`]. It is a whole number of milliseconds
//! since the start, and not less than the line before. A number on several lines makes several
//! opportunities. After the last line the trace begins again, shifted by the last line's time.
//!
//! Bytes are counted as in mm-link(1). An opportunity may carry several small segments. A segment may
//! begin in one opportunity and end in the next; the opportunity that carries its last byte delivers
//! it. An opportunity that finds no bytes to carry loses the rest of its capacity.

use longhaul_units::{BitRate, Bytes, Time};
use std::{fmt, str::FromStr, sync::Arc};

/// Bytes that one opportunity carries.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// A trace with at least one opportunity and a period above zero. Memory: four bytes a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds since the start of the period, in order.
    opportunities: Vec<u32>,
}

impl Trace {
    /// Most lines of a trace: an hour at 54 Mbit/s, or a minute at 3.3 Gbit/s. Memory: 64 MiB.
    pub const LINES_MAX: usize = 1 << 24;

    /// Duration of one pass: the time on the last line.
    #[must_use]
    pub fn period(&self) -> Time {
        Time::from_millis(u64::from(self.last_ms()))
    }

    /// Mean rate: opportunities × 1,500 bytes over the period.
    #[must_use]
    pub fn mean_rate(&self) -> BitRate {
        let bytes = self.opportunities.len() as u64 * u64::from(OPPORTUNITY_BYTES);
        BitRate::mean(Bytes::new(bytes), self.period()).unwrap_or(BitRate::from_bits(1))
    }

    /// Milliseconds on the last line; 0 without a line.
    fn last_ms(&self) -> u32 {
        self.opportunities.last().copied().unwrap_or(0)
    }
}

/// Error in the text of a trace. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The line is neither a number of milliseconds nor blank.
    #[error("line {line}: {text:?} is not a whole number of milliseconds below 2^32")]
    NotANumber {
        /// Number of the line.
        line: usize,
        /// Text of the line, cut to 40 characters.
        text: String,
    },
    /// The time is before the time of an earlier line.
    #[error("line {line}: {ms} ms is before {previous} ms on an earlier line")]
    Decreasing {
        /// Number of the line.
        line: usize,
        /// Time on the line, in milliseconds.
        ms: u32,
        /// Time on the line before, in milliseconds.
        previous: u32,
    },
    /// The trace has more than [`Trace::LINES_MAX`] lines.
    #[error("line {line}: a trace has at most {} lines", Trace::LINES_MAX)]
    TooLong {
        /// Number of the first line beyond the limit.
        line: usize,
    },
    /// The trace has no line.
    #[error("the trace is empty: it needs at least one line with a time in milliseconds")]
    Empty,
    /// Every opportunity is at 0 ms, so that the trace would repeat without end at one time.
    #[error("line {line}: the last time is 0 ms, so the trace has no length")]
    NoPeriod {
        /// Number of the last line.
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
        let previous = self.last_ms();
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

/// A transmitter that follows a [`Trace`], pass after pass. Times count from the start of the trace.
/// They are exact: whole passes are counted, and rounding errors don't add up.
#[derive(Debug, Clone)]
pub struct TraceClock {
    trace: Arc<Trace>,
    /// Pass and line of the next unused opportunity, from 0.
    pass: u64,
    index: usize,
    /// Time of the opportunity in use.
    current: Time,
    /// Bytes that the opportunity in use can still carry.
    free_bytes: u32,
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
            free_bytes: 0,
        }
    }

    /// Time of the next unused opportunity.
    #[must_use]
    pub fn peek(&self) -> Time {
        let ms = u64::from(self.trace.opportunities[self.index]);
        self.start_of_pass() + Time::from_millis(ms)
    }

    /// Uses up the next opportunity, and returns its time.
    #[expect(clippy::should_implement_trait, reason = "a clock never ends")]
    pub fn next(&mut self) -> Time {
        self.current = self.peek();
        self.free_bytes = 0;
        self.index += 1;
        if self.index == self.trace.opportunities.len() {
            self.index = 0;
            self.pass += 1;
        }
        self.current
    }

    /// Transmits a segment of `len` bytes that is at the head of the queue from `ready` on. Returns the
    /// time of its departure. `ready` is the segment's arrival, or its predecessor's departure if that
    /// is later.
    ///
    /// Opportunities before `ready` have nothing to carry and are lost. So is the free part of the
    /// opportunity in use if it came before `ready`.
    pub fn transmit(&mut self, ready: Time, len: u32) -> Time {
        if self.free_bytes == 0 || self.current < ready {
            self.skip_to(ready);
            self.begin_opportunity();
        }
        let mut unsent = len;
        while unsent > self.free_bytes {
            unsent -= self.free_bytes;
            self.begin_opportunity();
        }
        self.free_bytes -= unsent;
        self.current
    }

    /// Begins to use the next opportunity.
    fn begin_opportunity(&mut self) {
        self.next();
        self.free_bytes = OPPORTUNITY_BYTES;
    }

    /// Skips to the first unused opportunity at or after `time`.
    fn skip_to(&mut self, time: Time) {
        if self.peek() >= time {
            return;
        }
        // A whole number of periods belongs to the pass that ends then: the last opportunity is at the end of a pass.
        self.pass = (time.as_nanos() - 1) / self.trace.period().as_nanos();
        let offset = time.since(self.start_of_pass());
        let is_before = |ms: &u32| Time::from_millis(u64::from(*ms)) < offset;
        self.index = self.trace.opportunities.partition_point(is_before);
    }

    fn start_of_pass(&self) -> Time {
        self.trace.period() * self.pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Time {
        Time::from_millis(count)
    }

    fn clock(text: &str) -> TraceClock {
        TraceClock::new(Arc::new(text.parse().unwrap()))
    }

    #[test]
    fn repeats_after_the_last_line() {
        let mut clock = clock("0\n3\n3\n10\n");
        let times: Vec<Time> = (0..9).map(|_| clock.next()).collect();
        assert_eq!(times, [0, 3, 3, 10, 10, 13, 13, 20, 20].map(ms));
        assert_eq!(clock.peek(), ms(23));
    }

    #[test]
    fn delivers_12_mbit_a_second_with_one_line_a_millisecond() {
        let trace: Trace = "1".parse().unwrap();
        assert_eq!(trace.mean_rate(), BitRate::from_bits(12_000_000));
        let mut clock = TraceClock::new(Arc::new(trace));
        assert_eq!(
            (0..1_000_000).map(|_| clock.next()).last(),
            Some(ms(1_000_000))
        );
    }

    #[test]
    fn names_the_line_of_an_error() {
        let message = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
        assert!(message("1\n\nfive\n").starts_with("line 3: \"five\""));
        assert!(message("5\n4\n").starts_with("line 2: 4 ms is before 5 ms"));
        assert!(message("0\n0\n").starts_with("line 2: the last time is 0 ms"));
        assert!(message("-1").starts_with("line 1"));
        assert!(message("4294967296").starts_with("line 1"));
        assert!(message("\n \n").contains("empty"));
    }

    #[test]
    fn carries_small_segments_in_one_opportunity() {
        let mut clock = clock("1\n2\n3\n");
        let departures = [700, 700, 100, 1].map(|len| clock.transmit(Time::ZERO, len));
        assert_eq!(departures, [1, 1, 1, 2].map(ms));
    }

    #[test]
    fn carries_a_segment_in_several_opportunities() {
        let mut clock = clock("1\n2\n3\n");
        let departures = [1000, 1000, 4000, 1].map(|len| clock.transmit(Time::ZERO, len));
        assert_eq!(departures, [1, 2, 4, 5].map(ms));
    }

    #[test]
    fn loses_unused_opportunities() {
        let mut clock = clock("1\n2\n3\n");
        assert_eq!(clock.transmit(Time::ZERO, 100), ms(1));
        assert_eq!(clock.transmit(Time::from_nanos(1_000_001), 1500), ms(2));
        assert_eq!(clock.transmit(ms(6), 1500), ms(6));
        assert_eq!(clock.transmit(ms(1_000_000), 100), ms(1_000_000));
        assert_eq!(clock.transmit(ms(1_000_000), 1400), ms(1_000_000));
        assert_eq!(clock.transmit(ms(1_000_000), 1), ms(1_000_001));
    }
}
