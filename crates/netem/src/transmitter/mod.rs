// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a segment occupies the sending end of the wire.

pub mod trace;

use longhaul_units::{BitRate, Time};
use std::sync::Arc;
use trace::{Trace, TraceClock};

/// How fast the wire takes segments.
#[derive(Debug, Clone, Default)]
pub enum Rate {
    /// At once: there is no queue.
    #[default]
    Unlimited,
    /// So many bits a second, without drift: fractions of a nanosecond are carried over.
    Constant(BitRate),
    /// At the opportunities of a Mahimahi trace.
    Trace(Arc<Trace>),
}

impl Rate {
    /// Bits a second, over a whole period with a trace; `None` when unlimited.
    #[must_use]
    pub fn mean(&self) -> Option<BitRate> {
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

/// The sending end, serving one segment at a time.
#[derive(Debug)]
pub(crate) enum Transmitter {
    Unlimited,
    Constant { rate: BitRate, carry: u64 },
    Trace { clock: TraceClock, origin: Time },
}

/// Bit-nanoseconds of one byte at 1 bit/s.
pub(super) const BYTE_BIT_NANOS: u64 = 8_000_000_000;

impl Transmitter {
    /// A trace begins at `start`.
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

    /// When the last bit of `len` bytes has left, if the first may leave at `start`.
    pub(crate) fn finish(&mut self, start: Time, len: u32) -> Time {
        match self {
            Self::Unlimited => start,
            Self::Constant { rate, carry } => {
                let work = u64::from(len) * BYTE_BIT_NANOS + *carry;
                *carry = work % rate.bits();
                start + Time::from_nanos(work / rate.bits())
            }
            Self::Trace { clock, origin } => *origin + clock.carry(start.since(*origin), len),
        }
    }

    /// What of a segment that would have finished at `finish` is still to be sent at `now`, in
    /// bytes rounded up: a change of rate in the middle of it applies to this rest.
    pub(crate) fn rest(&self, now: Time, finish: Time) -> u32 {
        match self {
            Self::Constant { rate, .. } => rate.bytes_in(finish.since(now)) as u32 + 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_segments_drift_by_less_than_a_nanosecond() {
        let rate = BitRate::from_bits(7_000_000_000);
        let mut transmitter = Transmitter::new(&Rate::Constant(rate), Time::ZERO);
        let end = (0..1_000_000).fold(Time::ZERO, |at, _| transmitter.finish(at, 1500));
        assert_eq!(end, Time::from_nanos(1_000_000 * 1500 * 8 / 7));
    }

    #[test]
    fn a_trace_gives_1500_bytes_an_opportunity_and_wastes_what_is_not_used() {
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
        assert_eq!(at(1_000, 40), 2_000, "full: the next one");
        assert_eq!(at(2_500, 40), 5_000, "idle at 2 ms: its rest is lost");
        assert_eq!(
            at(5_000, 3_000),
            7_000,
            "the period repeats: 5 ms + 1 ms, 5 ms + 2 ms"
        );
    }
}
