// SPDX-License-Identifier: MIT OR Apache-2.0
//! Laws of congestion controls: which part of a window remains after a loss, and how the window grows from then on.
//! Windows are segments.

use super::window_curve::WindowReduction;
use crate::record::ControlName;

/// Part of the window that CUBIC keeps, and its constant C, segments/s³ (RFC 9438 §4).
const CUBIC_BETA: f64 = 0.7;
const CUBIC_C: f64 = 0.4;
/// Least number of ACKed segments for each segment of growth in Linux's CUBIC.
const CUBIC_COUNT_MIN: f64 = 2.0;
/// Most ACKed segments for each segment of growth before the first loss.
const CUBIC_COUNT_FIRST: f64 = 20.0;
/// BIC (Xu, Harfoush, Rhee, 2004) with the constants of Linux.
const BIC_BETA: f64 = 0.8;
const BIC_LOW_WINDOW: f64 = 14.0;
const BIC_INCREMENT_MAX: f64 = 16.0;
const BIC_B: f64 = 4.0;
const BIC_SMOOTH: f64 = 5.0;
/// Scalable TCP (Kelly, 2003) as Linux has it since 2020.
const SCALABLE_BETA: f64 = 0.875;
const SCALABLE_ACKS: f64 = 100.0;
/// Windows of HighSpeed TCP: W and W1 (RFC 3649 §5).
const HSTCP_LOW: f64 = 38.0;
const HSTCP_HIGH: f64 = 83_000.0;
/// First windows of the rows of RFC 3649's table, and the part of the window that a loss takes.
const HSTCP_ROWS: [(f64, f64); 12] = [
    (38.0, 0.5),
    (118.0, 0.44),
    (221.0, 0.41),
    (347.0, 0.38),
    (495.0, 0.37),
    (663.0, 0.35),
    (851.0, 0.34),
    (1_058.0, 0.33),
    (1_284.0, 0.32),
    (1_529.0, 0.31),
    (1_793.0, 0.3),
    (2_076.0, 0.29),
];
/// Most windows of one step: a repair acknowledges several at once.
const WINDOWS_MAX: f64 = 64.0;
/// Bounds of the part of the window that H-TCP keeps (Leith and Shorten, 2004).
const HTCP_BETA: (f64, f64) = (0.5, 0.8);

/// Memory of a control from one epoch to the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    /// Target of the growth of CUBIC and BIC; 0 for none.
    last_max: f64,
}

/// Window in an epoch, as a control lets it grow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    name: ControlName,
    pub(super) window: f64,
    last_max: f64,
    /// Window at the beginning.
    start: f64,
    /// Window of a Reno that keeps as much as CUBIC (RFC 9438 §4.3).
    friendly: f64,
    /// Part of the window that remained.
    kept: f64,
    rtt_min_s: f64,
    /// Time of the last step after the beginning, s.
    since_s: f64,
}

/// Returns the least and the greatest part of the window that `name` keeps at a reduction.
pub(super) fn kept(name: ControlName, reduction: &WindowReduction) -> (f64, f64) {
    let same = |part| (part, part);
    match name {
        ControlName::Cubic => same(CUBIC_BETA),
        ControlName::Bic if reduction.before > BIC_LOW_WINDOW => same(BIC_BETA),
        ControlName::Scalable => same(SCALABLE_BETA),
        ControlName::Hstcp if !reduction.in_slow_start => same(1.0 - hstcp_row(reduction.before).1),
        ControlName::Htcp => HTCP_BETA,
        _ => same(0.5),
    }
}

impl Memory {
    /// Records a reduction; a timeout resets CUBIC and BIC.
    pub(super) fn reduce(&mut self, name: ControlName, reduction: &WindowReduction) {
        let kept = match name {
            ControlName::Bic => BIC_BETA,
            _ => CUBIC_BETA,
        };
        self.last_max = match reduction.before {
            _ if reduction.timed_out => 0.0,
            before if before < self.last_max - 0.5 => before * (1.0 + kept) / 2.0,
            before => before,
        };
    }
}

impl Growth {
    /// Begins with `window` after a reduction that kept the part `kept` of it.
    pub(super) fn new(
        name: ControlName,
        memory: Memory,
        window: f64,
        kept: f64,
        rtt_min_s: f64,
    ) -> Self {
        Self {
            name,
            window,
            last_max: memory.last_max,
            start: window,
            friendly: window,
            kept,
            rtt_min_s,
            since_s: 0.0,
        }
    }

    /// Lets it grow by `acked` segments that are acknowledged until `since_s` after the beginning.
    pub(super) fn step(&mut self, acked: f64, since_s: f64) {
        let windows = (acked / self.window.max(1.0))
            .ceil()
            .clamp(1.0, WINDOWS_MAX);
        let (from_s, mut left) = (self.since_s, acked);
        for number in 1..=windows as u32 {
            let at_s = from_s + (since_s - from_s) * f64::from(number) / windows;
            let some = left.min(self.window.max(1.0));
            self.window += self.growth(some, at_s);
            left -= some;
        }
        self.since_s = since_s;
    }

    /// Returns the growth by at most a window of ACKed segments.
    fn growth(&mut self, acked: f64, since_s: f64) -> f64 {
        let window = self.window.max(1.0);
        match self.name {
            ControlName::Cubic => self.cubic(acked, since_s),
            ControlName::Bic => acked * self.bic_step() / window,
            ControlName::Scalable => acked / window.min(SCALABLE_ACKS),
            ControlName::Hstcp => acked * hstcp_row(window).0 / window,
            ControlName::Htcp => acked * self.htcp_alpha(since_s) / window,
            ControlName::Reno | ControlName::Bbr | ControlName::Unknown => acked / window,
        }
    }

    /// Returns the growth of CUBIC in Linux's order: towards the curve, or that of Reno if it is faster.
    fn cubic(&mut self, acked: f64, since_s: f64) -> f64 {
        let origin = self.last_max.max(self.start);
        let k = ((origin - self.start) / CUBIC_C).cbrt();
        let target = origin + CUBIC_C * (since_s + self.rtt_min_s - k).powi(3);
        let slope = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
        self.friendly += acked * slope / self.window.max(1.0);
        let more = (target - self.window).max(self.friendly - self.window);
        let count = if more > 0.0 {
            self.window / more
        } else {
            100.0 * self.window
        };
        let most = if self.last_max > 0.0 {
            f64::INFINITY
        } else {
            CUBIC_COUNT_FIRST
        };
        acked / count.min(most).max(CUBIC_COUNT_MIN)
    }

    /// Returns the growth of BIC a round trip: binary search below the last maximum, slow above it and then faster.
    fn bic_step(&self) -> f64 {
        let distance = self.last_max - self.window;
        match () {
            () if self.window <= BIC_LOW_WINDOW => 1.0,
            () if distance >= BIC_B * (BIC_INCREMENT_MAX + 1.0) => BIC_INCREMENT_MAX,
            () if distance >= 2.0 * BIC_B => (distance / BIC_B).floor(),
            () if distance > -BIC_B => 1.0 / BIC_SMOOTH,
            () if distance > -BIC_INCREMENT_MAX * (BIC_B - 1.0) => -distance / (BIC_B - 1.0),
            () => BIC_INCREMENT_MAX,
        }
    }

    /// Returns the growth of H-TCP a round trip, with its scaling by the round trip.
    fn htcp_alpha(&self, since_s: f64) -> f64 {
        let beyond = (since_s - 1.0).max(0.0);
        let factor = 1.0 + 10.0 * beyond + (beyond / 2.0).powi(2);
        let scaled = factor * (self.rtt_min_s / 0.1).clamp(0.1, 2.0);
        2.0 * (1.0 - self.kept.clamp(HTCP_BETA.0, HTCP_BETA.1)) * scaled.max(1.0)
    }
}

/// Returns the growth of HighSpeed TCP a round trip, and the part of the window that it gives up, by the RFC's table.
fn hstcp_row(window: f64) -> (f64, f64) {
    let above = HSTCP_ROWS.iter().take_while(|(from, _)| *from <= window);
    let row = above.count().max(1);
    if row < HSTCP_ROWS.len() {
        (row as f64, HSTCP_ROWS[row - 1].1)
    } else {
        hstcp_formula(window)
    }
}

/// Returns the same by the formulas of RFC 3649 §5.
fn hstcp_formula(window: f64) -> (f64, f64) {
    let part = (window / HSTCP_LOW).ln() / (HSTCP_HIGH / HSTCP_LOW).ln();
    let b = 0.5 - 0.4 * part.clamp(0.0, 1.0);
    let a = window * window * 0.078 / window.powf(1.2) * 2.0 * b / (2.0 - b);
    (a.floor().max(1.0), b)
}
