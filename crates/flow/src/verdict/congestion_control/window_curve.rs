// SPDX-License-Identifier: MIT OR Apache-2.0
//! Curve of a sender's window: the most data in flight of each round trip, cut into epochs at the losses.
//!
//! A sender that its congestion window limits always has a whole window in flight. Beside the sender, data in flight is
//! what was sent and neither acknowledged nor SACKed. Elsewhere it is what the sender knew, by the ACKs that its packets
//! echo ([`crate::time_series::sender_view`]).

use crate::time_series::{bin::Bin, rtt_windows::RttWindows};
use std::ops::Range;

/// Rounds without a retransmission after which a repair is over even if SACKs still arrive: packets are reordered.
const REPAIR_ROUNDS: usize = 3;
/// Factor by which a window grows within a round trip in slow start.
const SLOW_START: f64 = 1.4;
/// Slow start is over if in three rounds the window has grown by less than this part of the ACKed data.
const SLOW_START_ROUNDS: usize = 3;
const SLOW_START_PART: f64 = 0.4;
/// Round trips of a repair after which the window may have been reduced more than once.
const LONG_REPAIR_RTTS: f64 = 3.5;
/// Round trips after a loss after which a window ignores it.
const IGNORING_RTTS: f64 = 8.0;
/// Window while BBR probes for the least round trip, segments, how long it does so, s, and within how many rounds the
/// window is there and back (`BBRMinPipeCwnd`, `BBRProbeRTTDuration`, draft-cardwell-iccrg-bbr-congestion-control-00).
const PROBE_WINDOW_MAX: f64 = 4.6;
const PROBE_S: (f64, f64) = (0.1, 0.6);
const PROBE_ROUNDS: usize = 4;
/// Factor by which the window is larger before.
const PROBE_FACTOR: f64 = 4.0;
/// Factor of the window above which there was no reduction, or it was undone.
const UNDONE: f64 = 1.02;
/// Least window whose reduction shows a part, segments.
const WINDOW_MIN: f64 = 4.0;
/// Least number of rounds of an epoch: a single one may belong to the repair.
const ROUNDS_MIN: usize = 2;

/// A least round trip of the curve, or one bin if that is longer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    /// Middle of the round since the first data, s.
    pub(super) at_s: f64,
    /// Most data in flight, segments; 0 if nothing was sent.
    pub(super) window: f64,
    /// Newly acknowledged data, segments.
    pub(super) acked: f64,
    /// Packets filled the receive window.
    pub(super) window_full: bool,
    /// Greatest round trip, s; 0 without a sample.
    rtt_max_s: f64,
    /// Data was retransmitted.
    retransmits: bool,
    /// A timeout was among the reasons.
    timed_out: bool,
    /// ACKs had SACK blocks.
    sacked: bool,
    /// An ECN mark was seen or reported.
    marked: bool,
}

/// WindowReduction of the window: the losses of about a round trip, which a sender answers once.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowReduction {
    /// Window before it, segments.
    pub(super) before: f64,
    /// Whether that window was still doubling.
    pub(super) in_slow_start: bool,
    /// Whether a timeout was among the reasons.
    pub(super) timed_out: bool,
    /// Whether the repair took so long that the window may have been reduced more than once.
    is_long: bool,
    /// Whether there were ECN marks: some controls answer them otherwise than losses (RFC 8511).
    by_marks: bool,
    /// Whether the receive window, and not the congestion window, held the data in flight before it.
    by_receive_window: bool,
}

/// Growth of the window from one reduction to the next, or to the end.
#[derive(Debug, Clone)]
pub(super) struct Epoch<'a> {
    /// WindowReduction at its beginning.
    pub(super) reduction: WindowReduction,
    /// Rounds without a loss, at least [`ROUNDS_MIN`].
    pub(super) rounds: &'a [Round],
    /// Whether the window shows a single reduction, after an earlier one: the first may be that of slow start.
    pub(super) is_certain: bool,
}

/// Window of a sender over time.
#[derive(Debug)]
pub(super) struct WindowCurve {
    pub(super) rounds: Vec<Round>,
    /// Least round trip between sender and receiver, s.
    pub(super) rtt_min_s: f64,
    /// Time of a round, s.
    pub(super) round_s: f64,
    by_echoes: bool,
}

impl WindowCurve {
    /// Creates the curve in segments of `segment_bytes`. `by_echoes` takes the windows that the sender knew, and not the
    /// data in flight at the capture point.
    pub(super) fn of(rtt_windows: &RttWindows<'_>, segment_bytes: u32, by_echoes: bool) -> Self {
        let step = (rtt_windows.path_rtt.ceil() as usize).max(1);
        let round_s = rtt_windows.bins_to_ns(step as f64) / 1e9;
        let segment_bytes = f64::from(segment_bytes.max(1));
        let chunks = rtt_windows.bins()[rtt_windows.active_bins()].chunks(step);
        let round = |(number, bins): (usize, &[Bin])| Round {
            at_s: (number as f64 + 0.5) * round_s,
            ..Round::of(bins, segment_bytes, by_echoes)
        };
        Self {
            rounds: chunks.enumerate().map(round).collect(),
            rtt_min_s: rtt_windows.bins_to_ns(rtt_windows.path_rtt) / 1e9,
            round_s,
            by_echoes,
        }
    }

    /// Returns the rounds from the end of slow start to the first loss, if slow start ended before it.
    pub(super) fn growth_before_losses(&self) -> &[Round] {
        let to = self.next_loss(0).unwrap_or(self.rounds.len());
        let rounds = &self.rounds[..to];
        let mut groups = rounds.windows(SLOW_START_ROUNDS + 1);
        let end = groups.position(is_slow_start_over);
        end.map_or(&[], |end| {
            before_full_window(&rounds[end + SLOW_START_ROUNDS..])
        })
    }

    /// Returns the epochs after reductions, in order. What precedes the first reduction is none.
    pub(super) fn epochs(&self) -> Vec<Epoch<'_>> {
        let (mut epochs, mut at, mut is_first) = (Vec::new(), 0, true);
        while let Some(loss) = self.next_loss(at) {
            let repaired = self.repair_end(loss);
            let to = self.next_loss(repaired).unwrap_or(self.rounds.len());
            let from = self.drained(repaired..to);
            let mut epoch = Epoch {
                reduction: self.reduction(at, loss, from),
                rounds: &self.rounds[from..to],
                is_certain: !is_first,
            };
            if epoch.is_reduced() {
                epoch.is_certain &= !epoch.reduction.in_slow_start && !epoch.reduction.is_long;
                is_first &= !epoch.is_governed();
                epochs.push(epoch);
            }
            at = repaired;
        }
        epochs
    }

    /// Returns how many rounds had losses that the window ignored: more than eight round trips after the first loss of a
    /// repair, it was still above half of its size. A window that losses reduce each round trip would be below.
    pub(super) fn rounds_ignoring_losses(&self) -> usize {
        let (mut count, mut at) = (0, 0);
        while let Some(loss) = self.next_loss(at) {
            at = self.repair_end(loss);
            let before = self.rounds[loss].window;
            let answered = IGNORING_RTTS * greatest_rtt(&self.rounds[loss..at]) / self.round_s;
            let later = self.rounds[loss..at]
                .iter()
                .skip(answered.max(1.0) as usize);
            count += later
                .filter(|round| round.sacked && round.window > before / 2.0)
                .count();
        }
        count
    }

    /// Returns how often the window fell to four segments for about 0.2 s without a loss, and rose again at once: so BBR
    /// probes for the least round trip.
    pub(super) fn rtt_probes(&self) -> u32 {
        let is_low = |round: &Round| round.window > 0.0 && round.window < PROBE_WINDOW_MAX;
        let (mut count, mut at) = (0, 1);
        while let Some(low) = self.rounds.iter().skip(at).position(is_low) {
            let from = at + low;
            let rest = &self.rounds[from..];
            let length = rest
                .iter()
                .position(|round| !is_low(round))
                .unwrap_or(rest.len());
            count += u32::from(self.is_rtt_probe(from..from + length));
            at = from + length;
        }
        count
    }

    /// Returns whether the window was large soon before and soon after the rounds `low` with a small one.
    fn is_rtt_probe(&self, low: Range<usize>) -> bool {
        let before = &self.rounds[low.start.saturating_sub(PROBE_ROUNDS)..low.start];
        let after = self.rounds[low.end..].iter().take(PROBE_ROUNDS);
        let usual = before.iter().map(|round| round.window).fold(0.0, f64::max);
        let later = after.map(|round| round.window).fold(0.0, f64::max);
        let is_lossy = before
            .iter()
            .chain(&self.rounds[low.clone()])
            .any(Round::is_lossy);
        let has_length = (PROBE_S.0..PROBE_S.1).contains(&(low.len() as f64 * self.round_s));
        has_length && !is_lossy && usual > PROBE_FACTOR * PROBE_WINDOW_MAX && later > usual / 2.0
    }

    fn next_loss(&self, from: usize) -> Option<usize> {
        let mut later = self.rounds.get(from..)?.iter();
        later.position(Round::is_lossy).map(|at| from + at)
    }

    /// Returns the first round after the repair of the losses of round `loss`.
    fn repair_end(&self, loss: usize) -> usize {
        let mut last = loss;
        for at in loss + 1..self.rounds.len() {
            let round = &self.rounds[at];
            if round.is_lossy() {
                last = at;
            } else if round.window > 0.0 && (!round.sacked || at - last > REPAIR_ROUNDS) {
                return at;
            }
        }
        self.rounds.len()
    }

    /// Returns the round at whose beginning the data in flight has fallen to the window.
    fn drained(&self, rounds: Range<usize>) -> usize {
        let mut start = rounds.start;
        for at in rounds.start + 1..rounds.end {
            let (lowest, window) = (self.rounds[start].window, self.rounds[at].window);
            if window >= lowest {
                break;
            }
            if window > 0.0 {
                start = at;
            }
        }
        start
    }

    /// Returns the reduction by the losses from round `loss` on, which are repaired before `end`. `from` is the first
    /// round after the repair before.
    fn reduction(&self, from: usize, loss: usize, end: usize) -> WindowReduction {
        let rounds = &self.rounds[from..=self.last_window(from, loss)];
        let latest = &rounds[rounds.len().saturating_sub(2)..];
        let before = latest.iter().map(|round| round.window).fold(0.0, f64::max);
        let earlier = rounds
            .iter()
            .rev()
            .nth(2)
            .map_or(before, |round| round.window);
        let repair = &self.rounds[loss..end.max(loss + 1).min(self.rounds.len())];
        let repair_s = repair.len() as f64 * self.round_s;
        WindowReduction {
            before,
            in_slow_start: before > SLOW_START * earlier,
            timed_out: repair.iter().any(|round| round.timed_out),
            is_long: repair_s > LONG_REPAIR_RTTS * greatest_rtt(rounds).max(self.rtt_min_s),
            by_marks: repair.iter().any(|round| round.marked),
            by_receive_window: latest.iter().any(|round| round.window_full),
        }
    }

    /// Returns the last round before a reduction whose window is known. Echoed ACKs do not show SACKed data.
    fn last_window(&self, from: usize, loss: usize) -> usize {
        let mut earlier = (from..loss).rev();
        if self.by_echoes {
            earlier.find(|at| !self.rounds[*at].sacked).unwrap_or(from)
        } else {
            loss
        }
    }
}

impl Round {
    fn of(bins: &[Bin], segment_bytes: f64, by_echoes: bool) -> Self {
        let window = |bin: &Bin| {
            if by_echoes {
                u64::from(bin.sender.in_flight_max)
            } else {
                bin.in_flight_max
            }
        };
        let acked: f64 = bins.iter().map(|bin| bin.acked_bytes as f64).sum();
        let largest = bins.iter().map(window).max().unwrap_or(0);
        let is_full = |bin: &Bin| bin.window_full > 0 || bin.sender.window_full > 0;
        Self {
            at_s: 0.0,
            window: largest as f64 / segment_bytes,
            acked: acked / segment_bytes,
            window_full: bins.iter().any(is_full),
            rtt_max_s: greatest_path_rtt_s(bins, by_echoes),
            retransmits: bins.iter().any(|bin| bin.retransmissions > 0),
            timed_out: bins.iter().any(|bin| bin.timeouts > 0),
            sacked: bins.iter().any(|bin| bin.sacks > 0),
            marked: bins.iter().any(Bin::is_marked),
        }
    }

    fn is_lossy(&self) -> bool {
        self.retransmits || self.marked
    }
}

impl Epoch<'_> {
    /// Returns the window at the beginning, segments.
    pub(super) fn start(&self) -> f64 {
        self.rounds[0].window
    }

    /// Returns whether the congestion window shows: no timeout, and no receive window instead of it.
    pub(super) fn is_governed(&self) -> bool {
        let reduction = &self.reduction;
        let is_other = reduction.timed_out || reduction.by_marks || reduction.by_receive_window;
        !is_other && reduction.before >= WINDOW_MIN
    }

    /// Returns whether the window was reduced, and for good.
    fn is_reduced(&self) -> bool {
        self.rounds.len() >= ROUNDS_MIN && self.start() < UNDONE * self.reduction.before
    }

    /// Returns the rounds in which the window may have grown: none after a timeout, which begins a slow start.
    pub(super) fn growth(&self) -> &[Round] {
        if self.reduction.timed_out {
            &[]
        } else {
            before_full_window(self.rounds)
        }
    }
}

fn is_slow_start_over(rounds: &[Round]) -> bool {
    let (first, last) = (rounds[0].window, rounds[SLOW_START_ROUNDS].window);
    let acked: f64 = rounds[1..].iter().map(|round| round.acked).sum();
    first > 0.0 && acked > 0.0 && last - first < SLOW_START_PART * acked
}

/// Returns the rounds before the receive window ends the growth.
fn before_full_window(rounds: &[Round]) -> &[Round] {
    let full = rounds.iter().position(|round| round.window_full);
    &rounds[..full.unwrap_or(rounds.len())]
}

/// Returns the greatest round trip between the ends, s; 0 without a sample.
fn greatest_path_rtt_s(bins: &[Bin], by_echoes: bool) -> f64 {
    let to_receiver = bins.iter().map(|bin| bin.rtt_max_ns).max().unwrap_or(0);
    let to_sender = bins
        .iter()
        .map(|bin| bin.sender.rtt_min_us)
        .max()
        .unwrap_or(0);
    if by_echoes {
        to_receiver as f64 / 1e9 + f64::from(to_sender) / 1e6
    } else {
        to_receiver as f64 / 1e9
    }
}

fn greatest_rtt(rounds: &[Round]) -> f64 {
    let rtts = rounds.iter().map(|round| round.rtt_max_s);
    rtts.fold(0.0, f64::max)
}
