// SPDX-License-Identifier: MIT OR Apache-2.0
//! How segments that are due are handed on: one by one, or as runs of the super-packet that they
//! came in.

use super::Segment;
use longhaul_units::Time;
use std::{fmt, ops::Range, str::FromStr};

/// Delivery mode. Every report names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each segment by itself, at its own time. For experiments that count packets or look at
    /// gaps; costs one system call a segment, about 1 Gbit/s a core.
    Exact,
    /// Neighbours of one super-packet that come out within `quantum` of the first are handed on
    /// together when the last of them is due: what a NIC with interrupt coalescing does. No
    /// segment is early, none is later than `quantum`. For anything above 1 Gbit/s.
    Bulk {
        /// The longest that a segment waits for its neighbours.
        quantum: Time,
    },
}

impl Default for Delivery {
    /// 100 µs: at 10 Gbit/s a whole 64 KB super-packet (52 µs), at 1 Gbit/s eight segments.
    fn default() -> Self {
        Self::Bulk {
            quantum: Time::from_micros(100),
        }
    }
}

impl FromStr for Delivery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "exact" => Ok(Self::Exact),
            None if text == "bulk" => Ok(Self::default()),
            Some(("bulk", quantum)) => quantum
                .parse()
                .map(|quantum| Self::Bulk { quantum })
                .map_err(|error| error.to_string()),
            _ => Err(format!("delivery {text:?} is not exact, bulk or bulk:TIME")),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Bulk { quantum } => write!(f, "bulk:{}", quantum.exact()),
        }
    }
}

/// Consecutive segments of one packet, to be written as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Which packet.
    pub packet: u64,
    /// Which of its segments.
    pub segments: Range<u16>,
    /// When the first of them was due.
    pub due: Time,
    /// Flip one bit, chosen by this number; only ever on a run of one segment.
    pub corrupt: Option<u32>,
}

/// Collects due segments into runs.
#[derive(Debug)]
pub struct Regroup {
    delivery: Delivery,
    open: Option<Run>,
}

impl Regroup {
    /// Nothing collected yet.
    #[must_use]
    pub fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            open: None,
        }
    }

    /// Takes the next due segment; calls `emit` for each run that is complete by that.
    pub fn push(
        &mut self,
        due: Time,
        segment: Segment,
        corrupt: Option<u32>,
        mut emit: impl FnMut(Run),
    ) {
        if !self.extend(due, segment, corrupt) {
            self.open.take().map(&mut emit);
            let segments = segment.index..segment.index + 1;
            self.open = Some(Run {
                packet: segment.packet,
                segments,
                due,
                corrupt,
            });
        }
        if segment.last || corrupt.is_some() || self.delivery == Delivery::Exact {
            self.open.take().map(emit);
        }
    }

    fn extend(&mut self, due: Time, segment: Segment, corrupt: Option<u32>) -> bool {
        let (Some(run), Delivery::Bulk { quantum }) = (&mut self.open, self.delivery) else {
            return false;
        };
        let fits = run.packet == segment.packet
            && run.segments.end == segment.index
            && due.since(run.due) <= quantum
            && corrupt.is_none();
        if fits {
            run.segments.end += 1;
        }
        fits
    }

    /// When the open run must go even if its neighbours are not due yet.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let Delivery::Bulk { quantum } = self.delivery else {
            return None;
        };
        self.open.as_ref().map(|run| run.due + quantum)
    }

    /// The open run, if its time has come.
    pub fn flush(&mut self, now: Time) -> Option<Run> {
        self.deadline().filter(|deadline| *deadline <= now)?;
        self.open.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(delivery: Delivery, due: &[(u64, u64, u16, bool)]) -> Vec<(u64, Range<u16>)> {
        let mut regroup = Regroup::new(delivery);
        let mut out = Vec::new();
        for &(at, packet, index, last) in due {
            let segment = Segment {
                packet,
                index,
                last,
                len: 1500,
            };
            regroup.push(Time::from_micros(at), segment, None, |run| out.push(run));
        }
        out.extend(regroup.flush(Time::MAX));
        out.into_iter()
            .map(|run| (run.packet, run.segments))
            .collect()
    }

    #[test]
    fn exact_hands_on_one_by_one() {
        let due = [(0, 1, 0, false), (0, 1, 1, true)];
        assert_eq!(runs(Delivery::Exact, &due), [(1, 0..1), (1, 1..2)]);
    }

    #[test]
    fn bulk_joins_neighbours_within_the_quantum_and_not_a_microsecond_beyond() {
        let bulk = Delivery::default();
        let due = [(0, 1, 0, false), (100, 1, 1, false), (101, 1, 2, true)];
        assert_eq!(runs(bulk, &due), [(1, 0..2), (1, 2..3)]);
    }

    #[test]
    fn a_hole_or_another_packet_ends_the_run() {
        let due = [
            (0, 1, 0, false),
            (0, 1, 2, false),
            (0, 2, 0, false),
            (0, 2, 1, true),
        ];
        assert_eq!(
            runs(Delivery::default(), &due),
            [(1, 0..1), (1, 2..3), (2, 0..2)]
        );
    }

    #[test]
    fn the_last_segment_waits_for_nobody() {
        let mut regroup = Regroup::new(Delivery::default());
        let mut out = 0;
        let segment = Segment {
            packet: 1,
            index: 0,
            last: true,
            len: 52,
        };
        regroup.push(Time::ZERO, segment, None, |_| out += 1);
        assert_eq!((out, regroup.deadline()), (1, None));
    }

    #[test]
    fn a_corrupt_segment_stands_alone() {
        let mut regroup = Regroup::new(Delivery::default());
        let mut out = Vec::new();
        for (index, corrupt) in [(0, None), (1, Some(5)), (2, None)] {
            let segment = Segment {
                packet: 1,
                index,
                last: index == 2,
                len: 1500,
            };
            regroup.push(Time::ZERO, segment, corrupt, |run| out.push(run.segments));
        }
        assert_eq!(out, [0..1, 1..2, 2..3]);
    }

    #[test]
    fn text_reads_back() {
        for text in ["exact", "bulk:100us", "bulk:1ms"] {
            assert_eq!(text.parse::<Delivery>().unwrap().to_string(), text);
        }
        assert!("bulky".parse::<Delivery>().is_err());
    }
}
