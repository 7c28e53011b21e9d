// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of segments that are due: one by one, or joined into batches of the super-packet that they arrived in.

use super::Segment;
use longhaul_units::Time;
use std::{fmt, ops::Range, str::FromStr};

/// Delivery mode. Every report names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each segment by itself, at its own time. Suits experiments that count packets or measure
    /// inter-packet gaps. Costs one system call a segment: a core delivers about 1 Gbit/s.
    PerPacket,
    /// Neighbours of one super-packet together, as a NIC with interrupt coalescing delivers them. A
    /// batch holds the segments that are due within `quantum` of its first. It is delivered when its last segment
    /// is due: no segment is early, and none is later than `quantum`. Suits rates above 1 Gbit/s.
    Batched {
        /// Longest time that a segment waits for its neighbours.
        quantum: Time,
    },
}

impl Default for Delivery {
    /// Batches of 100 µs: a whole 64 KB super-packet at 10 Gbit/s (52 µs), eight segments at 1 Gbit/s.
    fn default() -> Self {
        Self::Batched {
            quantum: Time::from_micros(100),
        }
    }
}

impl FromStr for Delivery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mode, quantum) = match text.split_once(':') {
            Some((mode, quantum)) => (mode, Some(quantum)),
            None => (text, None),
        };
        match (mode, quantum) {
            ("per-packet", None) => Ok(Self::PerPacket),
            ("batched", None) => Ok(Self::default()),
            ("batched", Some(quantum)) => quantum
                .parse()
                .map(|quantum| Self::Batched { quantum })
                .map_err(|error: longhaul_units::ParseError| error.to_string()),
            _ => Err(format!(
                "delivery {text:?} is not per-packet, batched or batched:TIME"
            )),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerPacket => f.write_str("per-packet"),
            Self::Batched { quantum } => write!(f, "batched:{}", quantum.exact()),
        }
    }
}

/// Consecutive segments of one packet, to be written as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Number of the super-packet.
    pub packet: u64,
    /// Positions of the segments in the super-packet, from 0.
    pub segments: Range<u16>,
    /// Time at which the first segment was due.
    pub due: Time,
    /// Number that selects the bit to flip. `None` for an intact batch; a corrupt batch has one segment.
    pub corrupt: Option<u32>,
}

/// Joins due segments into batches.
#[derive(Debug)]
pub struct Coalescer {
    delivery: Delivery,
    open: Option<Batch>,
}

impl Coalescer {
    /// Coalescer of this delivery mode without an open batch.
    #[must_use]
    pub fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            open: None,
        }
    }

    /// Adds the next due segment, and emits each batch that it completes.
    pub fn push(
        &mut self,
        due: Time,
        segment: Segment,
        corrupt: Option<u32>,
        mut emit: impl FnMut(Batch),
    ) {
        if !self.extend(due, segment, corrupt) {
            self.open.take().map(&mut emit);
            let segments = segment.index..segment.index + 1;
            self.open = Some(Batch {
                packet: segment.packet,
                segments,
                due,
                corrupt,
            });
        }
        if segment.last || corrupt.is_some() || self.delivery == Delivery::PerPacket {
            self.open.take().map(emit);
        }
    }

    /// Adds the segment to the open batch, and returns whether it belongs there.
    fn extend(&mut self, due: Time, segment: Segment, corrupt: Option<u32>) -> bool {
        let (Some(batch), Delivery::Batched { quantum }) = (&mut self.open, self.delivery) else {
            return false;
        };
        let continues = batch.packet == segment.packet
            && batch.segments.end == segment.index
            && due.since(batch.due) <= quantum
            && corrupt.is_none();
        if continues {
            batch.segments.end += 1;
        }
        continues
    }

    /// Time at which the open batch must be delivered, even if its next segment is not due yet. `None` without an
    /// open batch.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let Delivery::Batched { quantum } = self.delivery else {
            return None;
        };
        self.open.as_ref().map(|batch| batch.due + quantum)
    }

    /// Takes the open batch if its [`deadline`](Self::deadline) is at or before `now`.
    pub fn flush(&mut self, now: Time) -> Option<Batch> {
        self.deadline().filter(|deadline| *deadline <= now)?;
        self.open.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(delivery: Delivery, due: &[(u64, u64, u16, bool)]) -> Vec<(u64, Range<u16>)> {
        let mut coalescer = Coalescer::new(delivery);
        let mut out = Vec::new();
        for &(at, packet, index, last) in due {
            let segment = Segment {
                packet,
                index,
                last,
                len: 1500,
            };
            coalescer.push(Time::from_micros(at), segment, None, |batch| {
                out.push(batch);
            });
        }
        out.extend(coalescer.flush(Time::MAX));
        out.into_iter()
            .map(|batch| (batch.packet, batch.segments))
            .collect()
    }

    #[test]
    fn delivers_one_by_one_when_per_packet() {
        let due = [(0, 1, 0, false), (0, 1, 1, true)];
        assert_eq!(batches(Delivery::PerPacket, &due), [(1, 0..1), (1, 1..2)]);
    }

    #[test]
    fn joins_neighbours_up_to_the_quantum_exactly() {
        let batched = Delivery::default();
        let due = [(0, 1, 0, false), (100, 1, 1, false), (101, 1, 2, true)];
        assert_eq!(batches(batched, &due), [(1, 0..2), (1, 2..3)]);
    }

    #[test]
    fn ends_a_batch_at_a_gap_or_a_new_packet() {
        let due = [
            (0, 1, 0, false),
            (0, 1, 2, false),
            (0, 2, 0, false),
            (0, 2, 1, true),
        ];
        assert_eq!(
            batches(Delivery::default(), &due),
            [(1, 0..1), (1, 2..3), (2, 0..2)]
        );
    }

    #[test]
    fn emits_the_last_segment_of_a_packet_at_once() {
        let mut coalescer = Coalescer::new(Delivery::default());
        let mut out = 0;
        let segment = Segment {
            packet: 1,
            index: 0,
            last: true,
            len: 52,
        };
        coalescer.push(Time::ZERO, segment, None, |_| out += 1);
        assert_eq!((out, coalescer.deadline()), (1, None));
    }

    #[test]
    fn keeps_a_corrupt_segment_in_a_batch_of_its_own() {
        let mut coalescer = Coalescer::new(Delivery::default());
        let mut out = Vec::new();
        for (index, corrupt) in [(0, None), (1, Some(5)), (2, None)] {
            let segment = Segment {
                packet: 1,
                index,
                last: index == 2,
                len: 1500,
            };
            coalescer.push(Time::ZERO, segment, corrupt, |batch| {
                out.push(batch.segments);
            });
        }
        assert_eq!(out, [0..1, 1..2, 2..3]);
    }

    #[test]
    fn parses_its_own_text() {
        for text in ["per-packet", "batched:100us", "batched:1ms"] {
            assert_eq!(text.parse::<Delivery>().unwrap().to_string(), text);
        }
        assert!("batches".parse::<Delivery>().is_err());
        assert!("per-packet:1ms".parse::<Delivery>().is_err());
    }
}
