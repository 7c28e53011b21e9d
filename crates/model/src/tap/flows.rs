// SPDX-License-Identifier: MIT OR Apache-2.0
//! All flows of a shard.

use super::bounds::Bounds;
use super::connection::Connection;
use super::recency::Recency;
use super::segment::{Endpoint, FlowKey, Segment, Vantage};
use super::{Settings, Sink, key_hash::KeyHash};
use hashbrown::HashTable;

/// A flow that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Going {
    /// The number of its first packet.
    pub number: u64,
    /// Where it is seen.
    pub vantage: Vantage,
    /// Client and server, as [`super::record::Flow`] has them.
    pub ends: [Endpoint; 2],
}

/// Vantages that are told apart without the table.
const LAST: usize = 4;

/// All flows of one shard: whoever has several gives each all segments of its flows, in order of time.
#[derive(Debug)]
pub struct Flows {
    bounds: Bounds,
    hash: KeyHash,
    /// Slots of the flows that go on, by vantage and key.
    table: HashTable<u32>,
    /// A slot without a connection is in `free`.
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    recency: Recency,
    /// The slots of the last segments: most often the next is of the same flow. Those of different
    /// vantages take turns, so they have different places.
    last: [u32; LAST],
}

impl Flows {
    /// No flow yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            bounds: Bounds::new(settings),
            hash: KeyHash::new(),
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            recency: Recency::new(),
            last: [0; LAST],
        }
    }

    /// Takes a segment in. `number` counts the capture's packets (over all vantages and shards); a flow
    /// has the number of its first packet, so that numbers don't depend on how flows are sharded.
    #[inline]
    pub fn segment(
        &mut self,
        number: u64,
        vantage: Vantage,
        key: &FlowKey,
        segment: &Segment,
        sink: &mut impl Sink,
    ) {
        let slot = match self.find(vantage, key) {
            Some(slot) if !self.is_reused(slot, segment) => slot,
            Some(slot) => {
                self.end(slot, sink);
                self.begin(number, vantage, key, segment, sink)
            }
            None => self.begin(number, vantage, key, segment, sink),
        };
        self.recency.touch(slot);
        self.last[vantage.0 as usize % LAST] = slot;
        if let Some(connection) = &mut self.slots[slot as usize] {
            connection.segment(segment, &mut self.bounds, sink);
        }
    }

    /// Time has come to `now_ns`, and no segment from before it will: bins that are over are reported,
    /// also of flows that are silent.
    pub fn close_bins(&mut self, now_ns: u64, sink: &mut impl Sink) {
        for connection in self.slots.iter_mut().flatten() {
            connection.close_bins(now_ns, &mut self.bounds, sink);
        }
    }

    /// The flows that go on, or whose end was not reported yet.
    pub fn going(&self) -> impl Iterator<Item = Going> {
        (self.slots.iter().flatten()).map(|connection| Going {
            number: connection.number,
            vantage: connection.vantage,
            ends: connection.ends(),
        })
    }

    /// The capture is at its end: every flow is reported, in order of its number.
    pub fn finish(mut self, sink: &mut impl Sink) {
        let mut connections: Vec<_> = self.slots.into_iter().flatten().collect();
        connections.sort_unstable_by_key(|connection| connection.number);
        for connection in connections {
            connection.finish(&mut self.bounds, sink);
        }
    }

    #[inline]
    fn find(&self, vantage: Vantage, key: &FlowKey) -> Option<u32> {
        let last = self.last[vantage.0 as usize % LAST];
        if self.is_at(last, vantage, key) {
            return Some(last);
        }
        let hash = self.hash.of(vantage, key);
        (self.table)
            .find(hash, |&slot| self.is_at(slot, vantage, key))
            .copied()
    }

    #[inline]
    fn is_at(&self, slot: u32, vantage: Vantage, key: &FlowKey) -> bool {
        matches!(self.slots.get(slot as usize), Some(Some(connection))
            if connection.vantage == vantage && connection.key == *key)
    }

    #[inline]
    fn is_reused(&self, slot: u32, segment: &Segment) -> bool {
        matches!(&self.slots[slot as usize], Some(connection) if connection.is_reused_by(segment))
    }

    /// A new flow: its slot.
    fn begin(
        &mut self,
        number: u64,
        vantage: Vantage,
        key: &FlowKey,
        segment: &Segment,
        sink: &mut impl Sink,
    ) -> u32 {
        self.make_room(segment.at_ns, sink);
        let connection = Connection::new(number, vantage, key, segment, &mut self.bounds);
        let slot = self.take_slot(Box::new(connection));
        let hash = self.hash.of(vantage, key);
        let (hasher, slots) = (&self.hash, &self.slots);
        self.table.insert_unique(hash, slot, |&slot| {
            (slots[slot as usize].as_ref()).map_or(0, |c| hasher.of(c.vantage, &c.key))
        });
        self.recency.insert(slot);
        slot
    }

    fn take_slot(&mut self, connection: Box<Connection>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(connection);
            return slot;
        }
        self.slots.push(Some(connection));
        self.slots.len() as u32 - 1
    }

    /// Ends the flow seen longest ago if there would be too many, or if it was closed long ago.
    fn make_room(&mut self, now_ns: u64, sink: &mut impl Sink) {
        let Some(slot) = self.recency.oldest() else {
            return;
        };
        let is_past = matches!(&self.slots[slot as usize],
            Some(connection) if connection.is_closed() && connection.is_silent(now_ns));
        if is_past || self.table.len() >= self.bounds.settings.flows_max.max(1) {
            self.end(slot, sink);
        }
    }

    fn end(&mut self, slot: u32, sink: &mut impl Sink) {
        let Some(connection) = self.slots[slot as usize].take() else {
            return;
        };
        let hash = self.hash.of(connection.vantage, &connection.key);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.recency.remove(slot);
        self.free.push(slot);
        connection.finish(&mut self.bounds, sink);
    }
}
