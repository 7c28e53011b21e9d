// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advertised windows of a time series: which are known, and when they were closed or held unread data.

use crate::record::Acks;
use crate::time_series::{
    TimeSeries,
    bin::{Bin, sum_bins},
    rtt_windows::RttWindows,
};

/// Divisor for the part of the largest window that is unread data if a receiver is slow. Linux lowers a window by less
/// than that when packets use its memory badly.
const UNREAD_DIVISOR: u64 = 4;
/// Round trips over which the bytes delivered in one are averaged: ACKs come in groups.
const DELIVERY_RTTS: f64 = 4.0;

/// Interpretation of the windows of a time series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// Windows are bytes.
    Scaled,
    /// The capture lacks the scale: window sizes mean nothing, unless they are 0.
    Unknown,
}

impl Windows {
    /// Returns how to interpret the windows that `acks` advertise.
    #[must_use]
    pub fn of(acks: &Acks) -> Self {
        match acks.window_scale {
            Some(_) => Self::Scaled,
            None => Self::Unknown,
        }
    }
}

/// Returns whether the receiver held unread data for more than half of the time of `series`.
pub(super) fn holds_unread_data(series: &TimeSeries) -> bool {
    RttWindows::of(series, None).is_some_and(|rtt_windows| {
        let (active, unread) = (rtt_windows.active_bins(), unread_bins(&rtt_windows));
        let count = unread[active.clone()]
            .iter()
            .filter(|unread| **unread)
            .count();
        2 * count > active.len()
    })
}

/// Returns the time for which the window was zero, ns, up to the last data or ACK.
pub(super) fn zero_window_ns(series: &TimeSeries) -> u64 {
    RttWindows::of(series, None).map_or(0, |rtt_windows| {
        let active = rtt_windows.active_bins();
        let zero = closed_bins(rtt_windows.bins(), Windows::Unknown);
        let count = zero[active].iter().filter(|zero| **zero).count();
        rtt_windows.bins_to_ns(count as f64) as u64
    })
}

/// Returns for each bin whether the window is so much below its largest so far that the receiver must hold unread data.
pub(super) fn unread_bins(rtt_windows: &RttWindows<'_>) -> Vec<bool> {
    let mut largest = 0;
    let windows = least_windows(rtt_windows.bins()).enumerate();
    windows
        .map(|(at, window)| {
            largest = largest.max(window.unwrap_or(0));
            let unread = largest - window.unwrap_or(largest);
            let end = (at + 1) as f64;
            let some =
                rtt_windows.acked_in((end - DELIVERY_RTTS * rtt_windows.path_rtt).max(0.0)..end);
            unread > largest / UNREAD_DIVISOR && unread as f64 >= some / DELIVERY_RTTS
        })
        .collect()
}

/// Returns the least window of each bin: of those advertised in it, or the last before.
pub(super) fn least_windows(bins: &[Bin]) -> impl Iterator<Item = Option<u64>> {
    let mut last = None;
    bins.iter().map(move |bin| {
        let least = bin.window_min.map(u64::from).or(last);
        last = bin.window_min.map(|_| bin.window_last.into()).or(last);
        least
    })
}

/// Returns for each bin whether the window had no room for a segment of the usual size at some time. Zero is zero by
/// any scale.
pub(super) fn closed_bins(bins: &[Bin], windows: Windows) -> Vec<bool> {
    let segments = sum_bins(bins, |bin| u64::from(bin.data_segments));
    let segment_bytes = match windows {
        Windows::Scaled => sum_bins(bins, |bin| bin.data_bytes) / segments.max(1),
        Windows::Unknown => 1,
    };
    let is_closed =
        |window: Option<u64>| window.is_some_and(|window| window < segment_bytes.max(1));
    least_windows(bins).map(is_closed).collect()
}
