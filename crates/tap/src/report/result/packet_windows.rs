// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet windows for the time–sequence chart, packed as columns of numbers in base64: 13 bytes for each segment, ACK
//! or SACK block. `segments.js` draws them.

use base64::{Engine, engine::general_purpose::STANDARD};
use longhaul_flow::record::{PacketEvent, PacketEventKind, PacketWindow, WindowTrigger};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Maximum number of events of a single direction, as many as `longhaul_flow` keeps.
const EVENTS_MAX: usize = 1 << 13;
/// Number of events that every large direction may have.
const EVENTS_MIN: usize = 1 << 8;
/// Maximum number of events of all directions of a page: 830 kB.
const EVENTS_SUM_MAX: usize = 48 << 10;

/// Packed packet window. Numbers in the columns are little endian.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedWindow {
    /// Trigger of the window: `beginning`, `loss` or `sample`.
    pub(crate) trigger: String,
    /// Time of the first event, ns since 1970.
    pub(crate) from_ns: u64,
    /// Unit of the times in `at`, ns.
    pub(crate) tick_ns: u64,
    /// Sequence number that `low` and `high` are relative to, in bytes from the first of the direction.
    pub(crate) base: i64,
    /// Number of events.
    pub(crate) count: usize,
    /// Kind of each event: 0 sent, 1 retransmitted, 2 ACK, 3 SACK; u8.
    pub(crate) kind: String,
    /// Time of each event after `from_ns`, in units of `tick_ns`; u32.
    pub(crate) at: String,
    /// First byte of a segment or SACK block, or the acknowledgment number of an ACK; i32.
    pub(crate) low: String,
    /// End of a segment or SACK block (exclusive), or the end of the receive window, less than `low` if unknown; i32.
    pub(crate) high: String,
}

/// Returns the maximum number of events of a direction that keeps the total within the limit.
pub(crate) fn events_max(lengths: &[usize]) -> usize {
    let events_max = fair_limit(lengths, EVENTS_MIN..=EVENTS_MAX, EVENTS_SUM_MAX);
    if sum_of(lengths, events_max) > EVENTS_SUM_MAX {
        EVENTS_SUM_MAX / lengths.len()
    } else {
        events_max
    }
}

/// Returns the limit for each length, within `bounds`, that keeps the total at or below `sum_max` if possible.
pub(crate) fn fair_limit(
    lengths: &[usize],
    bounds: RangeInclusive<usize>,
    sum_max: usize,
) -> usize {
    let mut events_max = *bounds.end();
    while events_max > *bounds.start() && sum_of(lengths, events_max) > sum_max {
        events_max /= 2;
    }
    events_max
}

fn sum_of(lengths: &[usize], events_max: usize) -> usize {
    lengths.iter().map(|length| *length.min(&events_max)).sum()
}

/// Returns the number of events in all windows.
pub(crate) fn event_count(windows: &[PacketWindow]) -> usize {
    windows.iter().map(|window| window.events.len()).sum()
}

/// Packs windows with at most `events_max` events in total: the beginning and losses before samples. The last window
/// that fits is cut.
pub(crate) fn pack(windows: &[PacketWindow], events_max: usize) -> Vec<PackedWindow> {
    let mut remaining = events_max;
    let mut ranked: Vec<&PacketWindow> = windows.iter().collect();
    ranked.sort_by_key(|window| window.trigger == WindowTrigger::Sample);
    let mut packed_windows: Vec<PackedWindow> = ranked
        .into_iter()
        .filter_map(|window| {
            let count = window.events.len().min(remaining);
            remaining -= count;
            (count > 1).then(|| PackedWindow::new(window, &window.events[..count]))
        })
        .collect();
    packed_windows.sort_by_key(|packed_window| packed_window.from_ns);
    packed_windows
}

impl PackedWindow {
    fn new(window: &PacketWindow, events: &[PacketEvent]) -> Self {
        let times = || events.iter().map(|event| event.at_ns);
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let tick_ns = ((last - first) / u64::from(u32::MAX))
            .next_power_of_two()
            .max(1);
        let column = |of: &dyn Fn(&PacketEvent) -> [u8; 4]| {
            STANDARD.encode(events.iter().flat_map(of).collect::<Vec<u8>>())
        };
        Self {
            trigger: trigger_name(window.trigger).to_owned(),
            from_ns: first,
            tick_ns,
            base: window.base,
            count: events.len(),
            kind: STANDARD.encode(
                events
                    .iter()
                    .map(|event| kind_code(event.kind))
                    .collect::<Vec<u8>>(),
            ),
            at: column(&|event| (((event.at_ns - first) / tick_ns) as u32).to_le_bytes()),
            low: column(&|event| event.low.to_le_bytes()),
            high: column(&|event| event.high.to_le_bytes()),
        }
    }
}

fn trigger_name(trigger: WindowTrigger) -> &'static str {
    match trigger {
        WindowTrigger::Beginning => "beginning",
        WindowTrigger::Loss => "loss",
        WindowTrigger::Sample => "sample",
    }
}

fn kind_code(kind: PacketEventKind) -> u8 {
    match kind {
        PacketEventKind::Sent => 0,
        PacketEventKind::Retransmitted => 1,
        PacketEventKind::Ack => 2,
        PacketEventKind::Sack => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(trigger: WindowTrigger, from_ns: u64, count: u64) -> PacketWindow {
        let event = |n: u64| PacketEvent {
            at_ns: from_ns + n * 1_000,
            low: n as i32 - 1,
            high: n as i32,
            kind: PacketEventKind::Retransmitted,
        };
        PacketWindow {
            trigger,
            base: 7,
            events: (0..count).map(event).collect(),
        }
    }

    #[test]
    fn packs_columns_little_endian_and_relative() {
        let packed_windows = pack(&[window(WindowTrigger::Loss, 5_000, 2)], 10);
        let [packed_window] = packed_windows.as_slice() else {
            panic!("{packed_windows:?}")
        };
        let bytes = |text: &str| STANDARD.decode(text).unwrap();
        assert_eq!(
            (
                packed_window.from_ns,
                packed_window.tick_ns,
                packed_window.base,
                packed_window.count
            ),
            (5_000, 1, 7, 2)
        );
        assert_eq!(bytes(&packed_window.at), [0, 0, 0, 0, 0xe8, 3, 0, 0]);
        assert_eq!(bytes(&packed_window.low), [255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(bytes(&packed_window.kind), [1, 1]);
    }

    #[test]
    fn uses_longer_ticks_for_long_windows() {
        let mut long = window(WindowTrigger::Loss, 0, 2);
        long.events[1].at_ns = 100_000_000_000;
        let packed_window = &pack(&[long], 10)[0];
        let last = STANDARD.decode(&packed_window.at).unwrap();
        let ticks = u32::from_le_bytes(last[4..].try_into().unwrap());
        assert!(
            packed_window.tick_ns > 1 && u64::from(ticks) * packed_window.tick_ns > 99_999_999_900
        );
    }

    #[test]
    fn drops_samples_first_when_there_are_too_many_events() {
        let all = [
            window(WindowTrigger::Sample, 100, 50),
            window(WindowTrigger::Loss, 5_000, 30),
            window(WindowTrigger::Loss, 90_000, 30),
        ];
        let kept_events = |events_max| {
            let packed_windows = pack(&all, events_max);
            packed_windows
                .iter()
                .map(|packed_window| (packed_window.from_ns, packed_window.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(kept_events(110), [(100, 50), (5_000, 30), (90_000, 30)]);
        assert_eq!(kept_events(70), [(100, 10), (5_000, 30), (90_000, 30)]);
        assert_eq!(kept_events(40), [(5_000, 30), (90_000, 10)]);
    }

    #[test]
    fn limits_events_of_all_directions() {
        assert_eq!(events_max(&[8_192; 4]), 8_192);
        for directions in [7, 100, 2_000] {
            let events_max = events_max(&vec![8_192; directions]);
            assert!(
                events_max * directions <= EVENTS_SUM_MAX,
                "{directions}: {events_max}"
            );
        }
    }
}
