// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet windows: single segments of the most informative periods, for a chart that zooms in on them. They are the first
//! segments of a flow, those around each loss, and samples in between.
//!
//! A segment outside of the windows costs one comparison. Only the largest flows, as far as their size is known while
//! they are active, have windows. If a flow has too many windows of one kind, those stay that are evenly spread.

use super::record::{PacketEvent, PacketEventKind, PacketWindow, WindowTrigger};
use super::{Settings, segment::unwrap_near};
use std::mem::{size_of, take};

/// Windows a direction for losses, and as many for samples.
const WINDOWS_PER_TRIGGER_MAX: u32 = 7;
/// Packets until the next sample may begin, and until a flow asks again for a slot.
pub(super) const SAMPLE_EVERY: u64 = 1_024;
/// Factor by which a flow must be larger than another to take its slot.
const REPLACE_FACTOR: u64 = 4;
/// Events of segments in flight at the start of a loss window: they cover the gap.
pub(super) const IN_FLIGHT_EVENTS_MAX: usize = 96;

/// Initial events of a window's table.
const INITIAL_EVENTS: usize = 64;

/// Returns the most events of a window.
fn events_max(trigger: WindowTrigger) -> u16 {
    match trigger {
        WindowTrigger::Beginning => 1_024,
        WindowTrigger::Loss => 768,
        WindowTrigger::Sample => 256,
    }
}

/// A direction's reference to its window table, and the state of its open window.
#[derive(Debug, Default)]
pub(super) struct WindowHandle {
    /// Number of the flow plus one; 0 has no slot.
    owner: u64,
    slot: u16,
    direction: u8,
    /// Events that the open window may still take.
    events_left: u16,
    /// Whether the last packet was a retransmission.
    pub(super) retransmitted: bool,
    /// Highest number of the last loss. A loss that shows before this number is acknowledged is the same loss.
    pub(super) loss_end: u64,
}

impl WindowHandle {
    /// Returns whether a window is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.events_left > 0
    }

    /// Returns whether a loss may open a new window, given the ACK number `acked`.
    pub(super) fn accepts_loss(&self, acked: u64) -> bool {
        self.owner != 0 && acked >= self.loss_end
    }
}

/// A window that is being recorded.
#[derive(Debug)]
struct WindowBuffer {
    trigger: WindowTrigger,
    /// First number of the window; events are relative to it.
    base: u64,
    events: Vec<PacketEvent>,
}

impl WindowBuffer {
    /// Makes room for one more event if it can, and returns whether there is room. A full table doubles, up to the
    /// `window_left` events of this window and the `events_left` of all tables.
    fn reserve_event(&mut self, window_left: u16, events_left: &mut usize) -> bool {
        let events = &mut self.events;
        if events.len() < events.capacity() {
            return true;
        }
        let growth_max = events
            .capacity()
            .max(INITIAL_EVENTS)
            .min(usize::from(window_left));
        let growth = growth_max.min(*events_left);
        events.reserve_exact(growth);
        *events_left -= growth;
        growth > 0
    }
}

/// All windows of a direction.
#[derive(Debug, Default)]
struct DirectionWindows {
    windows: Vec<WindowBuffer>,
    /// Tables of dropped windows, by trigger; later windows reuse them, so that a long flow allocates no more.
    spare: [Vec<Vec<PacketEvent>>; 3],
    /// Triggers of each kind so far, and log2 of the sampling step: every first, second, fourth … trigger counts.
    triggers_seen: [u32; 3],
    every_log2: [u8; 3],
}

/// A slot for the windows of one flow.
#[derive(Debug, Default)]
struct FlowSlot {
    /// Owner as in [`WindowHandle::owner`]; 0 is free.
    owner: u64,
    packets: u64,
    directions: [DirectionWindows; 2],
}

/// Slots of a shard.
#[derive(Debug)]
pub(super) struct PacketWindows {
    slots: Vec<FlowSlot>,
    slots_max: usize,
    /// Events by which all tables may still grow.
    events_left: usize,
}

impl PacketWindows {
    /// Returns the part of the memory for tables that windows may use, bytes.
    pub(super) fn bytes_max(settings: &Settings) -> usize {
        match settings.packet_window_flows_max {
            0 => 0,
            _ => settings.tables_max_bytes / 8,
        }
    }

    /// Creates the slots, all free.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            slots: Vec::new(),
            slots_max: settings.packet_window_flows_max,
            events_left: Self::bytes_max(settings) / size_of::<PacketEvent>(),
        }
    }

    /// Gives the directions of a flow with `packets` packets a slot, if they have none. The slot is free or belongs to
    /// a much smaller flow.
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
        if let Some(own) = self.slots.iter().position(|slot| slot.owner == owner) {
            return Some(own);
        }
        if self.slots.len() < self.slots_max {
            self.slots.push(FlowSlot::default());
            return self.assign_slot(self.slots.len() - 1, owner);
        }
        let candidates = self.slots.iter().enumerate();
        let (smallest, slot) =
            candidates.min_by_key(|(_, slot)| (slot.owner != 0, slot.packets))?;
        let free = slot.owner == 0 || slot.packets.saturating_mul(REPLACE_FACTOR) < packets;
        free.then(|| self.assign_slot(smallest, owner)).flatten()
    }

    fn assign_slot(&mut self, slot: usize, owner: u64) -> Option<usize> {
        self.clear(slot);
        self.slots[slot].owner = owner;
        Some(slot)
    }

    fn clear(&mut self, slot: usize) -> [DirectionWindows; 2] {
        let FlowSlot { directions, .. } = take(&mut self.slots[slot]);
        self.events_left += directions
            .iter()
            .map(DirectionWindows::events_capacity)
            .sum::<usize>();
        directions
    }

    /// Opens a window if the trigger counts and no window is open. Returns whether it did. A loss ends a sample window.
    pub(super) fn open_window(
        &mut self,
        handle: &mut WindowHandle,
        trigger: WindowTrigger,
    ) -> bool {
        let Some(windows) = windows_of(&mut self.slots, handle) else {
            handle.events_left = 0;
            return false;
        };
        let outranks = trigger == WindowTrigger::Loss && windows.is_sampling();
        if handle.events_left > 0 && !outranks || !windows.accepts_trigger(trigger) {
            return false;
        }
        let events = windows.spare[trigger as usize].pop().unwrap_or_default();
        windows.windows.push(WindowBuffer {
            trigger,
            base: 0,
            events,
        });
        (handle.events_left, handle.retransmitted) = (events_max(trigger), false);
        true
    }

    /// Records an event that covers `low` to `high` in the open window.
    pub(super) fn record(
        &mut self,
        handle: &mut WindowHandle,
        at_ns: u64,
        (low, high): (u64, u64),
        kind: PacketEventKind,
    ) {
        let windows = windows_of(&mut self.slots, handle).filter(|_| handle.events_left > 0);
        let window = windows.and_then(|windows| windows.windows.last_mut());
        let mut reserve_event = |window: &mut WindowBuffer| {
            window.reserve_event(handle.events_left, &mut self.events_left)
        };
        let Some(window) = window.and_then(|window| reserve_event(window).then_some(window)) else {
            handle.events_left = 0;
            return;
        };
        if window.events.is_empty() {
            window.base = low;
        }
        let relative = |number: u64| {
            (number as u32)
                .wrapping_sub(window.base as u32)
                .cast_signed()
        };
        window.events.push(PacketEvent {
            at_ns,
            low: relative(low),
            high: relative(high),
            kind,
        });
        handle.events_left -= 1;
    }

    /// Ends a flow. Returns its windows, upload and download, in order of time.
    pub(super) fn take_windows(
        &mut self,
        number: u64,
        origins: [u64; 2],
    ) -> [Vec<PacketWindow>; 2] {
        let owner = number + 1;
        let slot_of_flow = self.slots.iter().position(|slot| slot.owner == owner);
        let windows = slot_of_flow
            .map(|slot| self.clear(slot))
            .unwrap_or_default();
        let mut origins = origins.into_iter();
        windows.map(|direction| direction.finish(origins.next().unwrap_or(0)))
    }
}

/// Returns the windows of a direction, unless another flow took its slot.
fn windows_of<'a>(
    slots: &'a mut [FlowSlot],
    handle: &WindowHandle,
) -> Option<&'a mut DirectionWindows> {
    let slot = slots.get_mut(usize::from(handle.slot))?;
    let owns_slot = handle.owner != 0 && slot.owner == handle.owner;
    owns_slot.then(|| &mut slot.directions[usize::from(handle.direction)])
}

impl DirectionWindows {
    /// Counts a trigger and returns whether its window is kept. If there are too many windows, every second one is
    /// dropped, and every second trigger counts from then on.
    fn accepts_trigger(&mut self, trigger: WindowTrigger) -> bool {
        let kind = trigger as usize;
        let number = self.triggers_seen[kind];
        self.triggers_seen[kind] += 1;
        if !self.is_sampled(number, kind) {
            return false;
        }
        let kept = self
            .windows
            .iter()
            .filter(|window| window.trigger == trigger);
        if kept.count() >= WINDOWS_PER_TRIGGER_MAX as usize {
            self.drop_every_second(trigger);
        }
        self.is_sampled(number, kind)
    }

    /// Returns whether the last window is a sample, which ends early when a loss shows.
    fn is_sampling(&self) -> bool {
        (self.windows.last()).is_some_and(|window| window.trigger == WindowTrigger::Sample)
    }

    fn is_sampled(&self, number: u32, kind: usize) -> bool {
        number.trailing_zeros() >= u32::from(self.every_log2[kind])
    }

    /// Drops every second window of a kind.
    fn drop_every_second(&mut self, trigger: WindowTrigger) {
        let kind = trigger as usize;
        self.every_log2[kind] += 1;
        let (mut at, spare) = (0, &mut self.spare[kind]);
        self.windows.retain_mut(|window| {
            let of_this = window.trigger == trigger;
            let stays = !of_this || at % 2 == 0;
            at += usize::from(of_this);
            if !stays {
                window.events.clear();
                spare.push(take(&mut window.events));
            }
            stays
        });
    }

    /// Returns how many events its tables have room for.
    fn events_capacity(&self) -> usize {
        let events = self.windows.iter().map(|window| &window.events);
        let tables = events.chain(self.spare.iter().flatten());
        tables.map(Vec::capacity).sum()
    }

    fn finish(self, origin: u64) -> Vec<PacketWindow> {
        let full = self
            .windows
            .into_iter()
            .filter(|window| window.events.len() > 1);
        full.map(|window| PacketWindow {
            trigger: window.trigger,
            base: window.base.wrapping_sub(origin).cast_signed(),
            events: window.events,
        })
        .collect()
    }
}

/// Returns the range of a packet in flight, unwrapped near `near`.
pub(super) fn unwrapped_range(near: u64, start: u32, length: u32) -> (u64, u64) {
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

    fn claimed(packet_windows: &mut PacketWindows, number: u64, packets: u64) -> WindowHandle {
        let (mut handle, mut other) = (WindowHandle::default(), WindowHandle::default());
        packet_windows.claim_slot(number, packets, [&mut handle, &mut other]);
        handle
    }

    fn fill(packet_windows: &mut PacketWindows, handle: &mut WindowHandle, from: u64) {
        let mut number = from;
        while handle.is_open() {
            packet_windows.record(handle, number, (number, number + 1), PacketEventKind::Sent);
            number += 1;
        }
    }

    #[test]
    fn larger_flow_takes_slot_of_smaller_one() {
        let mut packet_windows = packet_windows(1, 1 << 20);
        let mut small = claimed(&mut packet_windows, 5, 0);
        assert!(packet_windows.open_window(&mut small, WindowTrigger::Beginning));
        assert_eq!(claimed(&mut packet_windows, 6, 0).owner, 0);
        let mut large = claimed(&mut packet_windows, 6, SAMPLE_EVERY);
        assert!(packet_windows.open_window(&mut large, WindowTrigger::Sample));
        packet_windows.record(&mut small, 1, (1, 2), PacketEventKind::Sent);
        assert!(!small.is_open());
        assert_eq!(packet_windows.take_windows(5, [0; 2]), [vec![], vec![]]);
    }

    #[test]
    fn keeps_evenly_spread_windows_of_many() {
        let mut packet_windows = packet_windows(1, 1 << 20);
        let mut handle = claimed(&mut packet_windows, 0, 0);
        for trigger in 0..100 {
            if packet_windows.open_window(&mut handle, WindowTrigger::Sample) {
                fill(&mut packet_windows, &mut handle, 1_000 * (trigger + 1));
            }
        }
        let [found, _] = packet_windows.take_windows(0, [0; 2]);
        let times: Vec<u64> = found
            .iter()
            .map(|e| e.events[0].at_ns / 1_000 - 1)
            .collect();
        assert_eq!(times, [0, 16, 32, 48, 64, 80, 96]);
        assert!(found.iter().all(|e| e.events.len() == 256));
    }

    #[test]
    fn bounds_all_events_and_returns_their_memory() {
        let events = 300;
        let mut packet_windows = packet_windows(2, events * size_of::<PacketEvent>());
        let mut window = claimed(&mut packet_windows, 1, 0);
        packet_windows.open_window(&mut window, WindowTrigger::Beginning);
        fill(&mut packet_windows, &mut window, 7);
        assert_eq!(packet_windows.events_left, 0);
        let [found, _] = packet_windows.take_windows(1, [2; 2]);
        assert_eq!((found[0].events.len(), found[0].base), (events, 5));
        assert_eq!(packet_windows.events_left, events);
    }

    #[test]
    fn relative_numbers_survive_wrap_around() {
        let mut packet_windows = packet_windows(1, 1 << 20);
        let mut handle = claimed(&mut packet_windows, 1, 0);
        packet_windows.open_window(&mut handle, WindowTrigger::Beginning);
        let base = (1 << 33) - 10;
        for low in [base, base + 20, base - 30] {
            packet_windows.record(&mut handle, 1, (low, low + 5), PacketEventKind::Sent);
        }
        let [found, _] = packet_windows.take_windows(1, [base - 100; 2]);
        let events: Vec<_> = found[0].events.iter().map(|m| (m.low, m.high)).collect();
        assert_eq!(
            (found[0].base, events),
            (100, vec![(0, 5), (20, 25), (-30, -25)])
        );
    }
}
