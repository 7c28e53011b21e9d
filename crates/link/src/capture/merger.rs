// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merging of the records of both directions in order of time. The records of each end are nearly in order
//! already.

use super::{
    super::counters::Direction,
    record_buffer::{FullBuffer, RecordBuffer, SegmentRecord},
};
use longhaul_netem::line::propagation::PropagationQueue;
use longhaul_units::Time;

/// Merger of record buffers. A record may have to wait for earlier ones of other buffers.
#[derive(Debug)]
pub(super) struct RecordMerger {
    /// Streams of records of each direction: arrivals at the queue, then departures from the line.
    streams: [[PropagationQueue<RecordIndex>; 2]; 2],
    slots: Vec<Option<PendingBuffer>>,
    free_slots: Vec<u32>,
    /// Pending buffers of each direction.
    pending: [usize; 2],
    pending_max: usize,
}

/// Position of a record in the pending buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordIndex {
    slot: u32,
    record: u32,
}

#[derive(Debug)]
struct PendingBuffer {
    direction: Direction,
    buffer: RecordBuffer,
    records_left: usize,
}

impl RecordMerger {
    /// Creates a merger that keeps at most `pending_max` pending buffers of each direction.
    pub(super) fn new(pending_max: usize) -> Self {
        Self {
            streams: Default::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            pending: [0; 2],
            pending_max,
        }
    }

    /// Adds a buffer, which must have records.
    pub(super) fn add(&mut self, FullBuffer { direction, buffer }: FullBuffer) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let streams = &mut self.streams[direction as usize];
        for (number, record) in buffer.records().iter().enumerate() {
            let record_index = RecordIndex {
                slot,
                record: number as u32,
            };
            streams[usize::from(record.is_departure())].push(record.at, record_index);
        }
        self.pending[direction as usize] += 1;
        self.slots[slot as usize] = Some(PendingBuffer {
            direction,
            records_left: buffer.records().len(),
            buffer,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending == [0; 2]
    }

    /// Returns the earliest record, if it is from before `horizon` or too many buffers are pending.
    pub(super) fn next(&mut self, horizon: Time) -> Option<RecordIndex> {
        let is_full = self
            .pending
            .iter()
            .any(|pending| *pending > self.pending_max);
        let horizon = if is_full { Time::MAX } else { horizon };
        let streams = self.streams.as_flattened_mut();
        let first = streams.iter_mut().min_by_key(|stream| {
            // Empty streams come last.
            stream.next().map_or((true, Time::ZERO), |at| (false, at))
        })?;
        first.pop(horizon).map(|(_, index)| index)
    }

    pub(super) fn get(
        &self,
        index: RecordIndex,
    ) -> Option<(Direction, &RecordBuffer, &SegmentRecord)> {
        let pending = self.slots.get(index.slot as usize)?.as_ref()?;
        let record = pending.buffer.records().get(index.record as usize)?;
        Some((pending.direction, &pending.buffer, record))
    }

    /// Releases a written record; returns its buffer if it was the buffer's last record.
    pub(super) fn release(&mut self, index: RecordIndex) -> Option<(Direction, RecordBuffer)> {
        let slot = &mut self.slots[index.slot as usize];
        let pending = slot.as_mut()?;
        pending.records_left -= 1;
        if pending.records_left > 0 {
            return None;
        }
        let PendingBuffer {
            direction, buffer, ..
        } = slot.take()?;
        self.free_slots.push(index.slot);
        self.pending[direction as usize] -= 1;
        Some((direction, buffer))
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

    /// Buffer with records at these microseconds; `true` is a departure.
    fn full(direction: Direction, records: &[(u64, bool)]) -> FullBuffer {
        let mut buffer = RecordBuffer::new();
        let head = buffer.add_segment_headers(&[0x45; 20], 1500);
        for (micros, out) in records {
            let (at, segment) = (Time::from_micros(*micros), SEGMENT);
            buffer.push(match out {
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
        FullBuffer { direction, buffer }
    }

    fn drain(merger: &mut RecordMerger, horizon: u64) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(index) = merger.next(Time::from_micros(horizon)) {
            out.push(merger.get(index).unwrap().2.at.as_nanos() / 1_000);
            merger.release(index);
        }
        out
    }

    #[test]
    fn merges_all_streams_by_time_up_to_horizon() {
        let mut merger = RecordMerger::new(10);
        let forward = [(10, false), (30, false), (12, true), (40, true)];
        merger.add(full(Direction::Forward, &forward));
        merger.add(full(Direction::Backward, &[(11, true), (20, false)]));
        assert_eq!(drain(&mut merger, 20), [10, 11, 12, 20]);
        merger.add(full(Direction::Backward, &[(25, false)]));
        assert_eq!(drain(&mut merger, 100), [25, 30, 40]);
        assert!(merger.is_empty());
    }

    #[test]
    fn sorts_record_with_late_verdict() {
        let mut merger = RecordMerger::new(10);
        let records = [(10, false), (30, false), (20, false), (40, false)];
        merger.add(full(Direction::Forward, &records));
        assert_eq!(drain(&mut merger, 100), [10, 20, 30, 40]);
    }

    #[test]
    fn returns_buffer_after_last_record() {
        let mut merger = RecordMerger::new(10);
        merger.add(full(Direction::Backward, &[(1, false), (3, false)]));
        let first = merger.next(Time::MAX).unwrap();
        assert!(merger.release(first).is_none());
        let second = merger.next(Time::MAX).unwrap();
        let (direction, buffer) = merger.release(second).unwrap();
        assert_eq!(
            (direction, buffer.records().len()),
            (Direction::Backward, 2)
        );
    }

    #[test]
    fn excess_buffers_do_not_wait_for_horizon() {
        let mut merger = RecordMerger::new(2);
        for at in [100, 200, 300] {
            merger.add(full(Direction::Forward, &[(at, false)]));
        }
        assert_eq!(drain(&mut merger, 0), [100], "two may wait");
    }
}
