// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limiting factors of a direction over time, from its time series a few round trips at a time.
//!
//! The classes are those of T-RAT and TAPO. T-RAT: Zhang, Breslau, Paxson, Shenker, "On the characteristics and origins
//! of Internet flow rates", SIGCOMM 2002, §3. TAPO: Sun et al., "TCP stalls at the server side: measurement and
//! mitigation", 2015. The ACK stream is an additional class. The kernel's own view (`longhaul_linux::limiter`)
//! needs `tcp_info`; a capture point has packets only. The rules apply in this order, to steps of one round trip or
//! more (`time_series/rtt_windows.rs`):
//!
//! 1. **Application**: for more than half of the step nothing was in flight and nothing was sent although the window
//!    was open. Or half of the segments are shorter than the largest without a full window (T-RAT §3.3: there was no
//!    more to send).
//! 2. **Receive window**, by unread data: during the whole step the advertised window was below its largest so far by a
//!    quarter of that, and by what a round trip delivers. The receiver holds data that its application has not read, so
//!    the application is slower than the path.
//! 3. **ACK stream**: a queue had built up, as in 4. At least half of the excess of the round trip, and at least 3 ms,
//!    was delay of the ACK path, by the ACKs' timestamps ([`crate::path_delay`]). Without timestamps of
//!    milliseconds this cannot be distinguished from the bottleneck bandwidth.
//! 4. **Bottleneck bandwidth**: a queue existed during the whole step. At every ACK, the first byte not acknowledged
//!    was older than the least round trip by 5 %, by 0.5 ms and by four times the noise of that (`baseline.rs`,
//!    [`Bin::unacked_age_min_us`]). The age is used because a delayed ACK makes the round trip longer without any queue.
//!    Bottleneck bandwidth comes before a full receive
//!    window, unlike in the kernel's accounting: a larger window would only lengthen the queue. With a capture at both
//!    ends the one-way delays show the queue ([`PathDelays`]).
//! 5. **Receive window**: a packet ended within a segment of the advertised window's end (as T-RAT), or the window had
//!    no room for a segment.
//! 6. **Congestion window**: data was retransmitted, in this step or in one of the three before. Or the data in flight
//!    is still below its amount at a loss that cut it by 15 % or more. Or it grew by a segment over its amount four
//!    steps ago and before, also before a silence shorter than a timeout. An ECN mark counts as a loss does, also where
//!    it cut the window by less.
//! 7. **Application**, for the rest: without a loss, less is in flight than before, nothing grows, and nothing blocks.
//!    The sender held back. A send buffer that is too small and pacing are reasons as well: a capture cannot
//!    distinguish them.
//!
//! Then spans of less than two steps are merged into their neighbour. A congestion-window span beside a bandwidth span
//! becomes bandwidth if most of it acknowledges as much (to 3 %): a queue that is short or empty for a moment does not
//! reduce the rate. A queue span with full windows becomes receive window if the flow was faster without a queue: the
//! path became longer. Then the whole stretch decides (`saturation.rs`). If the rate does not follow the data in flight, or
//! stays the same in spite of losses, and delays fluctuate as a queue makes them, congestion-window spans become
//! bandwidth. If it follows, and no queue stands, bandwidth spans become congestion window. Finally, silences of a round trip or more with everything acknowledged, and windows without room
//! for a segment, are inserted with their own times. A silence that ends with a retransmission was a timeout, whose limit
//! is the congestion window.
//!
//! If the capture does not have the window scale ([`Windows::Unknown`]), only a window of zero counts.
//!
//! Far from the sender, the ACKs that its packets echo show the data in flight and the window that the sender knew
//! ([`crate::time_series::sender_view`]). The round trip to the sender counts there, too. A silence begins after that
//! round trip, in which the sender still waits for an ACK. Without timestamps the least round trip to the sender takes
//! their place (`in_flight.rs`), and a path is full where data arrives evenly at one rate (`saturation.rs`).

use super::advertised_window::{Windows, closed_bins, unread_bins};
use super::in_flight::{InFlight, Source};
pub use super::queues::{CapturePoints, PathDelays};
use super::queues::{Evidence, Queues};
use super::saturation::{
    Saturation, arrives_evenly, keeps_rate_with_losses, saturation, slow_start_end,
};
use crate::record::{Limit, LimitPeriod};
use crate::time_series::{
    TimeSeries,
    bin::{Bin, sum_bins},
    change_points::median,
    rtt_windows::RttWindows,
    spans::{self, absorb_short, merge_adjacent, overlay},
};
use std::ops::Range;

/// A window that was cut after a loss is below this part of its former size. CUBIC cuts to 0.7, the gentlest cut in
/// use.
const CUT_RATIO: f64 = 0.85;
/// Steps after a loss in which the cut must appear.
const CUT_STEPS: usize = 8;
/// Part of the path's rate that counts as full.
const FULL_RATE: f64 = 0.97;
/// Full windows a step in a span that the receive window may limit.
const FULL_WINDOWS: f64 = 0.5;
/// Part of the rate without a queue below which a flow with a queue is slower.
const SLOWER: f64 = 0.9;
/// Part of the round trip behind the capture point below which too little is in flight there.
const NEAR_PART: f64 = 0.1;
/// Steps over which growth is measured, and that a repair takes.
const GROWTH_STEPS: usize = 4;
/// Least timeout of Linux (`TCP_RTO_MIN`).
const TIME_OUT_NS: f64 = 200e6;
/// Least number of segments for an assessment.
const SEGMENTS_MIN: u64 = 10;

type Span = spans::Span<Limit>;

/// Returns the limiting factors of `series` from its first data to its last, in order and without gaps; empty for fewer
/// than ten segments, and at most some hundreds. `handshake_ns` is the round trip of the handshake, if it was seen.
/// `windows` tells how to interpret the windows of the series.
#[must_use]
pub fn classify(
    series: &TimeSeries,
    windows: Windows,
    handshake_ns: Option<u64>,
    capture_points: CapturePoints<'_>,
) -> Vec<LimitPeriod> {
    let segments: u64 = sum_bins(&series.bins, |bin| u64::from(bin.data_segments));
    match RttWindows::of(series, handshake_ns) {
        Some(rtt_windows) if segments >= SEGMENTS_MIN => {
            detect_spans(&rtt_windows, windows, capture_points)
                .into_iter()
                .map(|span| LimitPeriod {
                    limit: span.kind,
                    from_ns: rtt_windows.bin_start_ns(span.bins.start),
                    to_ns: rtt_windows.bin_start_ns(span.bins.end),
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

fn detect_spans(
    rtt_windows: &RttWindows<'_>,
    windows: Windows,
    capture_points: CapturePoints<'_>,
) -> Vec<Span> {
    let evidence = BinEvidence::of(rtt_windows, windows, capture_points);
    let closed_windows = closed_bins(rtt_windows.bins(), windows);
    let (mut spans, mut classifier) = (Vec::new(), LimitClassifier::default());
    let mut from = rtt_windows.active_bins().start;
    for gap in find_runs(
        &evidence.silent,
        rtt_windows.active_bins(),
        rtt_windows.step,
    ) {
        spans.extend(classify_active(
            rtt_windows,
            from..gap.start,
            &evidence,
            &mut classifier,
        ));
        from = gap.end;
        let kind = if ends_with_retransmission(rtt_windows.bins(), &gap) {
            Limit::CongestionWindow
        } else {
            Limit::Application
        };
        classifier.record_pause(rtt_windows.bins_to_ns(gap.len() as f64));
        spans.push(Span { kind, bins: gap });
    }
    spans.extend(classify_active(
        rtt_windows,
        from..rtt_windows.active_bins().end,
        &evidence,
        &mut classifier,
    ));
    for bins in find_runs(&closed_windows, rtt_windows.active_bins(), rtt_windows.step) {
        overlay(
            &mut spans,
            Span {
                kind: Limit::ReceiveWindow,
                bins,
            },
        );
    }
    merge_adjacent(spans, same_kind)
}

/// Evidence of each bin.
struct BinEvidence<'a> {
    silent: Vec<bool>,
    /// The receiver holds data that its application has not read.
    unread: Vec<bool>,
    queues: Queues<'a>,
    in_flight: InFlight,
}

impl<'a> BinEvidence<'a> {
    fn of(
        rtt_windows: &RttWindows<'_>,
        windows: Windows,
        capture_points: CapturePoints<'a>,
    ) -> Self {
        let is_far = matches!(capture_points, CapturePoints::FarFromSender);
        let mut silent = silent_bins(rtt_windows.bins(), windows);
        if is_far {
            let wait = (rtt_windows.path_rtt - rtt_windows.tap_rtt).max(0.0);
            shorten_runs(&mut silent, wait.ceil() as usize);
        }
        Self {
            silent,
            unread: match windows {
                Windows::Scaled => unread_bins(rtt_windows),
                Windows::Unknown => vec![false; rtt_windows.bins().len()],
            },
            queues: Queues::of(rtt_windows, capture_points),
            in_flight: InFlight::of(rtt_windows, windows, is_far),
        }
    }

    /// Returns the least round trip of which queues are measured, bins.
    fn least_rtt(&self, rtt_windows: &RttWindows<'_>) -> f64 {
        match self.in_flight.source {
            Source::Echoes => rtt_windows.tap_rtt + rtt_windows.sender_rtt,
            Source::CapturePoint | Source::RoundTrip => rtt_windows.tap_rtt,
        }
    }
}

fn same_kind(one: &Span, next: &Span) -> bool {
    one.kind == next.kind
}

/// Classifies a stretch without longer silences.
fn classify_active(
    rtt_windows: &RttWindows<'_>,
    bins: Range<usize>,
    evidence: &BinEvidence<'_>,
    classifier: &mut LimitClassifier,
) -> Vec<Span> {
    let stretch = bins.clone();
    let steps = split_into_steps(rtt_windows, bins, evidence);
    let classified = steps.iter().map(|step| Span {
        kind: classifier.classify_step(step),
        bins: step.bins.clone(),
    });
    let two_steps = (2.0 * rtt_windows.step).floor() as usize;
    let spans = absorb_short(merge_adjacent(classified.collect(), same_kind), |span| {
        span.bins.len() < two_steps
    });
    let spans = absorb_into_bandwidth_spans(rtt_windows, spans);
    let mut spans = replace_slower_queues(rtt_windows, spans, evidence);
    if evidence.in_flight.source == Source::RoundTrip {
        spans = replace_by_arrivals(rtt_windows, &stretch, spans);
    }
    if spans.iter().all(|span| span.kind != Limit::AckStream) {
        spans = replace_by_saturation(rtt_windows, &stretch, spans, evidence);
    }
    merge_adjacent(spans, same_kind)
}

/// Turns spans with a queue into those of the receive window where the window was full, and the flow had been faster
/// without a queue: the path became longer. A queue would not have made it slower.
fn replace_slower_queues(
    rtt_windows: &RttWindows<'_>,
    mut spans: Vec<Span>,
    evidence: &BinEvidence<'_>,
) -> Vec<Span> {
    let windows = spans
        .iter()
        .filter(|span| span.kind == Limit::ReceiveWindow);
    let rates = windows.map(|span| mean_rate(rtt_windows, &span.bins));
    let window_rate = rates.fold(0.0, f64::max);
    for span in &mut spans {
        let has_queue = matches!(span.kind, Limit::BottleneckBandwidth | Limit::AckStream);
        let full = &evidence.in_flight.window_full[span.bins.clone()];
        let full: f64 = full.iter().map(|count| f64::from(*count)).sum();
        let is_full = full >= FULL_WINDOWS * span.bins.len() as f64 / rtt_windows.step;
        if has_queue && is_full && mean_rate(rtt_windows, &span.bins) < SLOWER * window_rate {
            span.kind = Limit::ReceiveWindow;
        }
    }
    spans
}

/// Turns spans into those of a full path, or of one that was not full, by the rate over the data in flight.
fn replace_by_saturation(
    rtt_windows: &RttWindows<'_>,
    stretch: &Range<usize>,
    spans: Vec<Span>,
    evidence: &BinEvidence<'_>,
) -> Vec<Span> {
    let (window, path) = (Limit::CongestionWindow, Limit::BottleneckBandwidth);
    // Near the receiver the data in flight behind the capture point shows nothing.
    let is_near_receiver = rtt_windows.tap_rtt < NEAR_PART * rtt_windows.path_rtt;
    let saturation = if is_near_receiver {
        Saturation::Unknown
    } else {
        saturation(rtt_windows, stretch, |bin| {
            evidence.queues.least_rtt(rtt_windows, bin)
        })
    };
    let is_window = duration_of(&spans, window) > duration_of(&spans, Limit::Application);
    let keeps_rate =
        saturation == Saturation::Full || is_window && keeps_rate_with_losses(rtt_windows, stretch);
    if keeps_rate && evidence.queues.fluctuate(rtt_windows, stretch) {
        let slow_start_end = slow_start_end(rtt_windows, stretch.start);
        return replace_from(spans, slow_start_end, window, path);
    }
    // In the middle of the path, queues before the capture point do not show.
    if saturation == Saturation::Open && evidence.in_flight.source == Source::CapturePoint {
        return replace_from(spans, stretch.start, path, window);
    }
    spans
}

/// Without timestamps, no queue before the capture point shows. But where data arrives evenly at one rate, in spite of
/// losses and growth, the path is full.
fn replace_by_arrivals(
    rtt_windows: &RttWindows<'_>,
    stretch: &Range<usize>,
    mut spans: Vec<Span>,
) -> Vec<Span> {
    let (window, application) = (Limit::CongestionWindow, Limit::Application);
    let is_window = duration_of(&spans, window) > duration_of(&spans, application);
    if is_window && arrives_evenly(rtt_windows, stretch) {
        let from = slow_start_end(rtt_windows, stretch.start);
        for old in [window, application] {
            spans = replace_from(spans, from, old, Limit::BottleneckBandwidth);
        }
    }
    spans
}

/// Returns the number of bins of the spans of one kind.
fn duration_of(spans: &[Span], limit: Limit) -> usize {
    let own = spans.iter().filter(|span| span.kind == limit);
    own.map(|span| span.bins.len()).sum()
}

/// Turns the parts of spans of one kind from a bin on into spans of another.
fn replace_from(spans: Vec<Span>, from: usize, old: Limit, new: Limit) -> Vec<Span> {
    let split = |span: Span| {
        let at = from.clamp(span.bins.start, span.bins.end);
        let kind = if span.kind == old { new } else { span.kind };
        let parts = [(span.kind, span.bins.start..at), (kind, at..span.bins.end)];
        parts.into_iter().filter(|(_, bins)| !bins.is_empty())
    };
    let parts = spans.into_iter().flat_map(split);
    parts.map(|(kind, bins)| Span { kind, bins }).collect()
}

/// Turns congestion-window spans that do not reduce the path's rate into bottleneck-bandwidth spans.
fn absorb_into_bandwidth_spans(rtt_windows: &RttWindows<'_>, mut spans: Vec<Span>) -> Vec<Span> {
    let full = |at: usize, beside: Option<&Span>| {
        let path = beside.filter(|span| span.kind == Limit::BottleneckBandwidth);
        let path_rate = path.and_then(|span| typical_rate(rtt_windows, &span.bins));
        path_rate.is_some_and(|path| {
            let own = typical_rate(rtt_windows, &spans[at].bins);
            own.unwrap_or_else(|| mean_rate(rtt_windows, &spans[at].bins)) >= FULL_RATE * path
        })
    };
    let window = |at: &usize| spans[*at].kind == Limit::CongestionWindow;
    let before = |at: usize| at.checked_sub(1).and_then(|at| spans.get(at));
    let beside = |at: &usize| full(*at, before(*at)) || full(*at, spans.get(at + 1));
    let filled: Vec<usize> = (0..spans.len()).filter(window).filter(beside).collect();
    for at in filled {
        spans[at].kind = Limit::BottleneckBandwidth;
    }
    spans
}

/// Returns the median rate of newly acknowledged data over the steps of `bins` without loss or repair, bytes a step;
/// `None` without such a step. Behind a loss the ACKs stand still, and the one that closes the gap acknowledges data that
/// arrived long before.
fn typical_rate(rtt_windows: &RttWindows<'_>, bins: &Range<usize>) -> Option<f64> {
    let count = (bins.len() as f64 / rtt_windows.step).max(1.0) as usize;
    let edge = |step: usize| bins.start as f64 + step as f64 * rtt_windows.step;
    let is_clean = |step: usize| {
        let from = (edge(step) - rtt_windows.step).max(0.0) as usize;
        let to = (edge(step + 1).ceil() as usize).min(rtt_windows.bins().len());
        let mut bins = rtt_windows.bins()[from..to].iter();
        bins.all(|bin| bin.retransmitted_bytes == 0 && bin.sacks == 0)
    };
    let steps = (0..count).filter(|step| is_clean(*step));
    let rates = steps.map(|step| rtt_windows.acked_in(edge(step)..edge(step + 1)));
    let rates: Vec<f64> = rates.collect();
    (!rates.is_empty()).then(|| median(rates))
}

/// Returns the mean rate of newly acknowledged data, bytes a step.
fn mean_rate(rtt_windows: &RttWindows<'_>, bins: &Range<usize>) -> f64 {
    let acked = rtt_windows.acked_in(bins.start as f64..bins.end as f64);
    acked * rtt_windows.step / bins.len() as f64
}

/// A period of one or more round trips.
struct Step {
    bins: Range<usize>,
    segments: u64,
    short: u64,
    retransmitted: bool,
    /// Whether a packet had an ECN mark, or the receiver reported one.
    marked: bool,
    window_full: u64,
    in_flight: u64,
    segment_bytes: u64,
    nanos: f64,
    /// Part of the time with nothing in flight.
    silent: f64,
    /// Whether the receiver held unread data all the time.
    unread: bool,
    queue: Evidence,
    /// Least round trip, ns.
    rtt: f64,
}

fn split_into_steps(
    rtt_windows: &RttWindows<'_>,
    bins: Range<usize>,
    evidence: &BinEvidence<'_>,
) -> Vec<Step> {
    let count = (bins.len() as f64 / rtt_windows.step).floor().max(1.0) as usize;
    let edge = |step: usize| {
        if step < count {
            bins.start + (step as f64 * rtt_windows.step).round() as usize
        } else {
            bins.end
        }
    };
    (0..count)
        .map(|step| edge(step)..edge(step + 1))
        .filter(|bins| !bins.is_empty())
        .map(|bins| Step::of(rtt_windows, bins, evidence))
        .collect()
}

impl Step {
    fn of(rtt_windows: &RttWindows<'_>, range: Range<usize>, evidence: &BinEvidence<'_>) -> Self {
        let bins = &rtt_windows.bins()[range.clone()];
        let segments = sum_bins(bins, |bin| u64::from(bin.data_segments));
        let window_full = &evidence.in_flight.window_full[range.clone()];
        let in_flight = &evidence.in_flight.bytes[range.clone()];
        let silent = evidence.silent[range.clone()]
            .iter()
            .filter(|silent| **silent);
        Self {
            segments,
            short: sum_bins(bins, |bin| u64::from(bin.short_segments)),
            retransmitted: bins.iter().any(|bin| bin.retransmitted_bytes > 0),
            marked: bins.iter().any(Bin::is_marked),
            window_full: window_full.iter().copied().map(u64::from).sum(),
            in_flight: in_flight.iter().copied().max().unwrap_or(0),
            segment_bytes: sum_bins(bins, |bin| bin.data_bytes) / segments.max(1),
            nanos: rtt_windows.bins_to_ns(bins.len() as f64),
            silent: silent.count() as f64 / bins.len() as f64,
            unread: evidence.unread[range.clone()].iter().all(|unread| *unread),
            queue: evidence.queues.evidence(rtt_windows, &range),
            rtt: rtt_windows.bins_to_ns(evidence.least_rtt(rtt_windows)),
            bins: range,
        }
    }

    /// Returns whether the sender had no more data. Segments that a full window cut short do not count.
    fn is_data_limited(&self) -> bool {
        2 * self.short.saturating_sub(self.window_full) >= self.segments.max(1)
    }

    fn has_standing_queue(&self) -> bool {
        self.queue.shows_queue(self.rtt)
    }
}

/// State of the classification from the steps before.
#[derive(Default)]
struct LimitClassifier {
    /// Most data in flight before a silence after which the window is still as large.
    proven_in_flight: u64,
    /// Data in flight in each step since the last loss or silence.
    history: Vec<u64>,
    /// Most data in flight before the last loss, as long as it has not been reached again.
    in_flight_at_loss: Option<u64>,
    /// Part of that amount below which the window was cut.
    cut_ratio: f64,
    cut: bool,
}

impl LimitClassifier {
    fn classify_step(&mut self, step: &Step) -> Limit {
        if step.silent > 0.5 {
            self.record_pause(step.silent * step.nanos);
            return Limit::Application;
        }
        self.update_loss(step);
        let limit = self.apply_rules(step);
        self.history.push(step.in_flight);
        limit
    }

    /// Records a silence. After a timeout the window restarts (RFC 5681 §4.1).
    fn record_pause(&mut self, silent_ns: f64) {
        let most = self.history.iter().copied().max().unwrap_or(0);
        let known = if silent_ns < TIME_OUT_NS {
            most.max(self.proven_in_flight)
        } else {
            0
        };
        *self = Self {
            proven_in_flight: known,
            ..Self::default()
        };
    }

    fn apply_rules(&self, step: &Step) -> Limit {
        match () {
            () if step.is_data_limited() => Limit::Application,
            () if step.unread => Limit::ReceiveWindow,
            () if step.has_standing_queue() && step.queue.is_ack_queue() => Limit::AckStream,
            () if step.has_standing_queue() => Limit::BottleneckBandwidth,
            () if step.window_full > 0 => Limit::ReceiveWindow,
            () if self.is_repairing() || self.cut => Limit::CongestionWindow,
            () if self.is_growing(step) => Limit::CongestionWindow,
            () => Limit::Application,
        }
    }

    fn update_loss(&mut self, step: &Step) {
        if step.retransmitted || step.marked {
            // DCTCP and its like answer a mark with a cut of some percent (RFC 8257 §3.3).
            self.cut_ratio = if step.retransmitted { CUT_RATIO } else { 1.0 };
            let most = self.history.iter().copied().max().unwrap_or(step.in_flight);
            self.in_flight_at_loss = Some(most).max(self.in_flight_at_loss);
            self.proven_in_flight = 0;
            self.history.clear();
        } else if let Some(at_loss) = self.in_flight_at_loss {
            let soon = self.history.len() < CUT_STEPS;
            self.cut |= soon && (step.in_flight as f64) < self.cut_ratio * at_loss as f64;
            if !soon && step.in_flight >= at_loss {
                (self.in_flight_at_loss, self.cut) = (None, false);
            }
        }
    }

    /// Returns whether a loss was a few steps ago.
    fn is_repairing(&self) -> bool {
        self.in_flight_at_loss.is_some() && self.history.len() < GROWTH_STEPS
    }

    fn is_growing(&self, step: &Step) -> bool {
        let past = self.history.len().saturating_sub(GROWTH_STEPS - 1).max(1);
        let known = Some(self.proven_in_flight).filter(|known| *known > 0);
        let before = self.history.iter().take(past).copied().max().max(known);
        before.is_none_or(|before| step.in_flight >= before.saturating_add(step.segment_bytes))
    }
}

/// Returns for each bin whether nothing is sent and everything is acknowledged, though the window is open.
fn silent_bins(bins: &[Bin], windows: Windows) -> Vec<bool> {
    let mut all_acked = false;
    bins.iter()
        .zip(closed_bins(bins, windows))
        .map(|(bin, closed)| {
            all_acked = bin.all_acked.unwrap_or(all_acked);
            bin.data_bytes == 0 && all_acked && !closed
        })
        .collect()
}

/// Returns whether the first data after a silence was sent before. Then the sender waited for a timeout: the ACKs were
/// lost behind the capture point.
fn ends_with_retransmission(bins: &[Bin], silence: &Range<usize>) -> bool {
    let first = bins[silence.end..].iter().find(|bin| bin.data_bytes > 0);
    first.is_some_and(|bin| bin.retransmitted_bytes == bin.data_bytes)
}

/// Clears the first `count` bins of each run.
fn shorten_runs(flags: &mut [bool], count: usize) {
    let mut length = 0;
    for flag in flags {
        length = if *flag { length + 1 } else { 0 };
        *flag = length > count;
    }
}

/// Returns the runs of at least `least` bins within `active` whose flags are set.
fn find_runs(flags: &[bool], active: Range<usize>, least: f64) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut from = active.start;
    for bin in active.clone() {
        if !flags[bin] {
            runs.push(from..bin);
            from = bin + 1;
        }
    }
    runs.push(from..active.end);
    runs.retain(|run| !run.is_empty() && run.len() as f64 >= least);
    runs
}
