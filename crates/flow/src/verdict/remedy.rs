// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedy: what would make a direction faster, and by how much, once its main limit is gone.
//!
//! The path is the flow's own: its least round trip, its share of retransmitted bytes, and the rate that it
//! reached for a quarter of the time. The formulas of [`longhaul_tcpsim::formulas`] give the rate that the next limit allows.

use super::advertised_window;
use crate::record::{ControlName, Direction, Limit};
use crate::time_series::{bin::Bin, rtt_windows::RttWindows};
use longhaul_tcpsim::formulas::{
    Control, Path,
    prediction::{LimitingFactor, predict},
    window_limit::LARGEST_BYTES,
};
use longhaul_units::{BitRate, Bytes, Time};
use std::ops::Range;

/// Factor between two rates that are called different.
const FASTER: f64 = 1.2;
/// Part of a window whose rate a remedy names, bytes.
const WINDOW_PART: u64 = 100_000;
/// Rate of a path on which only losses limit.
const FASTEST_PATH: BitRate = BitRate::from_bits(1_000_000_000_000);
/// Share of losses up to which the formula for cubic is near: timeouts are left out.
const LOSS_MAX: f64 = 0.02;
/// Share of the round trip above which a queue is called long.
const LONG_QUEUE: f64 = 0.5;

/// Returns what would help `direction`, whose main limit is `main`, in a sentence or two.
pub(super) fn remedy(direction: &Direction, main: Limit, handshake_ns: Option<u64>) -> String {
    let Some(path) = FlowPath::of(direction, handshake_ns) else {
        return String::new();
    };
    match main {
        Limit::Application => path.for_application(),
        Limit::ReceiveWindow if advertised_window::holds_unread_data(&direction.time_series) => {
            "A receiving application that reads faster would help, a larger window would not."
                .to_owned()
        }
        Limit::ReceiveWindow => path.for_window(),
        Limit::CongestionWindow if direction.time_series.bins.iter().any(Bin::is_marked) => {
            "A bottleneck that marks later, or several streams would help.".to_owned()
        }
        Limit::CongestionWindow if path.loss > 0.0 => path.for_losses(),
        Limit::CongestionWindow => format!(
            "The window was still growing: a connection that stays open for the next transfer, or a larger initial \
             window, would save round trips of {}.",
            path.rtt
        ),
        Limit::BottleneckBandwidth => path.for_bottleneck(direction.path_rtt_ns),
        Limit::AckStream => {
            "Fewer ACKs or a faster ACK path would help; a faster data path would not.".to_owned()
        }
    }
}

/// Path of a flow, as far as it shows.
struct FlowPath {
    /// Least round trip.
    rtt: Time,
    /// Share of bytes that were retransmitted.
    loss: f64,
    segment_bytes: u32,
    /// Whether the sender's congestion control is known to be BBR.
    is_bbr: bool,
    /// Mean rate of the flow, payload bits/s.
    goodput_bps: f64,
    /// Rate of the fastest quarter of the time, payload bits/s; `None` for less than a step.
    fastest_bps: Option<f64>,
}

impl FlowPath {
    fn of(direction: &Direction, handshake_ns: Option<u64>) -> Option<Self> {
        let rtt_windows = RttWindows::of(&direction.time_series, handshake_ns)?;
        let data = &direction.data;
        // A handshake may have waited in a queue.
        let by_windows = rtt_windows.bins_to_ns(rtt_windows.path_rtt) as u64;
        let by_position = direction.tap_position.round_trip_ns();
        Some(Self {
            rtt: Time::from_nanos(by_position.map_or(by_windows, |rtt| rtt.min(by_windows))),
            loss: data.retransmitted_bytes as f64 / data.payload_bytes.max(1) as f64,
            segment_bytes: data.segment_max_bytes.max(1),
            is_bbr: (direction.congestion_control.as_ref())
                .is_some_and(|control| control.name == ControlName::Bbr),
            goodput_bps: direction.goodput_bps()?,
            fastest_bps: fastest_bps(&rtt_windows),
        })
    }

    /// Returns the rate of the fastest quarter if it is clearly above the flow's mean rate.
    fn faster_bps(&self) -> Option<f64> {
        self.fastest_bps
            .filter(|bps| *bps > FASTER * self.goodput_bps)
    }

    fn for_application(&self) -> String {
        let text = "A sender that offers more would be faster";
        match self.faster_bps() {
            Some(bps) => format!(
                "{text}: the path carried {} for a quarter of the time.",
                rate(bps)
            ),
            None => format!("{text}; a faster path or larger windows would not help."),
        }
    }

    fn for_window(&self) -> String {
        let part = Bytes::new(WINDOW_PART);
        let part_bps = WINDOW_PART as f64 * 8.0 / self.rtt.as_secs_f64();
        let text = format!(
            "A larger receive window would help: on a round trip of {}, each {part} allow {}",
            self.rtt,
            rate(part_bps)
        );
        let lossy = self.lossy_bps().map(|bps| {
            format!(
                "losses of {} limit cubic to about {}",
                percent(self.loss),
                rate(bps)
            )
        });
        let carried = self
            .faster_bps()
            .map(|bps| format!("the path carried {} for a quarter of the time", rate(bps)));
        match carried.or(lossy) {
            Some(bound) => format!("{text}; {bound}."),
            None => format!("{text}, up to the rate of the path, which does not show."),
        }
    }

    fn for_losses(&self) -> String {
        let others = if self.is_bbr {
            "several streams share them"
        } else {
            "bbr does not slow down for them, and several streams share them"
        };
        match self.lossy_bps() {
            Some(lossy) => format!(
                "With losses of {} and round trips of {}, cubic reaches about {} however fast the path is; {others}.",
                percent(self.loss),
                self.rtt,
                rate(lossy)
            ),
            None if self.loss > LOSS_MAX => format!(
                "Fewer losses than {} would help; {others}.",
                percent(self.loss)
            ),
            None => format!(
                "Each loss reduces the window, which grows again for many round trips of {}: {others}.",
                self.rtt
            ),
        }
    }

    /// Returns the rate that the losses allow cubic on a path as fast as any, bits/s; `None` without losses, or with more
    /// than its formula holds for.
    fn lossy_bps(&self) -> Option<f64> {
        let path = Path {
            rate: FASTEST_PATH,
            rtt: self.rtt,
            loss: self.loss,
            mss: self.segment_bytes,
            queue: longhaul_units::bdp(FASTEST_PATH, self.rtt),
            window: Bytes::new(LARGEST_BYTES),
        };
        let prediction = predict(Control::Cubic, &path).filter(|_| self.loss <= LOSS_MAX)?;
        // The losses of a short or lucky flow say little about a long one.
        let is_bound =
            prediction.limit == LimitingFactor::Loss && prediction.goodput_bps > self.goodput_bps;
        is_bound.then_some(prediction.goodput_bps)
    }

    fn for_bottleneck(&self, median_rtt_ns: Option<u64>) -> String {
        let queue_ns = median_rtt_ns
            .unwrap_or(0)
            .saturating_sub(self.rtt.as_nanos());
        let text = "Only a faster path or less data would help.";
        if queue_ns as f64 > LONG_QUEUE * self.rtt.as_nanos() as f64 {
            format!(
                "{text} The queue adds {} to a round trip of {}; AQM at the bottleneck would keep it short.",
                Time::from_nanos(queue_ns),
                self.rtt
            )
        } else {
            text.to_owned()
        }
    }
}

/// Returns the rate of the fastest quarter of steps of whole round trips, bits/s.
fn fastest_bps(rtt_windows: &RttWindows<'_>) -> Option<f64> {
    let acked = |step: Range<usize>| rtt_windows.acked_in(step.start as f64..step.end as f64);
    let mut bytes: Vec<f64> = rtt_windows.steps().map(acked).collect();
    bytes.sort_unstable_by(f64::total_cmp);
    let fastest = bytes.get(3 * bytes.len() / 4)?;
    Some(fastest * 8e9 / rtt_windows.bins_to_ns(rtt_windows.step))
}

fn rate(bps: f64) -> String {
    BitRate::from_bits(bps as u64).to_string()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
