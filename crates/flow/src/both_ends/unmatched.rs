// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that one place has seen and the other not yet.

use crate::record::Missing;
use std::collections::{BTreeMap, VecDeque};

/// Most payload of a packet, as Linux's BIG TCP has it (`GSO_MAX_SIZE`, include/linux/netdevice.h).
const LEN_MAX: u64 = 1 << 19;

/// A packet with payload, without its first number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) end: u64,
    pub(super) at_ns: u64,
    pub(super) tsval: Option<u32>,
    pub(super) segment_bytes: u32,
}

/// A packet without payload, without its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bare {
    pub(super) at_ns: u64,
    pub(super) tsval: Option<u32>,
    pub(super) window: u16,
    pub(super) flags: u8,
    pub(super) sack: Option<(u32, u32)>,
}

impl Bare {
    /// Whether both are the same packet, whenever they were seen.
    fn is_like(&self, other: &Self) -> bool {
        let key = |bare: &Self| (bare.tsval, bare.window, bare.flags, bare.sack);
        key(self) == key(other)
    }
}

/// The part of a packet that is the same at both places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at_ns: u64,
    pub(super) serial: u64,
}

/// What waits at one place, for one direction.
#[derive(Debug, Default)]
pub(super) struct Unmatched {
    /// Packets so far.
    serials: u64,
    /// By first number and packet; parts that found their like are cut out.
    data: BTreeMap<(u64, u64), Packet>,
    /// By acknowledgement and packet.
    bare: BTreeMap<(u64, u64), Bare>,
    /// All of the last packets, matched or not.
    order: VecDeque<Queued>,
    /// The first and the last packet that found its like.
    first: Option<u64>,
    last: Option<u64>,
    missing: Missing,
    at_edges: Missing,
}

#[derive(Debug, Clone, Copy)]
enum Queued {
    Data { serial: u64, start: u64, end: u64 },
    Bare { serial: u64, ack: u64 },
}

impl Unmatched {
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    pub(super) fn waiting(&self) -> usize {
        self.data.len() + self.bare.len()
    }

    /// Cuts out the first part of `from..packet.end` that waits here with the same time stamp. Of
    /// several, that which came nearest to `due`, or first.
    pub(super) fn take(&mut self, from: u64, packet: &Packet, due: Option<u64>) -> Option<Found> {
        if from >= packet.end {
            return None;
        }
        let far = |at_ns: u64| due.map_or(at_ns, |due| at_ns.abs_diff(due));
        let keys = (from.saturating_sub(LEN_MAX), 0)..(packet.end, 0);
        let (key, found) = self
            .data
            .range(keys)
            .filter(|(_, waits)| waits.end > from && waits.tsval == packet.tsval)
            .min_by_key(|(key, waits)| (key.0.max(from), far(waits.at_ns)))
            .map(|(key, waits)| (*key, *waits))?;
        self.data.remove(&key);
        let (start, serial) = key;
        let cut = start.max(from)..found.end.min(packet.end);
        if start < cut.start {
            self.wait(
                start,
                serial,
                Packet {
                    end: cut.start,
                    ..found
                },
            );
        }
        if cut.end < found.end {
            self.wait(cut.end, serial, found);
        }
        Some(Found {
            start: cut.start,
            end: cut.end,
            at_ns: found.at_ns,
            serial,
        })
    }

    pub(super) fn take_bare(&mut self, ack: u64, bare: &Bare) -> Option<Found> {
        let mut alike = self.bare.range((ack, 0)..=(ack, u64::MAX));
        let (key, found) = alike.find(|(_, waits)| waits.is_like(bare))?;
        let (key, at_ns) = (*key, found.at_ns);
        self.bare.remove(&key);
        Some(Found {
            start: ack,
            end: ack,
            at_ns,
            serial: key.1,
        })
    }

    pub(super) fn wait(&mut self, start: u64, serial: u64, packet: Packet) {
        self.data.insert((start, serial), packet);
    }

    pub(super) fn wait_bare(&mut self, ack: u64, serial: u64, bare: Bare) {
        self.bare.insert((ack, serial), bare);
    }

    pub(super) fn queue(&mut self, serial: u64, start: u64, end: u64) {
        self.order.push_back(Queued::Data { serial, start, end });
    }

    pub(super) fn queue_bare(&mut self, serial: u64, ack: u64) {
        self.order.push_back(Queued::Bare { serial, ack });
    }

    /// Packet `serial` found its like; whether a later one had before.
    pub(super) fn matched(&mut self, serial: u64) -> bool {
        let overtaken = self.last.is_some_and(|last| last > serial);
        self.first = Some(self.first.map_or(serial, |first| first.min(serial)));
        self.last = self.last.max(Some(serial));
        overtaken
    }

    /// Gives up on all but the last `packets`.
    pub(super) fn give_up_beyond(&mut self, packets: usize) {
        while self.order.len() > packets {
            match self.order.pop_front() {
                Some(Queued::Data { serial, start, end }) => self.give_up(serial, start, end),
                Some(Queued::Bare { serial, ack }) => self.give_up_bare(serial, ack),
                None => {}
            }
        }
    }

    fn give_up_bare(&mut self, serial: u64, ack: u64) {
        if self.bare.remove(&(ack, serial)).is_some() {
            self.count(serial).acks += 1;
        }
    }

    fn give_up(&mut self, serial: u64, start: u64, end: u64) {
        let mut from = start;
        while let Some(start) = self.part(serial, from, end) {
            if let Some(packet) = self.data.remove(&(start, serial)) {
                let bytes = packet.end - start;
                let missing = self.count(serial);
                missing.bytes += bytes;
                missing.segments += bytes.div_ceil(u64::from(packet.segment_bytes));
                from = packet.end;
            }
        }
    }

    /// Where the first part of packet `serial` begins that still waits.
    fn part(&self, serial: u64, from: u64, end: u64) -> Option<u64> {
        let mut parts = self.data.range((from, 0)..(end, 0));
        parts.find(|(key, _)| key.1 == serial).map(|(key, _)| key.0)
    }

    fn count(&mut self, serial: u64) -> &mut Missing {
        let before = self.first.is_none_or(|first| serial < first);
        let after = self.last.is_none_or(|last| serial > last);
        match before || after {
            true => &mut self.at_edges,
            false => &mut self.missing,
        }
    }

    pub(super) fn missing(&self) -> Missing {
        self.missing
    }

    pub(super) fn edges(&self, other: &Self) -> Missing {
        let (one, two) = (self.at_edges, other.at_edges);
        Missing {
            segments: one.segments + two.segments,
            bytes: one.bytes + two.bytes,
            acks: one.acks + two.acks,
        }
    }
}
