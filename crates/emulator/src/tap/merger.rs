// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes of both directions in order of time. Each tap point's own are nearly so.

use super::{
    super::counters::Direction,
    record_buffer::{FullBuffer, RecordBuffer, SegmentRecord},
};
use longhaul_netem::line::propagation::PropagationQueue;
use longhaul_units::Time;

/// Blocks whose notes wait for earlier ones that may still come.
#[derive(Debug)]
pub(super) struct RecordMerger {
    /// Before the queue and at the end, of each direction.
    streams: [[PropagationQueue<RecordIndex>; 2]; 2],
    slots: Vec<Option<PendingBuffer>>,
    free_slots: Vec<u32>,
    /// Blocks of each direction, and how many of them may wait.
    pending: [usize; 2],
    pending_max: usize,
}

/// Where a note is.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordIndex {
    slot: u32,
    record: u32,
}

#[derive(Debug)]
struct PendingBuffer {
    direction: Direction,
    block: RecordBuffer,
    records_left: usize,
}

impl RecordMerger {
    /// Of each direction `most` blocks wait.
    pub(super) fn new(most: usize) -> Self {
        Self {
            streams: Default::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            pending: [0; 2],
            pending_max: most,
        }
    }

    /// A block, which must have notes.
    pub(super) fn add(
        &mut self,
        FullBuffer {
            direction,
            buffer: block,
        }: FullBuffer,
    ) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let streams = &mut self.streams[direction as usize];
        for (number, note) in block.records().iter().enumerate() {
            let note_place = RecordIndex {
                slot,
                record: number as u32,
            };
            streams[usize::from(note.is_departure())].push(note.at, note_place);
        }
        self.pending[direction as usize] += 1;
        self.slots[slot as usize] = Some(PendingBuffer {
            direction,
            records_left: block.records().len(),
            block,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending == [0; 2]
    }

    /// Where the earliest note is, if it was taken by `horizon` or too many blocks wait.
    pub(super) fn next(&mut self, horizon: Time) -> Option<RecordIndex> {
        let crowded = self.pending.iter().any(|held| *held > self.pending_max);
        let horizon = if crowded { Time::MAX } else { horizon };
        let streams = self.streams.as_flattened_mut();
        let first = streams.iter_mut().min_by_key(|stream| {
            // Those that are empty come last.
            stream.next().map_or((true, Time::ZERO), |at| (false, at))
        })?;
        first.pop(horizon).map(|(_, place)| place)
    }

    pub(super) fn get(
        &self,
        place: RecordIndex,
    ) -> Option<(Direction, &RecordBuffer, &SegmentRecord)> {
        let held = self.slots.get(place.slot as usize)?.as_ref()?;
        let note = held.block.records().get(place.record as usize)?;
        Some((held.direction, &held.block, note))
    }

    /// The note is written; its block, if that was the last of it.
    pub(super) fn release(&mut self, place: RecordIndex) -> Option<(Direction, RecordBuffer)> {
        let slot = &mut self.slots[place.slot as usize];
        let held = slot.as_mut()?;
        held.records_left -= 1;
        if held.records_left > 0 {
            return None;
        }
        let PendingBuffer {
            direction, block, ..
        } = slot.take()?;
        self.free_slots.push(place.slot);
        self.pending[direction as usize] -= 1;
        Some((direction, block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_netem::{Delivered, Segment, SegmentVerdict};

    const SEGMENT: Segment = Segment {
        packet: 0,
        index: 0,
        last: true,
        len: 1500,
    };

    /// Notes at these microseconds; those that come out are marked.
    fn full(direction: Direction, notes: &[(u64, bool)]) -> FullBuffer {
        let mut block = RecordBuffer::new();
        let head = block.add_segment_headers(&[0x45; 20], 1500);
        for (micros, out) in notes {
            let (at, segment) = (Time::from_micros(*micros), SEGMENT);
            block.push(match out {
                true => SegmentRecord::departure(
                    &Delivered {
                        at,
                        segment,
                        corrupt: None,
                    },
                    head,
                ),
                false => SegmentRecord::arrival(
                    &SegmentVerdict {
                        at,
                        queue_bytes: 0,
                        segment,
                        lost: None,
                    },
                    head,
                ),
            });
        }
        FullBuffer {
            direction,
            buffer: block,
        }
    }

    fn drain(merge: &mut RecordMerger, horizon: u64) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(place) = merge.next(Time::from_micros(horizon)) {
            out.push(merge.get(place).unwrap().2.at.as_nanos() / 1_000);
            merge.release(place);
        }
        out
    }

    #[test]
    fn both_directions_and_ends_come_in_order_of_time_up_to_the_horizon() {
        let mut merge = RecordMerger::new(10);
        let forward = [(10, false), (30, false), (12, true), (40, true)];
        merge.add(full(Direction::Forward, &forward));
        merge.add(full(Direction::Backward, &[(11, true), (20, false)]));
        assert_eq!(drain(&mut merge, 20), [10, 11, 12, 20]);
        merge.add(full(Direction::Backward, &[(25, false)]));
        assert_eq!(drain(&mut merge, 100), [25, 30, 40]);
        assert!(merge.is_empty());
    }

    #[test]
    fn one_that_was_settled_late_is_put_where_it_belongs() {
        let mut merge = RecordMerger::new(10);
        let late = [(10, false), (30, false), (20, false), (40, false)];
        merge.add(full(Direction::Forward, &late));
        assert_eq!(drain(&mut merge, 100), [10, 20, 30, 40]);
    }

    #[test]
    fn a_block_comes_back_when_all_of_it_is_written() {
        let mut merge = RecordMerger::new(10);
        merge.add(full(Direction::Backward, &[(1, false), (3, false)]));
        let first = merge.next(Time::MAX).unwrap();
        assert!(merge.release(first).is_none());
        let second = merge.next(Time::MAX).unwrap();
        let (direction, block) = merge.release(second).unwrap();
        assert_eq!((direction, block.records().len()), (Direction::Backward, 2));
    }

    #[test]
    fn too_many_blocks_do_not_wait_for_the_horizon() {
        let mut merge = RecordMerger::new(2);
        for at in [100, 200, 300] {
            merge.add(full(Direction::Forward, &[(at, false)]));
        }
        assert_eq!(drain(&mut merge, 0), [100], "two may wait");
    }
}
