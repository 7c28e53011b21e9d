// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saturation of the path: whether the rate of a stretch follows the data in flight.
//!
//! The rate is the data in flight over the round trip. On a path without a queue the round trip is constant, so twice
//! the data in flight is twice the rate. On a saturated path more data in flight only lengthens the queue (Jaffe,
//! "Flow control power is nondecentralizable", IEEE Trans. Commun. 29(9), 1981). The slope of the logarithm of the rate
//! over that of the data in flight is 1 and 0. Unlike a round trip above the least, it needs no threshold for jitter, and
//! it holds for a sender that loses data and goes on at the rate of the path, such as BBR.
//!
//! Over 86 transfers of the kernel's TCP (`bench/verdicts/run.py`) the slope was at most 0.63 where the path was full,
//! and at least 0.75 where losses kept the window small.

use crate::time_series::rtt_windows::RttWindows;
use std::ops::Range;

/// Round trips of a period, over which rate and data in flight are averaged.
const PERIOD_RTTS: f64 = 4.0;
/// Periods at the beginning that do not count: they belong to slow start.
const FIRST_PERIODS: usize = 2;
/// Least number of periods.
const PERIODS_MIN: usize = 8;
/// Slopes below the first show a saturated path, slopes above the second one that is not.
const SLOPES: (f64, f64) = (0.7, 0.75);
/// Least standard deviation of the logarithm of the data in flight from which on it has a slope.
const SPREAD_MIN: f64 = 0.1;
/// Factor of the data in flight over what the path holds without a queue: there may be one above the first, and there
/// is one above the second, which jitter does not explain.
const QUEUES: (f64, f64) = (1.1, 1.25);

/// Part of the fastest rate that half of the periods of a full path have.
const KEPT_RATE: f64 = 0.8;
/// Part of the usual rate that is still steady, and the share of the periods that must have it.
const STEADY_RATE: f64 = 0.9;
const STEADY_SHARE: f64 = 0.8;
/// Packets of a part of the time that is a pause if it has none.
const PAUSE_PACKETS: f64 = 3.0;
/// Most round trips of such a part: windows come once a round trip.
const PAUSE_RTTS: f64 = 0.5;
/// Share of pauses from which on data does not arrive evenly.
const PAUSES_SHARE: f64 = 0.3;

/// Evidence of the periods of a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saturation {
    /// The path was full, whatever was lost.
    Full,
    /// More data in flight would have been faster, and no queue stood.
    Open,
    /// Not known.
    Unknown,
}

/// A period of some round trips.
struct Period {
    /// Bytes that the data in flight would send in the period without a queue.
    possible: f64,
    /// Bytes sent.
    sent: f64,
    is_lossy: bool,
}

/// Returns the end of slow start in a stretch that begins at `start`, bins.
pub(super) fn slow_start_end(rtt_windows: &RttWindows<'_>, start: usize) -> usize {
    start + (FIRST_PERIODS as f64 * period_bins(rtt_windows)) as usize
}

fn period_bins(rtt_windows: &RttWindows<'_>) -> f64 {
    (PERIOD_RTTS * rtt_windows.path_rtt).max(PERIOD_RTTS)
}

/// Returns what the stretch `bins` shows by the data in flight behind the capture point. `least_rtt` is the least round
/// trip behind it on the path of a bin, bins.
pub(super) fn saturation(
    rtt_windows: &RttWindows<'_>,
    bins: &Range<usize>,
    least_rtt: impl Fn(usize) -> f64,
) -> Saturation {
    let width = period_bins(rtt_windows);
    let count = (bins.len() as f64 / width) as usize;
    let periods: Vec<Period> = (FIRST_PERIODS..count)
        .map(|number| bins.start as f64 + number as f64 * width)
        .map(|from| Period::of(rtt_windows, from..from + width, least_rtt(from as usize)))
        .filter(|period| period.sent > 0.0 && period.possible > 0.0)
        .collect();
    if periods.len() < PERIODS_MIN {
        return Saturation::Unknown;
    }
    let lossy = periods.iter().filter(|period| period.is_lossy).count();
    let has_queue = |factor| has_queue(&periods, factor);
    let may_be_full = has_queue(QUEUES.0) && keeps_rate(&periods);
    match slope(&periods) {
        // Losses go on, and nothing changes.
        None if 2 * lossy > periods.len() && may_be_full => Saturation::Full,
        // Without losses, delayed ACKs may make the difference.
        Some(slope) if lossy > 0 && slope < SLOPES.0 && may_be_full => Saturation::Full,
        Some(slope) if slope > SLOPES.1 && !has_queue(QUEUES.1) => Saturation::Open,
        _ => Saturation::Unknown,
    }
}

/// Returns whether data arrives at one rate in nearly all periods of the stretch `bins`, and without pauses in them.
pub(super) fn arrives_evenly(rtt_windows: &RttWindows<'_>, bins: &Range<usize>) -> bool {
    let width = period_bins(rtt_windows);
    let count = (bins.len() as f64 / width) as usize;
    let edge = |period: usize| bins.start as f64 + period as f64 * width;
    let mut rates: Vec<f64> = (FIRST_PERIODS..count)
        .map(|period| rtt_windows.sent_in(edge(period)..edge(period + 1)))
        .collect();
    if rates.len() < PERIODS_MIN {
        return false;
    }
    rates.sort_by(f64::total_cmp);
    let usual = rates[rates.len() * 9 / 10];
    let steady = rates.iter().filter(|rate| **rate >= STEADY_RATE * usual);
    let is_steady = steady.count() as f64 >= STEADY_SHARE * rates.len() as f64;
    is_steady && !has_pauses(rtt_windows, edge(FIRST_PERIODS) as usize..bins.end)
}

/// Returns whether data arrives evenly although most periods have losses or marks. A window that these reduce keeps no
/// rate, so the path was full, unless the application kept the rate.
pub(super) fn keeps_rate_with_losses(rtt_windows: &RttWindows<'_>, bins: &Range<usize>) -> bool {
    let width = period_bins(rtt_windows) as usize;
    let mut periods: Vec<bool> = rtt_windows.bins()[bins.clone()]
        .chunks(width)
        .map(|period| {
            period
                .iter()
                .any(|bin| bin.retransmissions > 0 || bin.is_marked())
        })
        .collect();
    periods.drain(..FIRST_PERIODS.min(periods.len()));
    let reduced = periods.iter().filter(|is_reduced| **is_reduced).count();
    2 * reduced > periods.len() && arrives_evenly(rtt_windows, bins)
}

/// Returns whether nothing arrives in many parts of `range` of a few packets each.
fn has_pauses(rtt_windows: &RttWindows<'_>, range: Range<usize>) -> bool {
    let bins = &rtt_windows.bins()[range];
    let packets: u64 = bins.iter().map(|bin| u64::from(bin.data_segments)).sum();
    let part = (PAUSE_PACKETS * bins.len() as f64 / packets.max(1) as f64).ceil();
    let parts = bins.chunks(part.max(1.0) as usize);
    let count = parts.len();
    let pauses = parts.filter(|part| part.iter().all(|bin| bin.data_bytes == 0));
    part > PAUSE_RTTS * rtt_windows.path_rtt || pauses.count() as f64 > PAUSES_SHARE * count as f64
}

impl Period {
    fn of(rtt_windows: &RttWindows<'_>, range: Range<f64>, least_rtt: f64) -> Self {
        let bins = &rtt_windows.bins()[range.start as usize..range.end as usize];
        let in_flight = bins
            .iter()
            .map(|bin| bin.in_flight_max)
            .filter(|bytes| *bytes > 0);
        let (count, sum) = in_flight.fold((0_u64, 0.0), |(count, sum), bytes| {
            (count + 1, sum + bytes as f64)
        });
        let in_flight = sum / count.max(1) as f64;
        Self {
            possible: in_flight * (range.end - range.start) / least_rtt,
            sent: rtt_windows.sent_in(range),
            is_lossy: bins.iter().any(|bin| bin.retransmissions > 0),
        }
    }
}

/// Returns whether the rate of half of the periods is near that of the fastest tenth. A slow start that overshoots has
/// much in flight at a high rate, and would hide that the window followed the rate ever after.
fn keeps_rate(periods: &[Period]) -> bool {
    let mut rates: Vec<f64> = periods.iter().map(|period| period.sent).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2] >= KEPT_RATE * rates[rates.len() * 9 / 10]
}

/// Returns the slope of the logarithm of the rate over that of the data in flight over the least round trip, by least
/// squares; `None` if that hardly changes.
fn slope(periods: &[Period]) -> Option<f64> {
    let mean = |of: fn(&Period) -> f64| periods.iter().map(of).sum::<f64>() / periods.len() as f64;
    let (possible, sent) = (mean(|one| one.possible.ln()), mean(|one| one.sent.ln()));
    let deviations = periods
        .iter()
        .map(|one| (one.possible.ln() - possible, one.sent.ln() - sent));
    let (variance, covariance) = deviations.fold((0.0, 0.0), |(variance, covariance), (x, y)| {
        (variance + x * x, covariance + x * y)
    });
    let spread = (variance / periods.len() as f64).sqrt();
    (spread >= SPREAD_MIN).then(|| covariance / variance)
}

/// Returns whether more was in flight in most periods than `factor` times what the path holds without a queue.
fn has_queue(periods: &[Period], factor: f64) -> bool {
    let queued = periods
        .iter()
        .filter(|period| period.possible > factor * period.sent);
    2 * queued.count() > periods.len()
}
