// SPDX-License-Identifier: MIT OR Apache-2.0
//! All flows of a shard.

mod key_hasher;
mod lru_list;
mod slot_batches;

use crate::connection::Connection;
use crate::memory_budget::MemoryBudget;
use crate::segment::{CapturePoint, CapturedSegment, Endpoint, FlowKey, Segment};
use crate::{Settings, Sink};
use hashbrown::HashTable;
use key_hasher::KeyHasher;
use longhaul_packet::tcp::SYN;
use lru_list::LruList;
use slot_batches::SlotBatches;

/// A flow that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveFlow {
    /// Number of its first packet.
    pub number: u64,
    /// Capture point that sees it.
    pub capture_point: CapturePoint,
    /// Client and server, as [`crate::record::Flow`] has them.
    pub ends: [Endpoint; 2],
}

/// Number of recent slots, one for each of so many capture points.
const RECENT_SLOTS: usize = 4;

/// Identity of a flow.
type FlowId = (CapturePoint, FlowKey);

/// All flows of one shard. A program with several shards gives each all segments of its flows, in order of time.
#[derive(Debug)]
pub struct Flows {
    budget: MemoryBudget,
    hash: KeyHasher,
    /// Slots of the active flows, by capture point and key.
    table: HashTable<u32>,
    /// Flow of each slot, `None` for those in `free`. Separate from the connections, so that all of them are in the
    /// cache.
    ids: Vec<Option<FlowId>>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    lru_list: LruList,
    slot_batches: SlotBatches,
    /// Slots of the last segments: most often the next one is of the same flow. Segments of different capture points
    /// alternate, so each has its own entry.
    recent_slots: [u32; RECENT_SLOTS],
}

impl Flows {
    /// Creates the table, without flows.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            budget: MemoryBudget::new(settings),
            hash: KeyHasher::new(),
            table: HashTable::new(),
            ids: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            lru_list: LruList::new(),
            slot_batches: SlotBatches::default(),
            recent_slots: [0; RECENT_SLOTS],
        }
    }

    /// Processes a segment. `number` counts the capture's packets (over all capture points and shards). A flow has the
    /// number of its first packet, so that numbers do not depend on the shards. Returns false if the segment is a copy of
    /// one before, which is not analysed ([`crate::record::Copies`]).
    #[inline]
    pub fn process_segment(
        &mut self,
        number: u64,
        capture_point: CapturePoint,
        key: &FlowKey,
        segment: &Segment,
        sink: &mut impl Sink,
    ) -> bool {
        let item = CapturedSegment {
            number,
            capture_point,
            key: *key,
            segment: *segment,
        };
        let slot = self.slot_of(&item, &[], sink);
        let mut is_new = true;
        if let Some(connection) = &mut self.connections[slot as usize] {
            is_new = connection.process(segment, &mut self.budget, sink);
            connection.update_memory_use(&mut self.budget);
        }
        self.evict_excess(&[], sink);
        is_new
    }

    /// Processes segments as [`Flows::process_segment`] would one by one, but those of each flow together. The results
    /// of one flow are the same, and in the same order; the results of several flows interleave differently. Different flows
    /// may be evicted if memory is short: it is checked once a flow instead of once a segment, so the excess is at most
    /// that of one flow.
    pub fn process_segments(&mut self, batch: &[CapturedSegment], sink: &mut impl Sink) {
        self.slot_batches.start_batch(batch.len());
        for (at, item) in (0..).zip(batch) {
            let slot = self.slot_of(item, batch, sink);
            self.slot_batches.add(slot, at);
        }
        let mut at = 0;
        while let Some(slot) = self.slot_batches.slot(at) {
            self.process_pending(slot, batch, sink);
            self.evict_excess(batch, sink);
            at += 1;
        }
    }

    /// Returns the memory of all flows, tables included, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// Processes the pending segments of a flow in `batch`.
    fn process_pending(&mut self, slot: u32, batch: &[CapturedSegment], sink: &mut impl Sink) {
        let Some(connection) = &mut self.connections[slot as usize] else {
            return;
        };
        while let Some(at) = self.slot_batches.take(slot) {
            connection.process(&batch[at as usize].segment, &mut self.budget, sink);
        }
        connection.update_memory_use(&mut self.budget);
    }

    /// Ends the flows seen longest ago, except one, while all use more memory than they may.
    #[inline]
    fn evict_excess(&mut self, batch: &[CapturedSegment], sink: &mut impl Sink) {
        while self.budget.is_exceeded() && self.table.len() > 1 {
            self.evict_oldest(batch, sink);
        }
    }

    #[cold]
    fn evict_oldest(&mut self, batch: &[CapturedSegment], sink: &mut impl Sink) {
        if let Some(slot) = self.lru_list.oldest() {
            self.process_pending(slot, batch, sink);
            self.end_flow(slot, sink);
        }
    }

    /// Reports bins that end before `now_ns`, also of silent flows. No segment from before `now_ns` may come later.
    pub fn close_bins(&mut self, now_ns: u64, sink: &mut impl Sink) {
        for connection in self.connections.iter_mut().flatten() {
            connection.close_bins(now_ns, &mut self.budget, sink);
        }
    }

    /// Returns the active flows, including those whose end was not reported yet.
    pub fn active_flows(&self) -> impl Iterator<Item = ActiveFlow> {
        (self.connections.iter().flatten()).map(|connection| ActiveFlow {
            number: connection.number,
            capture_point: connection.capture_point,
            ends: connection.ends(),
        })
    }

    /// Reports every flow in order of its number, at the end of the capture.
    pub fn finish(mut self, sink: &mut impl Sink) {
        let mut connections: Vec<_> = self.connections.into_iter().flatten().collect();
        connections.sort_unstable_by_key(|connection| connection.number);
        for mut connection in connections {
            connection.finish(&mut self.budget, sink);
        }
    }

    /// Returns the slot of a segment's flow, which may begin with it. Decisions that depend on a flow's state first
    /// process its pending segments in `batch`.
    #[inline(always)]
    fn slot_of(
        &mut self,
        item: &CapturedSegment,
        batch: &[CapturedSegment],
        sink: &mut impl Sink,
    ) -> u32 {
        let slot = match self.find(item.capture_point, &item.key) {
            Some(slot) if item.segment.flags & SYN == 0 => slot,
            Some(slot) => self.slot_of_syn(slot, item, batch, sink),
            None => self.start_flow(item, batch, sink),
        };
        self.lru_list.touch(slot);
        self.recent_slots[item.capture_point.0 as usize % RECENT_SLOTS] = slot;
        slot
    }

    /// Returns the slot of a SYN between ends that have a flow.
    #[cold]
    fn slot_of_syn(
        &mut self,
        slot: u32,
        item: &CapturedSegment,
        batch: &[CapturedSegment],
        sink: &mut impl Sink,
    ) -> u32 {
        self.process_pending(slot, batch, sink);
        let is_reused = matches!(&self.connections[slot as usize], Some(connection)
            if connection.is_reused_by(&item.segment));
        if is_reused {
            self.end_flow(slot, sink);
            return self.start_flow(item, batch, sink);
        }
        slot
    }

    #[inline]
    fn find(&self, capture_point: CapturePoint, key: &FlowKey) -> Option<u32> {
        let slot = self.recent_slots[capture_point.0 as usize % RECENT_SLOTS];
        if self.is_flow_at(slot, capture_point, key) {
            return Some(slot);
        }
        let hash = self.hash.of(capture_point, key);
        (self.table)
            .find(hash, |&slot| self.is_flow_at(slot, capture_point, key))
            .copied()
    }

    #[inline]
    fn is_flow_at(&self, slot: u32, capture_point: CapturePoint, key: &FlowKey) -> bool {
        matches!(self.ids.get(slot as usize), Some(Some((at, found))) if *at == capture_point && found == key)
    }

    /// Starts a flow and returns its slot.
    #[cold]
    fn start_flow(
        &mut self,
        item: &CapturedSegment,
        batch: &[CapturedSegment],
        sink: &mut impl Sink,
    ) -> u32 {
        self.make_room(item.segment.at_ns, batch, sink);
        let slot = self.take_slot((item.capture_point, item.key));
        let mut connection = Box::new(Connection::new(item, &mut self.budget));
        self.budget.begin_flow();
        connection.update_memory_use(&mut self.budget);
        self.connections[slot as usize] = Some(connection);
        let hash = self.hash.of(item.capture_point, &item.key);
        let (hasher, ids) = (&self.hash, &self.ids);
        self.table.insert_unique(hash, slot, |&slot| {
            (ids[slot as usize].as_ref())
                .map_or(0, |(capture_point, key)| hasher.of(*capture_point, key))
        });
        self.lru_list.insert(slot);
        slot
    }

    fn take_slot(&mut self, id: FlowId) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.ids[slot as usize] = Some(id);
            return slot;
        }
        self.ids.push(Some(id));
        self.connections.push(None);
        self.ids.len() as u32 - 1
    }

    /// Ends the flow seen longest ago if it was closed long ago, and more of them while there is no room for another.
    fn make_room(&mut self, now_ns: u64, batch: &[CapturedSegment], sink: &mut impl Sink) {
        let Some(slot) = self.lru_list.oldest() else {
            return;
        };
        self.process_pending(slot, batch, sink);
        let is_past = matches!(&self.connections[slot as usize],
            Some(connection) if connection.is_closed() && connection.is_silent(now_ns));
        if is_past {
            self.end_flow(slot, sink);
        }
        while self.budget.is_full() && !self.table.is_empty() {
            self.evict_oldest(batch, sink);
        }
    }

    fn end_flow(&mut self, slot: u32, sink: &mut impl Sink) {
        let Some(mut connection) = self.connections[slot as usize].take() else {
            return;
        };
        let hash = self.hash.of(connection.capture_point, &connection.key);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.ids[slot as usize] = None;
        self.lru_list.remove(slot);
        self.free.push(slot);
        connection.finish(&mut self.budget, sink);
    }
}
