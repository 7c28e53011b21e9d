// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evidence of standing queues: how much longer than the least every round trip of a step was, and on which path.
//!
//! The round trip of a capture point has two parts. To the receiver and back, the age of the first unacknowledged byte
//! shows the queue ([`Bin::unacked_age_min_us`]). To the sender and back, the time from an ACK to the first data that
//! echoes it does ([`SenderView::rtt_min_us`](crate::time_series::sender_view::SenderView)). Beside an end, one part is
//! next to nothing.

use super::baseline::{Baseline, StepDelay};
use crate::acks::path_delay;
use crate::record::{DelayBin, DelaySeries};
use crate::time_series::{bin::Bin, rtt_windows::RttWindows};
use longhaul_stats::sample;
use std::ops::Range;

/// Excess of the round trip over its least that shows a standing queue: this part of it, and this time.
const QUEUE_PART_MIN: f64 = 0.05;
const QUEUE_MIN_NS: f64 = 500e3;
/// Excess that shows one where the round trip to the sender is measured by timestamps: their resolution is a
/// millisecond, and a sender that paces lets an ACK wait for as long.
const ECHOED_QUEUE_MIN_NS: f64 = 3e6;
/// The same as a factor of the noise of a step's least round trip: the least of the flow is some deviations below that
/// of most steps.
const QUEUE_NOISE: f64 = 4.0;
/// Delay that the slowest tenth of packets has beyond the fastest on a full path, however short its queue. Timestamps
/// have a resolution of a millisecond.
const FLUCTUATION_NS: f64 = 1e6;
/// Least delay of the ACK path that counts, as timestamps have a resolution of a millisecond.
const ACK_DELAY_MIN_NS: f64 = 3e6;

/// Points of a path at which a direction was captured.
#[derive(Debug, Clone, Copy)]
pub enum CapturePoints<'a> {
    /// Near the sender, where everything in flight is seen, or at an unknown position.
    NearSender,
    /// In the middle of the path or near the receiver.
    FarFromSender,
    /// Near the sender, and also near the receiver.
    BothEnds(&'a PathDelays<'a>),
}

/// One-way delays between a capture at the sender and one at the receiver.
#[derive(Debug, Clone, Copy)]
pub struct PathDelays<'a> {
    /// Delays of data, from the sender to the receiver.
    pub data: &'a DelaySeries,
    /// Delays of ACKs.
    pub acks: &'a DelaySeries,
    /// Clock of the delays less the clock of the sender's capture, ns.
    pub clock_ahead_ns: i64,
}

/// Evidence of queues in each bin of a series.
pub(super) struct Queues<'a> {
    /// Delay of the bin's ACKs from the receiver to the capture point above that of the fastest ACK, ns.
    ack_excess: Option<Vec<Option<f64>>>,
    /// The same of the data from the sender to the capture point.
    data_excess: Option<Vec<Option<f64>>>,
    capture_points: CapturePoints<'a>,
    baseline: Baseline,
}

impl<'a> Queues<'a> {
    pub(super) fn of(rtt_windows: &RttWindows<'_>, capture_points: CapturePoints<'a>) -> Self {
        let width_ns = rtt_windows.bins_to_ns(1.0) as u64;
        let bins = rtt_windows.bins().iter();
        let ack_delays: Vec<_> = bins
            .map(|bin| bin.ack_path_delay_ns.map(|ns| ns as f64))
            .collect();
        let mut queues = Self {
            ack_excess: path_delay::excess_ns(&ack_delays, width_ns),
            data_excess: data_excess_ns(rtt_windows.bins(), width_ns),
            capture_points,
            baseline: Baseline::default(),
        };
        queues.baseline = queues.baseline_of(rtt_windows);
        queues
    }

    fn baseline_of(&self, rtt_windows: &RttWindows<'_>) -> Baseline {
        let steps = rtt_windows.steps().filter_map(|bins| {
            let above_least = self.above_least(rtt_windows, &bins);
            Some(StepDelay {
                bin: bins.start,
                excess_ns: above_least.excess_min?.max(0.0),
                rtt_excess_ns: rtt_windows.bins()[bins.clone()]
                    .iter()
                    .any(|bin| bin.rtt_samples > 0)
                    .then_some(above_least.rtt_excess.max(0.0)),
                acked: rtt_windows.acked_in(bins.start as f64..bins.end as f64),
                is_lossy: rtt_windows.bins()[bins.clone()]
                    .iter()
                    .any(|bin| bin.retransmitted_bytes > 0 || bin.sacks > 0),
            })
        });
        Baseline::of(&steps.collect::<Vec<_>>())
    }

    /// Returns the evidence of a queue in the bins `range`.
    pub(super) fn evidence(&self, rtt_windows: &RttWindows<'_>, range: &Range<usize>) -> Evidence {
        let above_least = self.above_least(rtt_windows, range);
        let baseline = self.baseline.of_bin(range.start);
        let noise = QUEUE_NOISE * baseline.noise_ns;
        Evidence {
            excess_min: above_least
                .excess_min
                .map(|excess| excess - baseline.least_ns),
            rtt_excess: above_least.rtt_excess - baseline.least_ns,
            excess_threshold: above_least.excess_threshold.max(noise),
            ..above_least
        }
    }

    /// Returns the least round trip behind a capture point near the sender on the path of `bin`, bins. Far from it, a
    /// longer path may be longer before the capture point.
    pub(super) fn least_rtt(&self, rtt_windows: &RttWindows<'_>, bin: usize) -> f64 {
        let more_ns = match self.capture_points {
            CapturePoints::NearSender => self.baseline.of_bin(bin).least_ns.max(0.0),
            CapturePoints::FarFromSender | CapturePoints::BothEnds(_) => 0.0,
        };
        rtt_windows.tap_rtt + more_ns / rtt_windows.bins_to_ns(1.0)
    }

    /// Returns whether round trips or the delay of data fluctuate in the bins `range`, as a queue makes them. A sender that
    /// paces below the path's rate has constant ones, and so has each of two paths in turn.
    pub(super) fn fluctuate(&self, rtt_windows: &RttWindows<'_>, range: &Range<usize>) -> bool {
        let excess = |bin: usize| {
            let rtt_ns = Some(rtt_windows.bins()[bin].rtt_min_ns).filter(|ns| *ns > 0)?;
            Some(rtt_ns as f64 - rtt_windows.bins_to_ns(self.least_rtt(rtt_windows, bin)))
        };
        let rtts = sample::sorted(range.clone().filter_map(excess));
        let delays = (self.data_excess.iter()).flat_map(|excess| &excess[range.clone()]);
        let delays = sample::sorted(delays.flatten().copied());
        let slowest_tenth = |excess: &[f64]| sample::quantile(excess, 0.9);
        [rtts, delays]
            .iter()
            .any(|excess| slowest_tenth(excess) > Some(FLUCTUATION_NS))
    }

    /// Returns the evidence by the excess over the flow's least round trip.
    fn above_least(&self, rtt_windows: &RttWindows<'_>, range: &Range<usize>) -> Evidence {
        let bins = &rtt_windows.bins()[range.clone()];
        match self.capture_points {
            CapturePoints::BothEnds(delays) => delays.evidence(
                rtt_windows.bin_start_ns(range.start),
                rtt_windows.bin_start_ns(range.end),
            ),
            CapturePoints::FarFromSender if rtt_windows.sender_rtt > 0.0 => {
                self.excess_of_both_parts(rtt_windows, range)
            }
            CapturePoints::NearSender | CapturePoints::FarFromSender => Evidence {
                ack_delay: least_of(self.ack_excess.as_ref(), range),
                ..excess_to_receiver(rtt_windows, bins)
            },
        }
    }

    /// Returns the evidence by both parts of the round trip: to the receiver and to the sender.
    fn excess_of_both_parts(&self, rtt_windows: &RttWindows<'_>, range: &Range<usize>) -> Evidence {
        let bins = &rtt_windows.bins()[range.clone()];
        let to_receiver = excess_to_receiver(rtt_windows, bins);
        let Some(to_sender) = excess_to_sender(rtt_windows, bins) else {
            return Evidence {
                excess_min: None,
                rtt_excess: 0.0,
                ..to_receiver
            };
        };
        // What the round trip to the sender has beyond the delay of data is delay of ACKs.
        let data_delay = least_of(self.data_excess.as_ref(), range);
        let ack_delay = data_delay.map(|data| (to_sender - data).max(0.0));
        let ack_delay_to_tap = least_of(self.ack_excess.as_ref(), range).unwrap_or(0.0);
        let gap_ns = rtt_windows.bins_to_ns(longest_gap(bins) as f64);
        Evidence {
            excess_min: Some(to_sender + to_receiver.excess_min.unwrap_or(0.0).max(0.0)),
            rtt_excess: to_sender + to_receiver.rtt_excess.max(0.0),
            ack_delay: ack_delay.map(|delay| delay + ack_delay_to_tap),
            excess_threshold: gap_ns.max(ECHOED_QUEUE_MIN_NS),
            ..to_receiver
        }
    }
}

/// Returns the delay of each bin's data from the sender to the capture point above that of the fastest, ns; `None` without
/// timestamps that count milliseconds.
pub(super) fn data_excess_ns(bins: &[Bin], width_ns: u64) -> Option<Vec<Option<f64>>> {
    let delay = |bin: &Bin| bin.sender.data_path_delay_us.map(|us| f64::from(us) * 1e3);
    let delays: Vec<_> = bins.iter().map(delay).collect();
    path_delay::excess_ns(&delays, width_ns)
}

/// Returns the least value of the bins `range`.
fn least_of(excess: Option<&Vec<Option<f64>>>, range: &Range<usize>) -> Option<f64> {
    let excess = excess?[range.clone()].iter().flatten();
    excess.copied().reduce(f64::min)
}

/// Returns the longest time between two packets in bins. A sender with nothing to send lets an ACK wait that long.
fn longest_gap(bins: &[Bin]) -> usize {
    let pauses = bins.split(|bin| bin.data_bytes > 0).map(<[Bin]>::len);
    pauses
        .filter(|pause| *pause > 0)
        .max()
        .map_or(0, |pause| pause + 1)
}

fn excess_to_receiver(rtt_windows: &RttWindows<'_>, bins: &[Bin]) -> Evidence {
    let above = |ns: u64| ns as f64 - rtt_windows.bins_to_ns(rtt_windows.tap_rtt);
    let rtt = bins.iter().map(|bin| bin.rtt_min_ns).filter(|rtt| *rtt > 0);
    let age = bins.iter().map(|bin| u64::from(bin.unacked_age_min_us));
    let age = age.filter(|age| *age > 0).min();
    Evidence {
        excess_min: age.map(|age| above(age * 1_000)),
        rtt_excess: rtt.min().map_or(0.0, above),
        ack_delay: None,
        ack_delay_min: ACK_DELAY_MIN_NS,
        excess_threshold: QUEUE_MIN_NS,
    }
}

fn excess_to_sender(rtt_windows: &RttWindows<'_>, bins: &[Bin]) -> Option<f64> {
    let rtt = bins.iter().map(|bin| bin.sender.rtt_min_us);
    let rtt = rtt.filter(|rtt| *rtt > 0).min()?;
    Some(f64::from(rtt) * 1e3 - rtt_windows.bins_to_ns(rtt_windows.sender_rtt))
}

/// Evidence of a queue in one step, ns.
pub(super) struct Evidence {
    /// Delay that a queue added to every round trip; `None` without a sample.
    excess_min: Option<f64>,
    /// Excess of the fastest round trip over the least.
    rtt_excess: f64,
    /// Delay of every ACK above that of the fastest.
    ack_delay: Option<f64>,
    /// Least `ack_delay` that exceeds the measurement error.
    ack_delay_min: f64,
    /// Least `excess_min` that exceeds it.
    excess_threshold: f64,
}

impl Evidence {
    /// Returns whether a queue stood during the whole step on a path with the least round trip `path_rtt`, ns.
    pub(super) fn shows_queue(&self, path_rtt: f64) -> bool {
        let least = (QUEUE_PART_MIN * path_rtt).max(self.excess_threshold);
        self.excess_min.is_some_and(|excess| excess > least)
    }

    /// Returns whether the queue is one of ACKs.
    pub(super) fn is_ack_queue(&self) -> bool {
        let half = self.rtt_excess / 2.0;
        self.ack_delay
            .is_some_and(|acks| acks >= half.max(self.ack_delay_min))
    }
}

impl PathDelays<'_> {
    /// Returns the queues of data and of ACKs from `from_ns` to `to_ns`, by the clock of the sender's capture.
    fn evidence(&self, from_ns: u64, to_ns: u64) -> Evidence {
        let [from, to] = [from_ns, to_ns].map(|at| at.saturating_add_signed(self.clock_ahead_ns));
        let [data, acks] = [self.data, self.acks].map(|series| excess_delay(series, from, to));
        let both = data.unwrap_or(0.0) + acks.unwrap_or(0.0);
        Evidence {
            excess_min: data.or(acks).map(|_| both),
            rtt_excess: both,
            ack_delay: acks,
            ack_delay_min: QUEUE_MIN_NS,
            excess_threshold: QUEUE_MIN_NS,
        }
    }
}

/// Returns the least delay between two times above the least of `series`, ns; `None` without a packet.
fn excess_delay(series: &DelaySeries, from_ns: u64, to_ns: u64) -> Option<f64> {
    let width = series.width_ns.max(1);
    let index = |at: u64| usize::try_from(at.saturating_sub(series.from_ns) / width);
    let bin = |at: u64| index(at).map_or(series.bins.len(), |at| at.min(series.bins.len()));
    let least = |bins: &[DelayBin]| {
        let some = bins.iter().filter(|bin| bin.count > 0);
        some.map(|bin| bin.min_ns).min()
    };
    let during = least(&series.bins[bin(from_ns)..bin(to_ns.saturating_add(width - 1))])?;
    Some(during.saturating_sub(least(&series.bins)?) as f64)
}
