// SPDX-License-Identifier: MIT OR Apache-2.0
//! Phases of a direction, as paper 001 (§2.3) distinguishes them: growth, peak, and what follows.
//!
//! The rules and their reasons:
//!
//! 1. **Idle** is a time without data of at least two round trips and 2 % of the duration. Shorter pauses are those
//!    between windows. A silence that ends with a retransmission is a timeout, not idleness.
//! 2. Between idle stretches, the sending rate is averaged over whole round trips (`time_series/rtt_windows.rs`) and
//!    partitioned into straight lines (`time_series/change_points.rs`). A line **grows** if its end is more than 15 %
//!    above its beginning, and the rise is more than noise explains.
//! 3. Growth is **ramp-up**, but growth after a loss, up to the rate before it, is **recovery**. A line below a tenth of
//!    the flow's rate belongs to the growth after it: compared with the later rate, slow start from ten packets looks
//!    flat for many round trips. A first line of up to eight steps is also ramp-up if the rate is higher after it.
//! 4. **Recovery** begins with the first retransmission of a loss, and lasts until the growth after it ends. If that
//!    growth is less than 15 %, recovery lasts until the rate is back at nine tenths of the rate before or at the rate
//!    that follows, and nothing is retransmitted any more. A loss after which the rate stays above nine tenths causes
//!    no recovery.
//! 5. **Peak** follows ramp-up: the round trip grows because a queue builds up. It begins when the first packets that
//!    met the queue were sent: in slow start, the rate still doubles in the round trip after the path is full. It ends
//!    with the first retransmission, or when the round trip is at its greatest.
//! 6. The rest is **steady**, including a saw-tooth that a queue or the resolution hides. Levels that differ by 15 %
//!    are two steady phases, as on a path whose rate changes.
//!
//! Times are accurate to about a round trip, or to 1/256 of the duration if that is longer (`tests/flow/ground_truth/`).

use crate::record::{Phase, PhaseKind};
use crate::time_series::{
    TimeSeries,
    bin::Bin,
    change_points::{LinearPiece, noise_sigma, partition, without_outliers},
    rtt_windows::RttWindows,
    spans::{self, absorb_short, merge_adjacent, overlay},
};
use std::ops::{Range, RangeInclusive};

/// Factor by which a rate must change to count as different.
const RATE_CHANGE_MIN: f64 = 1.15;
/// Share of the flow's rate below which the transfer is not yet up to speed. It also is the least share for the
/// queueing delays that `find_peak` compares.
const LOW_SHARE: f64 = 0.1;
/// Share of the former rate at which the rate has recovered.
const RECOVERED_SHARE: f64 = 0.9;
/// Share of the later rate at which the rate has settled.
const SETTLED_SHARE: f64 = 0.97;
/// Most steps of a repair that count as recovery after the rate is back. On a path with constant losses a repair never
/// ends.
const REPAIR_STEPS: usize = 8;
/// Most steps in which a flow may ramp up without a line that grows.
const BEGINNING_STEPS: usize = 8;
/// Divisor of the duration that gives the least length of an idle stretch; it bounds the number of idle stretches.
const IDLE_DIVISOR: usize = 50;
/// Least number of segments of a direction that has phases.
const SEGMENTS_MIN: u64 = 10;
/// Least noise of a rate, relative to it: a window grows and is sent in whole packets.
const NOISE_MIN: f64 = 0.02;

/// Returns the phases of `series`, in order and without gaps from its first data to its last; empty for fewer than ten
/// segments, and at most some hundreds. `handshake_ns` is the round trip of the handshake, if it was seen.
#[must_use]
pub fn detect(series: &TimeSeries, handshake_ns: Option<u64>) -> Vec<Phase> {
    let segments: u64 = series
        .bins
        .iter()
        .map(|bin| u64::from(bin.data_segments))
        .sum();
    match RttWindows::of(series, handshake_ns) {
        Some(rtt_windows) if segments >= SEGMENTS_MIN => detect_spans(&rtt_windows)
            .iter()
            .map(|span| summarize_span(&rtt_windows, span))
            .collect(),
        _ => Vec::new(),
    }
}

type Span = spans::Span<PhaseKind>;

fn detect_spans(rtt_windows: &RttWindows<'_>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for bins in active_stretches(rtt_windows) {
        if let Some(last) = spans.last() {
            let idle = last.bins.end..bins.start;
            spans.push(Span {
                kind: PhaseKind::Idle,
                bins: idle,
            });
        }
        spans.extend(ActiveStretch::of(rtt_windows, bins).classify());
    }
    spans
}

/// Returns the stretches with data, separated by idle ones.
fn active_stretches(rtt_windows: &RttWindows<'_>) -> Vec<Range<usize>> {
    let (bins, active) = (rtt_windows.bins(), rtt_windows.active_bins());
    let least = (2.0 * rtt_windows.path_rtt).max(2.0).ceil() as usize;
    let least = least.max(active.len() / IDLE_DIVISOR);
    let (mut stretches, mut from, mut last) = (Vec::new(), active.start, active.start);
    for bin in active {
        if bins[bin].data_bytes == 0 {
            continue;
        }
        if bin - last > least && bins[bin].retransmitted_bytes == 0 {
            stretches.push(from..last + 1);
            from = bin;
        }
        last = bin;
    }
    stretches.push(from..last + 1);
    stretches
}

/// Stretch without idle time.
struct ActiveStretch<'a> {
    rtt_windows: &'a RttWindows<'a>,
    bins: Range<usize>,
    /// Bytes a bin, for each step.
    rates: Vec<f64>,
    sigma: f64,
    pieces: Vec<LinearPiece>,
    /// Bins of each repair, from the first retransmission to the last.
    losses: Vec<RangeInclusive<usize>>,
}

impl<'a> ActiveStretch<'a> {
    fn of(rtt_windows: &'a RttWindows<'a>, bins: Range<usize>) -> Self {
        let steps = (bins.len() as f64 / rtt_windows.step).floor().max(1.0) as usize;
        let mut stretch = Self {
            losses: group_repairs(rtt_windows, &bins),
            rtt_windows,
            bins,
            rates: vec![0.0; steps],
            sigma: 0.0,
            pieces: Vec::new(),
        };
        stretch.rates = (0..steps).map(|step| stretch.step_rate(step)).collect();
        stretch.sigma = noise_sigma(&stretch.rates).max(NOISE_MIN * stretch.high_rate());
        stretch.pieces = partition(&without_outliers(&stretch.rates), stretch.sigma);
        stretch
    }

    /// Returns the start of step `step`; the last step takes the remainder.
    fn step_start(&self, step: usize) -> f64 {
        if step < self.rates.len() {
            self.bins.start as f64 + step as f64 * self.rtt_windows.step
        } else {
            self.bins.end as f64
        }
    }

    fn step_start_bin(&self, step: usize) -> usize {
        self.step_start(step).round() as usize
    }

    fn step_of_bin(&self, bin: usize) -> usize {
        let step = (bin - self.bins.start) as f64 / self.rtt_windows.step;
        (step as usize).min(self.rates.len() - 1)
    }

    /// Returns the rate of step `step`, bytes a bin. The remainder after the last step is not counted: it contains the
    /// end of a burst but not the pause after it.
    fn step_rate(&self, step: usize) -> f64 {
        let range = self.step_start(step)..self.step_start(step) + self.rtt_windows.step;
        self.rtt_windows.sent_in(range) / self.rtt_windows.step
    }

    /// Returns the 90th percentile of the rates of the steps.
    fn high_rate(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() * 9 / 10]
    }

    fn is_growing(&self, piece: &LinearPiece) -> bool {
        let rise = piece.end - piece.start;
        piece.end > RATE_CHANGE_MIN * piece.start && rise > 3.0 * self.sigma
    }

    /// Returns whether `piece` is a short ramp to the rate `next`. A flow may reach a small window in so few steps that
    /// no line grows.
    fn is_short_ramp(&self, piece: &LinearPiece, next: f64) -> bool {
        piece.from == 0
            && piece.to <= BEGINNING_STEPS
            && next > RATE_CHANGE_MIN * piece.mean
            && next - piece.mean > 3.0 * self.sigma
    }

    /// Returns whether the growth in `piece` follows a loss.
    fn is_recovery(&self, piece: &LinearPiece) -> bool {
        let soon = self.step_start_bin((piece.from + 2).min(self.rates.len()));
        let before = self.rates[..piece.from].iter().copied().fold(0.0, f64::max);
        self.losses.iter().any(|loss| *loss.start() <= soon)
            && piece.end <= RATE_CHANGE_MIN * before
    }

    fn piece_kinds(&self) -> Vec<PhaseKind> {
        let high = self.high_rate();
        let mut next = PhaseKind::Steady;
        let mut higher = 0.0;
        let mut kinds: Vec<_> = self
            .pieces
            .iter()
            .rev()
            .map(|piece| {
                next = match self.is_growing(piece) {
                    true if self.is_recovery(piece) => PhaseKind::Recovery,
                    true => PhaseKind::RampUp,
                    false if self.is_short_ramp(piece, higher) => PhaseKind::RampUp,
                    false if piece.mean < LOW_SHARE * high => next,
                    false => PhaseKind::Steady,
                };
                higher = piece.start;
                next
            })
            .collect();
        kinds.reverse();
        kinds
    }

    fn classify(&self) -> Vec<Span> {
        let kinds = self.piece_kinds();
        let mut spans: Vec<Span> = Vec::new();
        for (piece, kind) in self.pieces.iter().zip(kinds) {
            let bins = self.step_start_bin(piece.from)..self.step_start_bin(piece.to);
            spans.push(Span { kind, bins });
        }
        spans = self.merge_same_phases(spans);
        for loss in &self.losses {
            if let Some(bins) = self.recovery_span(loss, &spans) {
                overlay(
                    &mut spans,
                    Span {
                        kind: PhaseKind::Recovery,
                        bins,
                    },
                );
            }
        }
        if let Some(peak) = self.find_peak(&spans) {
            self.overlay_peak(&mut spans, peak);
        }
        self.merge_same_phases(self.absorb_short_spans(spans))
    }

    /// Returns the bins from the loss until the rate is back, or until the growth after the loss ends.
    fn recovery_span(
        &self,
        repair: &RangeInclusive<usize>,
        spans: &[Span],
    ) -> Option<Range<usize>> {
        let loss = *repair.start();
        let step = self.step_of_bin(loss);
        let near = self.step_start_bin(step.saturating_sub(1))
            ..=self.step_start_bin((step + 3).min(self.rates.len()));
        let growth =
            |span: &&Span| span.kind == PhaseKind::Recovery && near.contains(&span.bins.start);
        if let Some(growth) = spans.iter().find(growth) {
            return Some(loss..growth.bins.end);
        }
        let before = self.rates[step.saturating_sub(2)..=step]
            .iter()
            .copied()
            .fold(0.0, f64::max);
        let later = (step + 2).min(self.rates.len() - 1);
        let level = self.pieces.iter().find(|piece| piece.to > later)?.mean;
        let after = &self.rates[(step + 1).min(self.rates.len())..];
        let dips = |rate: &f64| *rate < RECOVERED_SHARE * before;
        let back = |rate: &f64| !dips(rate) || *rate >= SETTLED_SHARE * level;
        let steps = after.iter().position(back)?;
        let dipped = after.iter().take(2).any(dips);
        let end = step + 1 + steps;
        let latest = self.step_start_bin((end + REPAIR_STEPS).min(self.rates.len()));
        let end = self.step_start_bin(end).max(latest.min(repair.end() + 1));
        dipped.then_some(loss..end)
    }

    /// Returns the bins in which a queue builds up at the end of the first ramp-up.
    fn find_peak(&self, spans: &[Span]) -> Option<Range<usize>> {
        let ramp = spans
            .first()
            .filter(|span| span.kind == PhaseKind::RampUp)?;
        let rtt = self
            .rtt_windows
            .windowed_min_rtt_ns(self.rtt_windows.path_rtt);
        let base = self.rtt_windows.bins_to_ns(self.rtt_windows.tap_rtt);
        let excess = |bin: usize| rtt[bin] as f64 - base;
        let end = self
            .losses
            .first()
            .map_or(self.bins.end, |loss| *loss.start());
        // Round trips of a flow that is still slow are long because its ACKs wait for more data.
        let high = self.high_rate();
        let fast = self.rates.iter().position(|rate| *rate >= high / 2.0)?;
        let most = (self.step_start_bin(fast)..end)
            .map(excess)
            .fold(0.0, f64::max);
        if most < LOW_SHARE * base {
            return None;
        }
        let top = (self.step_start_bin(fast)..end).find(|bin| excess(*bin) >= 0.95 * most)?;
        let threshold = LOW_SHARE * most;
        let last_empty = (self.bins.start..top)
            .rev()
            .find(|bin| excess(*bin) < threshold)?;
        // The sample came a round trip after its packet was sent. Another round trip passed before the smaller samples
        // left the window of the minimum.
        let lag = self.rtt_windows.tap_rtt + self.rtt_windows.path_rtt;
        let onset = (last_empty as f64 + 1.0 - lag).max(self.bins.start as f64) as usize;
        let latest = ramp.bins.end as f64 + 2.0 * self.rtt_windows.step;
        let long = (top - onset) as f64 >= self.rtt_windows.path_rtt;
        (long && onset as f64 <= latest).then_some(onset..top)
    }

    fn overlay_peak(&self, spans: &mut Vec<Span>, peak: Range<usize>) {
        let ramp_end = spans[0].bins.end;
        if peak.end < ramp_end {
            let rest = match self.losses.first() {
                Some(loss) if *loss.start() < ramp_end => PhaseKind::Recovery,
                _ => PhaseKind::Steady,
            };
            overlay(
                spans,
                Span {
                    kind: rest,
                    bins: peak.end..ramp_end,
                },
            );
        } else {
            spans[0].bins.end = ramp_end.min(peak.start);
        }
        let from = spans[0].bins.end.min(peak.start);
        overlay(
            spans,
            Span {
                kind: PhaseKind::Peak,
                bins: from..peak.end,
            },
        );
    }

    /// Removes spans shorter than a step, or than two steps if they are steady; the span before takes their bins.
    fn absorb_short_spans(&self, spans: Vec<Span>) -> Vec<Span> {
        let step = self.rtt_windows.step.floor() as usize;
        let short = |span: &Span| {
            let steady = span.kind == PhaseKind::Steady;
            span.bins.len() < if steady { 2 * step } else { step }
        };
        absorb_short(spans, short)
    }

    /// Merges neighbours that are the same phase.
    fn merge_same_phases(&self, spans: Vec<Span>) -> Vec<Span> {
        merge_adjacent(spans, |one, next| self.is_same_phase(one, next))
    }

    fn is_same_phase(&self, one: &Span, next: &Span) -> bool {
        let level = |span: &Span| {
            let range = span.bins.start as f64..span.bins.end as f64;
            self.rtt_windows.sent_in(range) / span.bins.len().max(1) as f64
        };
        let (a, b) = (level(one), level(next));
        one.kind == next.kind
            && match one.kind {
                PhaseKind::Steady => a.max(b) < RATE_CHANGE_MIN * a.min(b) + self.sigma,
                PhaseKind::Recovery => !self.has_loss_between(one, next),
                _ => true,
            }
    }

    /// Returns whether a loss separates two recoveries.
    fn has_loss_between(&self, one: &Span, next: &Span) -> bool {
        let step = self.rtt_windows.step.ceil() as usize;
        let range = one.bins.start + 2 * step..next.bins.start + step;
        self.losses.iter().any(|loss| range.contains(loss.start()))
    }
}

/// Returns the bins with retransmissions, grouped into repairs. Within a repair, retransmissions are at most two round
/// trips apart, or one step if that is longer.
fn group_repairs(rtt_windows: &RttWindows<'_>, bins: &Range<usize>) -> Vec<RangeInclusive<usize>> {
    let quiet = (2.0 * rtt_windows.path_rtt).max(rtt_windows.step);
    let mut losses: Vec<RangeInclusive<usize>> = Vec::new();
    for bin in bins
        .clone()
        .filter(|bin| rtt_windows.bins()[*bin].retransmitted_bytes > 0)
    {
        match losses.last_mut() {
            Some(last) if (bin - last.end()) as f64 <= quiet => *last = *last.start()..=bin,
            _ => losses.push(bin..=bin),
        }
    }
    losses
}

fn summarize_span(rtt_windows: &RttWindows<'_>, span: &Span) -> Phase {
    let bins = &rtt_windows.bins()[span.bins.clone()];
    let sum = |of: fn(&Bin) -> u64| bins.iter().map(|bin| of(bin) as f64).sum::<f64>();
    let seconds = rtt_windows.bins_to_ns(span.bins.len() as f64) / 1e9;
    let acks = sum(|bin| u64::from(bin.acks));
    Phase {
        kind: span.kind,
        from_ns: rtt_windows.bin_start_ns(span.bins.start),
        to_ns: rtt_windows.bin_start_ns(span.bins.end),
        data_bps: sum(|bin| bin.data_bytes) * 8.0 / seconds,
        acked_bps: sum(|bin| bin.acked_bytes) * 8.0 / seconds,
        acks_per_s: acks / seconds,
        packets_per_ack: sum(|bin| u64::from(bin.data_segments)) / acks.max(1.0),
    }
}
