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

/// A flow that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveFlow {
    /// The number of its first packet.
    pub number: u64,
    /// Where it is seen.
    pub vantage: CapturePoint,
    /// Client and server, as [`crate::record::Flow`] has them.
    pub ends: [Endpoint; 2],
}

/// Vantages that are told apart without the table.
const RECENT_SLOTS: usize = 4;

/// Who a flow is.
type FlowId = (CapturePoint, FlowKey);

/// All flows of one shard: whoever has several gives each all segments of its flows, in order of time.
#[derive(Debug)]
pub struct Flows {
    budget: MemoryBudget,
    hash: KeyHasher,
    /// Slots of the flows that go on, by vantage and key.
    table: HashTable<u32>,
    /// Whose a slot is: apart from the connections, so that all of them are in the cache. Nobody's are in
    /// `free`.
    ids: Vec<Option<FlowId>>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    recency: LruList,
    groups: SlotBatches,
    /// The slots of the last segments: most often the next is of the same flow. Those of different
    /// vantages take turns, so they have different places.
    recent_slots: [u32; RECENT_SLOTS],
}

impl Flows {
    /// No flow yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            budget: MemoryBudget::new(settings),
            hash: KeyHasher::new(),
            table: HashTable::new(),
            ids: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            recency: LruList::new(),
            groups: SlotBatches::default(),
            recent_slots: [0; RECENT_SLOTS],
        }
    }

    /// Takes a segment in. `number` counts the capture's packets (over all vantages and shards); a flow
    /// has the number of its first packet, so that numbers don't depend on how flows are sharded.
    #[inline]
    pub fn segment(
        &mut self,
        number: u64,
        vantage: CapturePoint,
        key: &FlowKey,
        segment: &Segment,
        sink: &mut impl Sink,
    ) {
        let item = CapturedSegment {
            number,
            capture_point: vantage,
            key: *key,
            segment: *segment,
        };
        let slot = self.slot_of(&item, &[], sink);
        if let Some(connection) = &mut self.connections[slot as usize] {
            connection.process(segment, &mut self.budget, sink);
            connection.account(&mut self.budget);
        }
        self.evict_excess(&[], sink);
    }

    /// Takes segments in, as [`Flows::segment`] would one by one, but those of each flow in one go. What
    /// is said of one flow is the same, and in the same order; that of several lies otherwise between
    /// each other. Only where flows take more than they may, others may end: that is looked at once a flow and not once
    /// a segment, so that they take more by what one flow takes at most.
    pub fn segments(&mut self, items: &[CapturedSegment], sink: &mut impl Sink) {
        self.groups.start_batch(items.len());
        for (at, item) in (0..).zip(items) {
            let slot = self.slot_of(item, items, sink);
            self.groups.add(slot, at);
        }
        let mut at = 0;
        while let Some(slot) = self.groups.slot(at) {
            self.process_pending(slot, items, sink);
            self.evict_excess(items, sink);
            at += 1;
        }
    }

    /// What all flows take, tables included, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// Gives a flow the segments of it that wait in the batch `items`.
    fn process_pending(&mut self, slot: u32, items: &[CapturedSegment], sink: &mut impl Sink) {
        let Some(connection) = &mut self.connections[slot as usize] else {
            return;
        };
        while let Some(at) = self.groups.take(slot) {
            connection.process(&items[at as usize].segment, &mut self.budget, sink);
        }
        connection.account(&mut self.budget);
    }

    /// Ends the flows seen longest ago, but for one, while all take more than they may.
    #[inline]
    fn evict_excess(&mut self, items: &[CapturedSegment], sink: &mut impl Sink) {
        while self.budget.is_exceeded() && self.table.len() > 1 {
            self.evict_oldest(items, sink);
        }
    }

    #[cold]
    fn evict_oldest(&mut self, items: &[CapturedSegment], sink: &mut impl Sink) {
        if let Some(slot) = self.recency.oldest() {
            self.process_pending(slot, items, sink);
            self.end_flow(slot, sink);
        }
    }

    /// Time has come to `now_ns`, and no segment from before it will: bins that are over are reported,
    /// also of flows that are silent.
    pub fn close_bins(&mut self, now_ns: u64, sink: &mut impl Sink) {
        for connection in self.connections.iter_mut().flatten() {
            connection.close_bins(now_ns, &mut self.budget, sink);
        }
    }

    /// The flows that go on, or whose end was not reported yet.
    pub fn active_flows(&self) -> impl Iterator<Item = ActiveFlow> {
        (self.connections.iter().flatten()).map(|connection| ActiveFlow {
            number: connection.number,
            vantage: connection.vantage,
            ends: connection.ends(),
        })
    }

    /// The capture is at its end: every flow is reported, in order of its number.
    pub fn finish(mut self, sink: &mut impl Sink) {
        let mut connections: Vec<_> = self.connections.into_iter().flatten().collect();
        connections.sort_unstable_by_key(|connection| connection.number);
        for connection in connections {
            connection.finish(&mut self.budget, sink);
        }
    }

    /// The slot of a segment's flow, which may begin with it. Whatever depends on what a flow has had so
    /// far gives it first what waits in the batch `items`.
    #[inline]
    fn slot_of(
        &mut self,
        item: &CapturedSegment,
        items: &[CapturedSegment],
        sink: &mut impl Sink,
    ) -> u32 {
        let name = (item.capture_point, item.key);
        let slot = match self.find(&name) {
            Some(slot) if item.segment.flags & SYN == 0 => slot,
            Some(slot) => self.slot_of_syn(slot, item, items, sink),
            None => self.start_flow(item, items, sink),
        };
        self.recency.touch(slot);
        self.recent_slots[item.capture_point.0 as usize % RECENT_SLOTS] = slot;
        slot
    }

    /// The slot of a SYN between ends that have a flow.
    #[cold]
    fn slot_of_syn(
        &mut self,
        slot: u32,
        item: &CapturedSegment,
        items: &[CapturedSegment],
        sink: &mut impl Sink,
    ) -> u32 {
        self.process_pending(slot, items, sink);
        let is_reused = matches!(&self.connections[slot as usize], Some(connection)
            if connection.is_reused_by(&item.segment));
        if is_reused {
            self.end_flow(slot, sink);
            return self.start_flow(item, items, sink);
        }
        slot
    }

    #[inline]
    fn find(&self, name: &FlowId) -> Option<u32> {
        let slot = self.recent_slots[name.0.0 as usize % RECENT_SLOTS];
        if self.is_flow_at(slot, name) {
            return Some(slot);
        }
        let hash = self.hash.of(name.0, &name.1);
        (self.table)
            .find(hash, |&slot| self.is_flow_at(slot, name))
            .copied()
    }

    #[inline]
    fn is_flow_at(&self, slot: u32, name: &FlowId) -> bool {
        matches!(self.ids.get(slot as usize), Some(Some(its)) if its == name)
    }

    /// A new flow: its slot.
    #[cold]
    fn start_flow(
        &mut self,
        item: &CapturedSegment,
        items: &[CapturedSegment],
        sink: &mut impl Sink,
    ) -> u32 {
        self.make_room(item.segment.at_ns, items, sink);
        let slot = self.take_slot((item.capture_point, item.key));
        let mut connection = Box::new(Connection::new(item, &mut self.budget));
        self.budget.begin_flow();
        connection.account(&mut self.budget);
        self.connections[slot as usize] = Some(connection);
        let hash = self.hash.of(item.capture_point, &item.key);
        let (hasher, names) = (&self.hash, &self.ids);
        self.table.insert_unique(hash, slot, |&slot| {
            (names[slot as usize].as_ref()).map_or(0, |(vantage, key)| hasher.of(*vantage, key))
        });
        self.recency.insert(slot);
        slot
    }

    fn take_slot(&mut self, name: FlowId) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.ids[slot as usize] = Some(name);
            return slot;
        }
        self.ids.push(Some(name));
        self.connections.push(None);
        self.ids.len() as u32 - 1
    }

    /// Ends the flow seen longest ago if it was closed long ago, and as many as it takes if there is no
    /// room for one more.
    fn make_room(&mut self, now_ns: u64, items: &[CapturedSegment], sink: &mut impl Sink) {
        let Some(slot) = self.recency.oldest() else {
            return;
        };
        self.process_pending(slot, items, sink);
        let is_past = matches!(&self.connections[slot as usize],
            Some(connection) if connection.is_closed() && connection.is_silent(now_ns));
        if is_past {
            self.end_flow(slot, sink);
        }
        while self.budget.is_full() && !self.table.is_empty() {
            self.evict_oldest(items, sink);
        }
    }

    fn end_flow(&mut self, slot: u32, sink: &mut impl Sink) {
        let Some(connection) = self.connections[slot as usize].take() else {
            return;
        };
        let hash = self.hash.of(connection.vantage, &connection.key);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.ids[slot as usize] = None;
        self.recency.remove(slot);
        self.free.push(slot);
        connection.finish(&mut self.budget, sink);
    }
}
