// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single segments of the moments that say most, for a chart that can be zoomed in to them: the first
//! of a flow, those around each loss, and samples in between.
//!
//! A segment outside of them costs one comparison. Of many flows at once only the largest have
//! excerpts, as far as that is known while they go on; of many moments of a kind, those stay that are
//! evenly spread.

use super::record::{PacketEvent, PacketEventKind, PacketWindow, WindowTrigger};
use super::{Settings, segment::unwrap_near};
use std::mem::{size_of, take};

/// Excerpts of losses, and as many samples, a direction.
const WINDOWS_PER_TRIGGER_MAX: u32 = 7;
/// Packets after which the next sample may begin, and a flow asks again for a place.
pub(super) const SAMPLE_EVERY: u64 = 1_024;
/// How many times the packets of another a flow must have to take its place.
const REPLACE_FACTOR: u64 = 4;
/// Segments in flight that an excerpt of a loss begins with: what was sent where the hole is.
pub(super) const IN_FLIGHT_EVENTS_MAX: usize = 96;

/// Marks that the table of an excerpt begins with.
const INITIAL_EVENTS: usize = 64;

/// Marks of an excerpt.
fn events_max(occasion: WindowTrigger) -> u16 {
    match occasion {
        WindowTrigger::Beginning => 1_024,
        WindowTrigger::Loss => 768,
        WindowTrigger::Sample => 256,
    }
}

/// A direction's own part: where its marks go, and how many it may still make now.
#[derive(Debug, Default)]
pub(super) struct WindowHandle {
    /// Number of the flow that it belongs to, plus one; 0 has no place.
    owner: u64,
    slot: u16,
    direction: u8,
    /// Marks that the open excerpt may still have.
    events_left: u16,
    /// Whether the last packet was a retransmission.
    pub(super) retransmitted: bool,
    /// A loss that shows before everything below this is acknowledged is the same.
    pub(super) loss_end: u64,
}

impl WindowHandle {
    /// Whether an excerpt is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.events_left > 0
    }

    /// Whether a loss may be a new occasion, everything below `acked` being acknowledged.
    pub(super) fn accepts_loss(&self, acked: u64) -> bool {
        self.owner != 0 && acked >= self.loss_end
    }
}

/// An excerpt that is being made.
#[derive(Debug)]
struct WindowBuffer {
    occasion: WindowTrigger,
    /// The first number of it; marks are relative to that.
    base: u64,
    marks: Vec<PacketEvent>,
}

impl WindowBuffer {
    /// Room for a mark, of `left` that may come: the table doubles, within what all may still grow by.
    fn has_room(&mut self, left: u16, marks_left: &mut usize) -> bool {
        let marks = &mut self.marks;
        if marks.len() < marks.capacity() {
            return true;
        }
        let wanted = marks.capacity().max(INITIAL_EVENTS).min(usize::from(left));
        let growth = wanted.min(*marks_left);
        marks.reserve_exact(growth);
        *marks_left -= growth;
        growth > 0
    }
}

/// All excerpts of a direction.
#[derive(Debug, Default)]
struct DirectionWindows {
    windows: Vec<WindowBuffer>,
    /// Tables of excerpts that went, by occasion: the next take them, so that a long flow allocates no more.
    spare: [Vec<Vec<PacketEvent>>; 3],
    /// Occasions of each kind so far, and which of them count: every first, second, fourth…
    triggers_seen: [u32; 3],
    every_log2: [u8; 3],
}

/// A flow that has a place.
#[derive(Debug, Default)]
struct FlowSlot {
    /// As [`WindowHandle::owner`] has it; 0 is free.
    owner: u64,
    packets: u64,
    directions: [DirectionWindows; 2],
}

/// The places of a shard.
#[derive(Debug)]
pub(super) struct PacketWindows {
    slots: Vec<FlowSlot>,
    slots_max: usize,
    /// By which all tables may still grow.
    events_left: usize,
}

impl PacketWindows {
    /// Memory that they may have, of what all tables may have.
    pub(super) fn bytes_max(settings: &Settings) -> usize {
        match settings.packet_window_flows_max {
            0 => 0,
            _ => settings.tables_max_bytes / 8,
        }
    }

    /// No place is taken.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            slots: Vec::new(),
            slots_max: settings.packet_window_flows_max,
            events_left: Self::bytes_max(settings) / size_of::<PacketEvent>(),
        }
    }

    /// A flow has had so many packets: gives its directions a place, if it has none and there is a free
    /// one or one of a much smaller flow.
    pub(super) fn claim_slot(
        &mut self,
        number: u64,
        packets: u64,
        handles: [&mut WindowHandle; 2],
    ) {
        let owner = number + 1;
        if let Some(slot) = self.slot_for(owner, packets) {
            self.slots[slot].packets = packets;
            for (direction, handle) in (0..).zip(handles) {
                if handle.owner != owner || usize::from(handle.slot) != slot {
                    (handle.owner, handle.slot, handle.direction) = (owner, slot as u16, direction);
                }
            }
        }
    }

    fn slot_for(&mut self, owner: u64, packets: u64) -> Option<usize> {
        if let Some(own) = self.slots.iter().position(|place| place.owner == owner) {
            return Some(own);
        }
        if self.slots.len() < self.slots_max {
            self.slots.push(FlowSlot::default());
            return self.take(self.slots.len() - 1, owner);
        }
        let candidates = self.slots.iter().enumerate();
        let (least, place) =
            candidates.min_by_key(|(_, place)| (place.owner != 0, place.packets))?;
        let free = place.owner == 0 || place.packets.saturating_mul(REPLACE_FACTOR) < packets;
        free.then(|| self.take(least, owner)).flatten()
    }

    fn take(&mut self, slot: usize, owner: u64) -> Option<usize> {
        self.clear(slot);
        self.slots[slot].owner = owner;
        Some(slot)
    }

    fn clear(&mut self, slot: usize) -> [DirectionWindows; 2] {
        let FlowSlot {
            directions: ways, ..
        } = take(&mut self.slots[slot]);
        self.events_left += ways
            .iter()
            .map(DirectionWindows::events_capacity)
            .sum::<usize>();
        ways
    }

    /// An occasion: begins an excerpt if this is one that counts and none is open.
    pub(super) fn begin(&mut self, handle: &mut WindowHandle, occasion: WindowTrigger) -> bool {
        let Some(windows) = windows_of(&mut self.slots, handle) else {
            handle.events_left = 0;
            return false;
        };
        let outranks = occasion == WindowTrigger::Loss && windows.is_sampling();
        if handle.events_left > 0 && !outranks || !windows.admits(occasion) {
            return false;
        }
        let marks = windows.spare[occasion as usize].pop().unwrap_or_default();
        windows.windows.push(WindowBuffer {
            occasion,
            base: 0,
            marks,
        });
        (handle.events_left, handle.retransmitted) = (events_max(occasion), false);
        true
    }

    /// A mark of the open excerpt, from `low` to `high`.
    pub(super) fn record(
        &mut self,
        handle: &mut WindowHandle,
        at_ns: u64,
        (low, high): (u64, u64),
        kind: PacketEventKind,
    ) {
        let windows = windows_of(&mut self.slots, handle).filter(|_| handle.events_left > 0);
        let open = windows.and_then(|way| way.windows.last_mut());
        let mut room =
            |open: &mut WindowBuffer| open.has_room(handle.events_left, &mut self.events_left);
        let Some(open) = open.and_then(|open| room(open).then_some(open)) else {
            handle.events_left = 0;
            return;
        };
        if open.marks.is_empty() {
            open.base = low;
        }
        let relative = |number: u64| (number as u32).wrapping_sub(open.base as u32).cast_signed();
        open.marks.push(PacketEvent {
            at_ns,
            low: relative(low),
            high: relative(high),
            kind,
        });
        handle.events_left -= 1;
    }

    /// The flow is over: its excerpts, upload and download, in order of time.
    pub(super) fn release(&mut self, number: u64, origins: [u64; 2]) -> [Vec<PacketWindow>; 2] {
        let owner = number + 1;
        let own = self.slots.iter().position(|place| place.owner == owner);
        let ways = own.map(|place| self.clear(place)).unwrap_or_default();
        let mut origins = origins.into_iter();
        ways.map(|way| way.finish(origins.next().unwrap_or(0)))
    }
}

/// Where the marks of a direction go, unless another flow took its place.
fn windows_of<'a>(
    slots: &'a mut [FlowSlot],
    eye: &WindowHandle,
) -> Option<&'a mut DirectionWindows> {
    let slot = slots.get_mut(usize::from(eye.slot))?;
    let mine = eye.owner != 0 && slot.owner == eye.owner;
    mine.then(|| &mut slot.directions[usize::from(eye.direction)])
}

impl DirectionWindows {
    /// Counts an occasion, and whether it is one of those that are kept. Of too many, each second goes
    /// and each second counts from then on.
    fn admits(&mut self, occasion: WindowTrigger) -> bool {
        let kind = occasion as usize;
        let number = self.triggers_seen[kind];
        self.triggers_seen[kind] += 1;
        if !self.is_due(number, kind) {
            return false;
        }
        let kept = self.windows.iter().filter(|one| one.occasion == occasion);
        if kept.count() >= WINDOWS_PER_TRIGGER_MAX as usize {
            self.drop_every_second(occasion);
        }
        self.is_due(number, kind)
    }

    /// Whether the last excerpt is a sample, which ends where there is something to see.
    fn is_sampling(&self) -> bool {
        (self.windows.last()).is_some_and(|open| open.occasion == WindowTrigger::Sample)
    }

    fn is_due(&self, number: u32, kind: usize) -> bool {
        number.trailing_zeros() >= u32::from(self.every_log2[kind])
    }

    /// Drops each second excerpt of a kind.
    fn drop_every_second(&mut self, occasion: WindowTrigger) {
        let kind = occasion as usize;
        self.every_log2[kind] += 1;
        let (mut at, spare) = (0, &mut self.spare[kind]);
        self.windows.retain_mut(|one| {
            let of_this = one.occasion == occasion;
            let stays = !of_this || at % 2 == 0;
            at += usize::from(of_this);
            if !stays {
                one.marks.clear();
                spare.push(take(&mut one.marks));
            }
            stays
        });
    }

    /// Marks that its tables have room for.
    fn events_capacity(&self) -> usize {
        let open = self.windows.iter().map(|open| &open.marks);
        let tables = open.chain(self.spare.iter().flatten());
        tables.map(Vec::capacity).sum()
    }

    fn finish(self, origin: u64) -> Vec<PacketWindow> {
        let full = self.windows.into_iter().filter(|one| one.marks.len() > 1);
        full.map(|one| PacketWindow {
            trigger: one.occasion,
            base: one.base.wrapping_sub(origin).cast_signed(),
            events: one.marks,
        })
        .collect()
    }
}

/// What a packet in flight covers, from a number on the wire near `near`.
pub(super) fn numbers_of(near: u64, start: u32, length: u32) -> (u64, u64) {
    let low = unwrap_near(near, start);
    (low, low + u64::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_windows(flows: usize, bytes: usize) -> PacketWindows {
        PacketWindows::new(&Settings {
            packet_window_flows_max: flows,
            tables_max_bytes: bytes * 8,
            ..Settings::default()
        })
    }

    fn claimed(all: &mut PacketWindows, number: u64, packets: u64) -> WindowHandle {
        let (mut eye, mut other) = (WindowHandle::default(), WindowHandle::default());
        all.claim_slot(number, packets, [&mut eye, &mut other]);
        eye
    }

    fn fill(all: &mut PacketWindows, eye: &mut WindowHandle, from: u64) {
        let mut number = from;
        while eye.is_open() {
            all.record(eye, number, (number, number + 1), PacketEventKind::Sent);
            number += 1;
        }
    }

    #[test]
    fn a_larger_flow_takes_the_place_of_a_smaller() {
        let mut all = packet_windows(1, 1 << 20);
        let mut small = claimed(&mut all, 5, 0);
        assert!(all.begin(&mut small, WindowTrigger::Beginning));
        assert_eq!(claimed(&mut all, 6, 0).owner, 0);
        let mut large = claimed(&mut all, 6, SAMPLE_EVERY);
        assert!(all.begin(&mut large, WindowTrigger::Sample));
        all.record(&mut small, 1, (1, 2), PacketEventKind::Sent);
        assert!(!small.is_open());
        assert_eq!(all.release(5, [0; 2]), [vec![], vec![]]);
    }

    #[test]
    fn of_many_occasions_those_stay_that_are_evenly_spread() {
        let mut all = packet_windows(1, 1 << 20);
        let mut eye = claimed(&mut all, 0, 0);
        for occasion in 0..100 {
            if all.begin(&mut eye, WindowTrigger::Sample) {
                fill(&mut all, &mut eye, 1_000 * (occasion + 1));
            }
        }
        let [found, _] = all.release(0, [0; 2]);
        let times: Vec<u64> = found
            .iter()
            .map(|e| e.events[0].at_ns / 1_000 - 1)
            .collect();
        assert_eq!(times, [0, 16, 32, 48, 64, 80, 96]);
        assert!(found.iter().all(|e| e.events.len() == 256));
    }

    #[test]
    fn marks_have_a_bound_together_and_are_given_back() {
        let marks = 300;
        let mut all = packet_windows(2, marks * size_of::<PacketEvent>());
        let mut one = claimed(&mut all, 1, 0);
        all.begin(&mut one, WindowTrigger::Beginning);
        fill(&mut all, &mut one, 7);
        assert_eq!(all.events_left, 0);
        let [found, _] = all.release(1, [2; 2]);
        assert_eq!((found[0].events.len(), found[0].base), (marks, 5));
        assert_eq!(all.events_left, marks);
    }

    #[test]
    fn numbers_are_relative_whatever_wraps() {
        let mut all = packet_windows(1, 1 << 20);
        let mut eye = claimed(&mut all, 1, 0);
        all.begin(&mut eye, WindowTrigger::Beginning);
        let base = (1 << 33) - 10;
        for low in [base, base + 20, base - 30] {
            all.record(&mut eye, 1, (low, low + 5), PacketEventKind::Sent);
        }
        let [found, _] = all.release(1, [base - 100; 2]);
        let marks: Vec<_> = found[0].events.iter().map(|m| (m.low, m.high)).collect();
        assert_eq!(
            (found[0].base, marks),
            (100, vec![(0, 5), (20, 25), (-30, -25)])
        );
    }
}
