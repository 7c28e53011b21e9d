// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data in flight and full windows in each bin, as the sender knew them.
//!
//! Beside the sender they are those of the capture point. Far from it, the ACKs that packets echo show them
//! (`time_series/sender_view.rs`). Without timestamps, a packet's sender knew the ACKs that had passed the capture point
//! one least round trip to the sender before. A queue lets it know fewer, so the data in flight is at least as much.

use super::advertised_window::{Windows, least_windows};
use crate::time_series::{bin::Bin, rtt_windows::RttWindows};

/// Segments that a full window may have room for: a delayed ACK, and less than a segment.
const ROOM_SEGMENTS: u64 = 2;
/// Part of the window that fills it near a time when all of it was in flight.
const LARGE_PART: f64 = 0.6;
/// Round trips before and after such a time.
const NEAR_RTTS: f64 = 8.0;

/// Source of the data in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The capture point, beside the sender or at an unknown position.
    CapturePoint,
    /// Echoed ACKs.
    Echoes,
    /// The least round trip to the sender.
    RoundTrip,
}

/// Data in flight and full windows of each bin.
pub(super) struct InFlight {
    pub(super) source: Source,
    /// Most bytes in flight when a packet was sent; 0 in a bin without one.
    pub(super) bytes: Vec<u64>,
    /// Packets that filled the advertised window.
    pub(super) window_full: Vec<u32>,
}

impl InFlight {
    /// Returns those of all bins; `is_far` is true if the capture point is not beside the sender.
    pub(super) fn of(rtt_windows: &RttWindows<'_>, windows: Windows, is_far: bool) -> Self {
        let source = match is_far {
            false => Source::CapturePoint,
            true if rtt_windows.sender_rtt > 0.0 => Source::Echoes,
            true => Source::RoundTrip,
        };
        let bins = rtt_windows.bins().iter();
        let (bytes, window_full) = match source {
            Source::CapturePoint => bins.map(|bin| (bin.in_flight_max, bin.window_full)).unzip(),
            Source::Echoes => bins
                .map(|bin| (u64::from(bin.sender.in_flight_max), bin.sender.window_full))
                .unzip(),
            Source::RoundTrip => by_round_trip(rtt_windows, windows),
        };
        Self {
            source,
            bytes,
            window_full,
        }
    }
}

/// Bin in which data was in flight, as far as the round trip tells.
#[derive(Debug, Clone, Copy)]
struct KnownBin {
    bytes: u64,
    /// Window that the sender knew, less the room that a full one may have; `None` if it is unknown.
    window: Option<u64>,
}

impl KnownBin {
    fn is_full(self) -> bool {
        self.window.is_some_and(|window| self.bytes > window)
    }

    /// Returns whether the data in flight fills the window, if it did so in the bin `full` nearby. Where the round trip
    /// varies, it is often less than the sender knew.
    fn is_full_as(self, full: Self) -> bool {
        self.window == full.window
            && self
                .window
                .is_some_and(|window| self.bytes as f64 > LARGE_PART * window as f64)
    }
}

/// Returns the data in flight of each bin, and whether it filled the window.
fn by_round_trip(rtt_windows: &RttWindows<'_>, windows: Windows) -> (Vec<u64>, Vec<u32>) {
    let bins: Vec<_> = known_bins(rtt_windows, windows).collect();
    let span = (NEAR_RTTS * rtt_windows.path_rtt).ceil() as usize;
    let after = follow_full(bins.iter().copied(), span);
    let mut before = follow_full(bins.iter().rev().copied(), span);
    before.reverse();
    let full = after.iter().zip(&before);
    (
        bins.iter().map(|bin| bin.bytes).collect(),
        full.map(|(after, before)| u32::from(*after || *before))
            .collect(),
    )
}

/// Returns for each bin whether it is full by itself, or by a full one at most `span` bins before.
fn follow_full(bins: impl Iterator<Item = KnownBin>, span: usize) -> Vec<bool> {
    let mut last: Option<(usize, KnownBin)> = None;
    let is_full = |(at, bin): (usize, KnownBin)| {
        if bin.is_full() {
            last = Some((at, bin));
        }
        let near = last.filter(|(full_at, _)| at - full_at <= span);
        near.is_some_and(|(_, full)| bin.is_full_as(full))
    };
    bins.enumerate().map(is_full).collect()
}

fn known_bins(rtt_windows: &RttWindows<'_>, windows: Windows) -> impl Iterator<Item = KnownBin> {
    let to_sender = (rtt_windows.path_rtt - rtt_windows.tap_rtt).max(0.0);
    let known_windows: Vec<_> = least_windows(rtt_windows.bins()).collect();
    let bins = rtt_windows.bins().iter().enumerate();
    bins.map(move |(at, bin)| {
        let end = (at + 1) as f64;
        let known = (end - to_sender).max(0.0);
        let bytes = match bin.data_bytes {
            0 => 0,
            _ => (bin.in_flight_max).saturating_add(rtt_windows.acked_in(known..end) as u64),
        };
        let window = known_windows[at.min(known as usize)].filter(|_| windows == Windows::Scaled);
        let room = ROOM_SEGMENTS.saturating_mul(segment_bytes(bin));
        let window = window
            .filter(|_| bytes > 0)
            .map(|window| window.saturating_sub(room));
        KnownBin { bytes, window }
    })
}

fn segment_bytes(bin: &Bin) -> u64 {
    bin.data_bytes / u64::from(bin.data_segments.max(1))
}
