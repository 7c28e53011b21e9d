// SPDX-License-Identifier: MIT OR Apache-2.0
//! What limited a direction when, judged from its course a few round trips at a time.
//!
//! The classes are those of T-RAT (Zhang, Breslau, Paxson, Shenker, "On the characteristics and
//! origins of Internet flow rates", SIGCOMM 2002, §3) and TAPO (Sun et al., "TCP stalls at the server
//! side: measurement and mitigation", 2015), with the ACK stream as one of its own. What the sender's
//! kernel would say (`longhaul_tcpsim::limiter`) needs `tcp_info`; a tap has packets only. The rules are
//! asked in this order, for steps of one round trip or more (`course/rounds.rs`):
//!
//! 1. **Application**: for more than half of the step nothing was in flight and nothing was sent although
//!    the window was open; or half of the segments are shorter than the largest without a full window
//!    (T-RAT §3.3: there was no more to send).
//! 2. **Receive window**, by unread data: during the whole step the advertised window was below its
//!    largest so far by a quarter of that, and by what a round trip delivers. The receiver holds data
//!    that its application has not read, so the application is slower than the path.
//! 3. **ACK stream**: a queue stood, as in 4, but half or more of what the round trip has in excess, and at least
//!    3 ms, was the way of the ACKs, as their time stamps say ([`crate::ack_way`]). Without time
//!    stamps of milliseconds this can't be told from path rate.
//! 4. **Path rate**: a queue stood during the whole step: at every ACK, the first byte not acknowledged
//!    was older than the least round trip by 5 % and by 0.5 ms ([`Bin::unacked_age_min_us`]). The age
//!    is used because a delayed ACK makes the round trip longer without any queue. Path rate comes
//!    before a full receive window, other than in the kernel's reckoning: a larger window would only
//!    lengthen the queue. With a capture at both ends the one-way delays show the queue ([`PathDelays`]).
//! 5. **Receive window**: a packet ended within a segment of the advertised window's end (as T-RAT),
//!    or the window had no room for a segment.
//! 6. **Congestion window**: something was sent again, in this step or in one of the three before;
//!    or what is in flight is still below what it was at a loss that cut it by 15 % or more; or it
//!    grew by a segment over what it was four steps ago and before, also before a silence that was
//!    shorter than a time-out.
//! 7. **Application**, for all that is left: less is in flight than was before without a loss, nothing
//!    grows, nothing is in the way. The sender held back, for which a send buffer that is too small
//!    and pacing are reasons as well: no tap can tell them apart.
//!
//! Then spans of less than two steps go to their neighbour; a span of congestion window beside one of
//! path rate is path rate too if as much was acknowledged in most of it (to 3 %), since a queue that is short
//! or gone for a moment takes nothing from the rate; and silence of a round trip or more with
//! everything acknowledged, and windows without room for a segment, are put in with their own times.
//!
//! If the capture does not have the scale of the windows ([`Windows::Unknown`]), only a window of zero counts.
//!
//! The rules are for a tap near the sender. Elsewhere less of the round trip and of what is in flight
//! is seen, and [`super`] says so.

use crate::acks::ack_way;
use crate::course::{
    Course,
    pieces::median,
    rounds::Rounds,
    series::Bin,
    spans::{self, drop_short, join, paint},
};
use crate::record::{Acks, DelayBin, DelayCourse, Limit, Limited};
use std::ops::Range;

/// A round trip that is longer, for good, than the least: by this part of it, and by this.
const STANDING_PART: f64 = 0.05;
const STANDING_NS: f64 = 500e3;
/// What ACKs must lose on their way: time stamps are right to a millisecond.
const ACK_WAY_NS: f64 = 3e6;
/// A window that was cut, after a loss, is below this part of what it was; CUBIC cuts to 0.7, the
/// gentlest that is in use.
const CUT: f64 = 0.85;
/// Steps after a loss in which the cut must show.
const CUT_STEPS: usize = 8;
/// A rate that is as good as the path's.
const FULL: f64 = 0.97;
/// Steps that growth is looked for over, and that a repair takes.
const GROWTH_STEPS: usize = 4;
/// The least time-out of Linux (`TCP_RTO_MIN`).
const TIME_OUT_NS: f64 = 200e6;
/// The part of the largest window that is unread data if a receiver is slow. Linux lowers a window by
/// less than that when packets use its memory badly.
const UNREAD_PART: u64 = 4;
/// Round trips over which the bytes delivered in one are averaged: ACKs come in lumps.
const DELIVERY_ROUNDS: f64 = 4.0;
/// Segments that have a course.
const SEGMENTS_MIN: u64 = 10;

type Span = spans::Span<Limit>;

/// What the windows of a course are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// They are bytes.
    Scaled,
    /// The capture does not have their scale: nothing follows from their size, unless it is 0.
    Unknown,
}

impl Windows {
    /// Of the windows that `acks` advertise.
    #[must_use]
    pub fn of(acks: &Acks) -> Self {
        match acks.window_scale {
            Some(_) => Self::Scaled,
            None => Self::Unknown,
        }
    }
}

/// One-way delays between a capture at the sender and one at the receiver.
#[derive(Debug, Clone, Copy)]
pub struct PathDelays<'a> {
    /// Delays of data, from the sender to the receiver.
    pub data: &'a DelayCourse,
    /// Delays of ACKs.
    pub acks: &'a DelayCourse,
    /// The clock of the delays less the clock of the sender's capture, ns.
    pub clock_ahead_ns: i64,
}

/// What limited `course` from its first data to its last, in order and without gaps; nothing for
/// fewer than ten segments. At most some hundreds. `handshake_ns` is the round trip of the handshake, if
/// it was seen. `windows` is what those of the course are worth. `delays` replace the round trip as evidence
/// of a queue.
#[must_use]
pub fn of(
    course: &Course,
    windows: Windows,
    handshake_ns: Option<u64>,
    delays: Option<&PathDelays<'_>>,
) -> Vec<Limited> {
    let segments: u64 = sum(&course.bins, |bin| u64::from(bin.data_segments));
    match Rounds::of(course, handshake_ns) {
        Some(rounds) if segments >= SEGMENTS_MIN => spans(&rounds, windows, delays)
            .into_iter()
            .map(|span| Limited {
                by: span.kind,
                from_ns: rounds.time(span.bins.start),
                to_ns: rounds.time(span.bins.end),
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn spans(rounds: &Rounds<'_>, windows: Windows, delays: Option<&PathDelays<'_>>) -> Vec<Span> {
    let seen = Seen::of(rounds, windows, delays);
    let closed = closed(rounds.bins(), windows);
    let (mut spans, mut judge) = (Vec::new(), Judge::default());
    let mut from = rounds.active().start;
    for gap in runs(&seen.silent, rounds.active(), rounds.step) {
        spans.extend(stretch(rounds, from..gap.start, &seen, &mut judge));
        from = gap.end;
        judge.pause(rounds.nanos(gap.len() as f64));
        spans.push(Span {
            kind: Limit::Application,
            bins: gap,
        });
    }
    spans.extend(stretch(
        rounds,
        from..rounds.active().end,
        &seen,
        &mut judge,
    ));
    for bins in runs(&closed, rounds.active(), rounds.step) {
        paint(
            &mut spans,
            Span {
                kind: Limit::ReceiveWindow,
                bins,
            },
        );
    }
    join(spans, alike)
}

/// What is known of each bin.
struct Seen<'a> {
    silent: Vec<bool>,
    /// The receiver holds data that its application has not read.
    unread: Vec<bool>,
    /// What its ACKs took longer than the fastest.
    acks_over: Option<Vec<Option<f64>>>,
    delays: Option<&'a PathDelays<'a>>,
}

impl<'a> Seen<'a> {
    fn of(rounds: &Rounds<'_>, windows: Windows, delays: Option<&'a PathDelays<'a>>) -> Self {
        Self {
            silent: silent(rounds.bins(), windows),
            unread: match windows {
                Windows::Scaled => unread(rounds),
                Windows::Unknown => vec![false; rounds.bins().len()],
            },
            acks_over: ack_way::excess(rounds.bins(), rounds.nanos(1.0) as u64),
            delays,
        }
    }

    /// The evidence of a queue in the bins `range`.
    fn queue(&self, rounds: &Rounds<'_>, range: &Range<usize>) -> Queue {
        match self.delays {
            Some(delays) => delays.queue(rounds.time(range.start), rounds.time(range.end)),
            None => self.queue_by_acks(rounds, range),
        }
    }

    fn queue_by_acks(&self, rounds: &Rounds<'_>, range: &Range<usize>) -> Queue {
        let bins = &rounds.bins()[range.clone()];
        let above = |ns: u64| ns as f64 - rounds.nanos(rounds.least);
        let rtt = bins.iter().map(|bin| bin.rtt_min_ns).filter(|rtt| *rtt > 0);
        let age = bins.iter().map(|bin| u64::from(bin.unacked_age_min_us));
        let age = age.filter(|age| *age > 0).min();
        let acks = self.acks_over.as_deref();
        let acks = acks.map(|over| over[range.clone()].iter().flatten());
        Queue {
            standing: age.map(|age| above(age * 1_000)),
            excess: rtt.min().map_or(0.0, above),
            acks: acks.and_then(|over| over.copied().reduce(f64::min)),
            acks_min: ACK_WAY_NS,
        }
    }
}

/// Evidence of a queue in one step, ns.
struct Queue {
    /// What a queue added to every round trip; none without a sample.
    standing: Option<f64>,
    /// What the fastest round trip had over the least.
    excess: f64,
    /// What every ACK took longer than the fastest.
    acks: Option<f64>,
    /// The least of `acks` that is no error of measurement.
    acks_min: f64,
}

impl Queue {
    fn stands(&self, rtt_least: f64) -> bool {
        let least = (STANDING_PART * rtt_least).max(STANDING_NS);
        self.standing.is_some_and(|standing| standing > least)
    }

    fn is_of_acks(&self) -> bool {
        let half = self.excess / 2.0;
        self.acks
            .is_some_and(|acks| acks >= half.max(self.acks_min))
    }
}

impl PathDelays<'_> {
    /// The queues of data and of ACKs from `from_ns` to `to_ns`, by the clock of the sender's capture.
    fn queue(&self, from_ns: u64, to_ns: u64) -> Queue {
        let [from, to] = [from_ns, to_ns].map(|at| at.saturating_add_signed(self.clock_ahead_ns));
        let [data, acks] = [self.data, self.acks].map(|course| excess_delay(course, from, to));
        let both = data.unwrap_or(0.0) + acks.unwrap_or(0.0);
        Queue {
            standing: data.or(acks).map(|_| both),
            excess: both,
            acks,
            acks_min: STANDING_NS,
        }
    }
}

/// What every packet between two times took longer than the fastest of `course`, ns; none without a
/// packet.
fn excess_delay(course: &DelayCourse, from_ns: u64, to_ns: u64) -> Option<f64> {
    let width = course.width_ns.max(1);
    let index = |at: u64| usize::try_from(at.saturating_sub(course.from_ns) / width);
    let bin = |at: u64| index(at).map_or(course.bins.len(), |at| at.min(course.bins.len()));
    let least = |bins: &[DelayBin]| {
        let some = bins.iter().filter(|bin| bin.count > 0);
        some.map(|bin| bin.min_ns).min()
    };
    let during = least(&course.bins[bin(from_ns)..bin(to_ns.saturating_add(width - 1))])?;
    Some(during.saturating_sub(least(&course.bins)?) as f64)
}

fn alike(one: &Span, next: &Span) -> bool {
    one.kind == next.kind
}

/// What limits without longer silence.
fn stretch(
    rounds: &Rounds<'_>,
    bins: Range<usize>,
    seen: &Seen<'_>,
    judge: &mut Judge,
) -> Vec<Span> {
    let steps = steps(rounds, bins, seen);
    let judged = steps.iter().map(|step| Span {
        kind: judge.step(step),
        bins: step.bins.clone(),
    });
    let two_steps = (2.0 * rounds.step).floor() as usize;
    let spans = drop_short(join(judged.collect(), alike), |span| {
        span.bins.len() < two_steps
    });
    join(fill_path(rounds, spans), alike)
}

/// Congestion windows that take nothing from the rate of the path beside them.
fn fill_path(rounds: &Rounds<'_>, mut spans: Vec<Span>) -> Vec<Span> {
    let rate = |span: &Span| usual_rate(rounds, &span.bins);
    let full = |at: usize, beside: Option<&Span>| {
        let path = beside.filter(|span| span.kind == Limit::PathRate);
        path.is_some_and(|path| rate(&spans[at]) >= FULL * rate(path))
    };
    let window = |at: &usize| spans[*at].kind == Limit::CongestionWindow;
    let before = |at: usize| at.checked_sub(1).and_then(|at| spans.get(at));
    let beside = |at: &usize| full(*at, before(*at)) || full(*at, spans.get(at + 1));
    let filled: Vec<usize> = (0..spans.len()).filter(window).filter(beside).collect();
    for at in filled {
        spans[at].kind = Limit::PathRate;
    }
    spans
}

/// What is acknowledged in most steps of `bins` that repair nothing: a hole that is filled
/// acknowledges what came long before.
fn usual_rate(rounds: &Rounds<'_>, bins: &Range<usize>) -> f64 {
    let count = (bins.len() as f64 / rounds.step).max(1.0) as usize;
    let edge = |step: usize| bins.start as f64 + step as f64 * rounds.step;
    let repairs = |step: usize| {
        let from = (edge(step) - rounds.step).max(0.0) as usize;
        let to = (edge(step + 1).ceil() as usize).min(rounds.bins().len());
        sum(&rounds.bins()[from..to], |bin| bin.retransmitted_bytes) > 0
    };
    let rate = |step: usize| rounds.acked_in(edge(step)..edge(step + 1));
    let mut calm: Vec<f64> = (0..count)
        .filter(|step| !repairs(*step))
        .map(rate)
        .collect();
    if calm.is_empty() {
        calm = (0..count).map(rate).collect();
    }
    median(calm)
}

/// Some round trips.
struct Step {
    bins: Range<usize>,
    segments: u64,
    short: u64,
    retransmitted: u64,
    window_full: u64,
    in_flight: u64,
    segment_bytes: u64,
    nanos: f64,
    /// Part of the time with nothing in flight.
    silent: f64,
    /// The receiver held unread data all the time.
    unread: bool,
    queue: Queue,
    rtt_least: f64,
}

fn steps(rounds: &Rounds<'_>, bins: Range<usize>, seen: &Seen<'_>) -> Vec<Step> {
    let count = (bins.len() as f64 / rounds.step).floor().max(1.0) as usize;
    let edge = |step: usize| match step < count {
        true => bins.start + (step as f64 * rounds.step).round() as usize,
        false => bins.end,
    };
    (0..count)
        .map(|step| edge(step)..edge(step + 1))
        .filter(|bins| !bins.is_empty())
        .map(|bins| Step::of(rounds, bins, seen))
        .collect()
}

impl Step {
    fn of(rounds: &Rounds<'_>, range: Range<usize>, seen: &Seen<'_>) -> Self {
        let bins = &rounds.bins()[range.clone()];
        let segments = sum(bins, |bin| u64::from(bin.data_segments));
        let silent = seen.silent[range.clone()].iter().filter(|silent| **silent);
        Self {
            segments,
            short: sum(bins, |bin| u64::from(bin.short_segments)),
            retransmitted: sum(bins, |bin| bin.retransmitted_bytes),
            window_full: sum(bins, |bin| u64::from(bin.window_full)),
            in_flight: bins.iter().map(|bin| bin.in_flight_max).max().unwrap_or(0),
            segment_bytes: sum(bins, |bin| bin.data_bytes) / segments.max(1),
            nanos: rounds.nanos(bins.len() as f64),
            silent: silent.count() as f64 / bins.len() as f64,
            unread: seen.unread[range.clone()].iter().all(|unread| *unread),
            queue: seen.queue(rounds, &range),
            rtt_least: rounds.nanos(rounds.least),
            bins: range,
        }
    }

    /// The sender had no more at hand. A segment that a full window cut short says nothing of that.
    fn lacks_data(&self) -> bool {
        2 * self.short.saturating_sub(self.window_full) >= self.segments.max(1)
    }

    fn queue_stands(&self) -> bool {
        self.queue.stands(self.rtt_least)
    }
}

/// What the steps before say of the next.
#[derive(Default)]
struct Judge {
    /// Most in flight before a silence after which the window is still as large.
    known: u64,
    /// In flight in each step since the last loss or silence.
    history: Vec<u64>,
    /// Most in flight before the last loss, as long as it has not been reached again.
    at_loss: Option<u64>,
    cut: bool,
}

impl Judge {
    fn step(&mut self, step: &Step) -> Limit {
        if step.silent > 0.5 {
            self.pause(step.silent * step.nanos);
            return Limit::Application;
        }
        self.note_loss(step);
        let limit = self.limit(step);
        self.history.push(step.in_flight);
        limit
    }

    /// Nothing was sent for a while. After a time-out the window begins anew (RFC 5681 §4.1).
    fn pause(&mut self, silent_ns: f64) {
        let most = self.history.iter().copied().max().unwrap_or(0);
        let known = if silent_ns < TIME_OUT_NS {
            most.max(self.known)
        } else {
            0
        };
        *self = Self {
            known,
            ..Self::default()
        };
    }

    fn limit(&self, step: &Step) -> Limit {
        match () {
            () if step.lacks_data() => Limit::Application,
            () if step.unread => Limit::ReceiveWindow,
            () if step.queue_stands() && step.queue.is_of_acks() => Limit::AckStream,
            () if step.queue_stands() => Limit::PathRate,
            () if step.window_full > 0 => Limit::ReceiveWindow,
            () if self.repairs() || self.cut => Limit::CongestionWindow,
            () if self.grows(step) => Limit::CongestionWindow,
            () => Limit::Application,
        }
    }

    fn note_loss(&mut self, step: &Step) {
        if step.retransmitted > 0 {
            let most = self.history.iter().copied().max().unwrap_or(step.in_flight);
            self.at_loss = Some(most).max(self.at_loss);
            self.known = 0;
            self.history.clear();
        } else if let Some(at_loss) = self.at_loss {
            let soon = self.history.len() < CUT_STEPS;
            self.cut |= soon && (step.in_flight as f64) < CUT * at_loss as f64;
            if !soon && step.in_flight >= at_loss {
                (self.at_loss, self.cut) = (None, false);
            }
        }
    }

    /// A loss is not long ago.
    fn repairs(&self) -> bool {
        self.at_loss.is_some() && self.history.len() < GROWTH_STEPS
    }

    fn grows(&self, step: &Step) -> bool {
        let past = self.history.len().saturating_sub(GROWTH_STEPS - 1).max(1);
        let known = Some(self.known).filter(|known| *known > 0);
        let before = self.history.iter().take(past).copied().max().max(known);
        before.is_none_or(|before| step.in_flight >= before.saturating_add(step.segment_bytes))
    }
}

/// Bins in which nothing is sent and everything that was is acknowledged, though the window is open.
fn silent(bins: &[Bin], windows: Windows) -> Vec<bool> {
    let mut all_acked = false;
    bins.iter()
        .zip(closed(bins, windows))
        .map(|(bin, closed)| {
            all_acked = bin.all_acked.unwrap_or(all_acked);
            bin.data_bytes == 0 && all_acked && !closed
        })
        .collect()
}

/// Whether the receiver held unread data for more than half of the time of `course`.
pub(super) fn holds_unread_data(course: &Course) -> bool {
    Rounds::of(course, None).is_some_and(|rounds| {
        let (active, unread) = (rounds.active(), unread(&rounds));
        let count = unread[active.clone()]
            .iter()
            .filter(|unread| **unread)
            .count();
        2 * count > active.len()
    })
}

/// Bins in which the window is so much below its largest so far that the receiver must hold unread data.
fn unread(rounds: &Rounds<'_>) -> Vec<bool> {
    let mut largest = 0;
    let windows = least_windows(rounds.bins()).enumerate();
    windows
        .map(|(at, window)| {
            largest = largest.max(window.unwrap_or(0));
            let unread = largest - window.unwrap_or(largest);
            let end = (at + 1) as f64;
            let some = rounds.acked_in((end - DELIVERY_ROUNDS * rounds.rtt).max(0.0)..end);
            unread > largest / UNREAD_PART && unread as f64 >= some / DELIVERY_ROUNDS
        })
        .collect()
}

/// The least window of each bin: of those that came in it, or the last before.
fn least_windows(bins: &[Bin]) -> impl Iterator<Item = Option<u64>> {
    let mut last = None;
    bins.iter().map(move |bin| {
        let least = bin.window_min.or(last);
        last = bin.window_min.map(|_| bin.window_last.into()).or(last);
        least
    })
}

/// Bins in which the window had no room for a segment of the usual size at some time. Zero is zero by any scale.
fn closed(bins: &[Bin], windows: Windows) -> Vec<bool> {
    let segments = sum(bins, |bin| u64::from(bin.data_segments));
    let room = match windows {
        Windows::Scaled => sum(bins, |bin| bin.data_bytes) / segments.max(1),
        Windows::Unknown => 1,
    };
    let is_closed = |window: Option<u64>| window.is_some_and(|window| window < room.max(1));
    least_windows(bins).map(is_closed).collect()
}

/// Where `what` is so for at least `least` bins within `active`.
fn runs(what: &[bool], active: Range<usize>, least: f64) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut from = active.start;
    for bin in active.clone() {
        if !what[bin] {
            runs.push(from..bin);
            from = bin + 1;
        }
    }
    runs.push(from..active.end);
    runs.retain(|run| !run.is_empty() && run.len() as f64 >= least);
    runs
}

fn sum(bins: &[Bin], of: impl Fn(&Bin) -> u64) -> u64 {
    bins.iter().map(of).fold(0, u64::saturating_add)
}
