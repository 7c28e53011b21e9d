// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transmitter, and the time for which it sends each segment.

pub mod trace;

use longhaul_units::{BitRate, Time};
use std::sync::Arc;
use trace::{Trace, TraceClock};

/// Rate of a transmitter.
#[derive(Debug, Clone, Default)]
pub enum Rate {
    /// Unlimited: segments are sent at once, and none waits.
    #[default]
    Unlimited,
    /// Constant rate, without drift: fractions of a nanosecond are carried over.
    Constant(BitRate),
    /// The delivery opportunities of a Mahimahi trace.
    Trace(Arc<Trace>),
}

impl Rate {
    /// Mean rate, over a whole period of a trace; `None` if unlimited.
    #[must_use]
    pub fn mean(&self) -> Option<BitRate> {
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

/// A transmitter, which sends one segment at a time.
#[derive(Debug)]
pub(crate) enum Transmitter {
    Unlimited,
    Constant {
        rate: BitRate,
        /// Sending time left over by the last segment, ns at 1 bit/s; less than `rate`.
        carry: u64,
    },
    Trace {
        clock: TraceClock,
        /// Start of the trace.
        origin: Time,
    },
}

/// Sending time of one byte at 1 bit/s, ns.
pub(super) const BYTE_NS_AT_1_BPS: u64 = 8_000_000_000;

impl Transmitter {
    /// A transmitter of this rate; a trace begins at `start`.
    pub(crate) fn new(rate: &Rate, start: Time) -> Self {
        match rate {
            Rate::Unlimited => Self::Unlimited,
            Rate::Constant(rate) => Self::Constant {
                rate: *rate,
                carry: 0,
            },
            Rate::Trace(trace) => Self::Trace {
                clock: TraceClock::new(trace.clone()),
                origin: start,
            },
        }
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        matches!(self, Self::Unlimited)
    }

    /// Sends `len` bytes from `start` on, and returns the time at which the last bit leaves.
    pub(crate) fn finish(&mut self, start: Time, len: u32) -> Time {
        match self {
            Self::Unlimited => start,
            Self::Constant { carry, .. } => {
                let ns_at_1_bps = u64::from(len) * BYTE_NS_AT_1_BPS + *carry;
                self.finish_rest(start, ns_at_1_bps)
            }
            Self::Trace { clock, origin } => *origin + clock.transmit(start.since(*origin), len),
        }
    }

    /// Sends the rest of a segment from `start` on, given as its sending time at 1 bit/s in ns. A trace or an unlimited
    /// rate sends it at once.
    pub(crate) fn finish_rest(&mut self, start: Time, ns_at_1_bps: u64) -> Time {
        match self {
            Self::Constant { rate, carry } => {
                *carry = ns_at_1_bps % rate.bits();
                start + Time::from_nanos(ns_at_1_bps / rate.bits())
            }
            _ => start,
        }
    }

    /// Sending time at 1 bit/s, in ns, of what is unsent at `now` of a segment whose last bit leaves at `finish`, with
    /// the carry. That is sent at the new rate if the rate changes. 0 with a trace or an unlimited rate.
    pub(crate) fn rest(&self, now: Time, finish: Time) -> u64 {
        match self {
            Self::Constant { rate, carry } => finish.since(now).as_nanos() * rate.bits() + carry,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_a_million_segments_without_drift() {
        let rate = BitRate::from_bits(7_000_000_000);
        let mut transmitter = Transmitter::new(&Rate::Constant(rate), Time::ZERO);
        let end = (0..1_000_000).fold(Time::ZERO, |at, _| transmitter.finish(at, 1500));
        assert_eq!(end, Time::from_nanos(1_000_000 * 1500 * 8 / 7));
    }

    #[test]
    fn follows_a_trace_and_loses_unused_opportunities() {
        let trace = Arc::new("1\n2\n5\n".parse::<Trace>().unwrap());
        let mut transmitter = Transmitter::new(&Rate::Trace(trace), Time::from_secs(9));
        let mut at = |start, len| {
            let start = Time::from_secs(9) + Time::from_micros(start);
            transmitter
                .finish(start, len)
                .since(Time::from_secs(9))
                .as_nanos()
                / 1_000
        };
        assert_eq!(at(0, 500), 1_000, "first opportunity");
        assert_eq!(at(1_000, 1_000), 1_000, "the rest of the same one");
        assert_eq!(at(1_000, 40), 2_000, "the first is full: the next one");
        assert_eq!(at(2_500, 40), 5_000, "idle at 2 ms: its rest is lost");
        assert_eq!(
            at(5_000, 3_000),
            7_000,
            "the period repeats: 5 ms + 1 ms, 5 ms + 2 ms"
        );
    }
}
