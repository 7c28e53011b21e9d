// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distance of a sender's window from the law of a control, in standard errors of what a capture shows.
//!
//! Each reduction of the window is a sample, and each growth between two reductions. The growth is computed from the
//! window after the reduction and from the data that ACKs report, so an error does not continue from epoch to epoch.
//! One sample adds little at most: losses within a repair, and senders that pause, are outliers.

use super::laws::{Growth, Memory, kept};
use super::window_curve::{Epoch, Round, WindowReduction};
use crate::record::ControlName;

/// Least number of rounds from which growth is known.
pub(super) const GROWTH_ROUNDS_MIN: usize = 5;
/// Least number of rounds before the first loss, and least factor of the window in them.
const FIRST_ROUNDS_MIN: usize = 15;
const FIRST_GROWTH: f64 = 1.2;
/// Standard error of a window: segments, and a part of the window.
const WINDOW_ERROR: (f64, f64) = (0.7, 0.02);
/// Standard error of growth: segments, and a part of the growth.
const GROWTH_ERROR: (f64, f64) = (0.8, 0.1);
/// Distance up to which a law explains a window, standard errors.
const EXPLAINED: f64 = 2.0;
/// Most that one sample adds, and most that an uncertain one adds.
const COST_MAX: f64 = 9.0;
const UNCERTAIN_COST_MAX: f64 = 1.0;
/// Cost of a part of the window that H-TCP has chosen, and the least such part.
const CHOSEN_COST: f64 = 1.3;
const CHOSEN_PART: f64 = 0.52;
/// Most reductions in one long repair.
const REPEATED_MAX: usize = 3;

/// Distance between the windows of a flow and those of a control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fit {
    pub(super) name: ControlName,
    /// Certain reductions.
    pub(super) reductions: u32,
    /// Reductions after which the window is what the control keeps.
    pub(super) explained: u32,
    /// Times of growth.
    pub(super) growths: u32,
    /// Sum of squared distances in standard errors, each bounded.
    pub(super) cost: f64,
    /// Sum of the same for growth alone.
    pub(super) growth_cost: f64,
}

impl Fit {
    /// Compares the growth `first` before all losses, and `epochs`, with the control `name` on a path with this least
    /// round trip.
    pub(super) fn of(name: ControlName, first: &[Round], epochs: &[Epoch<'_>], rtt_s: f64) -> Self {
        let (mut fit, mut memory) = (Self::new(name), Memory::default());
        if first.len() >= FIRST_ROUNDS_MIN && has_grown(first) {
            fit.add_growth(
                first,
                Growth::new(name, memory, first[0].window, 0.5, rtt_s),
            );
        }
        for epoch in epochs {
            let kept = fit.add_reduction(epoch, &mut memory, rtt_s);
            let rounds = epoch.growth();
            if rounds.len() >= GROWTH_ROUNDS_MIN {
                fit.add_growth(
                    rounds,
                    Growth::new(name, memory, epoch.start(), kept, rtt_s),
                );
            }
        }
        fit
    }

    fn new(name: ControlName) -> Self {
        Self {
            name,
            reductions: 0,
            explained: 0,
            growths: 0,
            cost: 0.0,
            growth_cost: 0.0,
        }
    }

    /// Returns the number of samples.
    pub(super) fn samples(&self) -> u32 {
        self.reductions + self.growths
    }

    /// Returns the mean squared distance.
    pub(super) fn mean_cost(&self) -> f64 {
        self.cost / f64::from(self.samples().max(1))
    }

    /// Adds the reduction at the beginning of an epoch, and returns the part of the window that remained.
    fn add_reduction(&mut self, epoch: &Epoch<'_>, memory: &mut Memory, rtt_s: f64) -> f64 {
        let (distance, kept) = self.nearest_reduction(epoch, memory, rtt_s);
        if epoch.is_governed() {
            let is_chosen = self.name == ControlName::Htcp && kept > CHOSEN_PART;
            let cost = distance.powi(2) + if is_chosen { CHOSEN_COST } else { 0.0 };
            let (certain, most) = if epoch.is_certain {
                (1, COST_MAX)
            } else {
                (0, UNCERTAIN_COST_MAX)
            };
            self.reductions += certain;
            self.explained += certain * u32::from(distance < EXPLAINED);
            self.cost += cost.min(most);
        }
        kept
    }

    /// Returns the distance from the window after a reduction, and the part that remained. Where there may have been
    /// several, it is that of the nearest number.
    fn nearest_reduction(&self, epoch: &Epoch<'_>, memory: &mut Memory, rtt_s: f64) -> (f64, f64) {
        let times = if epoch.is_certain { 1 } else { REPEATED_MAX };
        let (mut reduction, mut next) = (epoch.reduction, *memory);
        let mut nearest = (f64::INFINITY, 0.5);
        for _ in 0..times {
            next.reduce(self.name, &reduction);
            let (distance, kept) = self.distance(&reduction, next, epoch, rtt_s);
            if distance < nearest.0 {
                (nearest, *memory) = ((distance, kept), next);
            }
            reduction.before *= kept;
        }
        nearest
    }

    /// Returns how far the window is from what a reduction leaves, in standard errors, and the part that it leaves. The
    /// first round after a repair may have grown already.
    fn distance(
        &self,
        reduction: &WindowReduction,
        memory: Memory,
        epoch: &Epoch<'_>,
        rtt_s: f64,
    ) -> (f64, f64) {
        let (least, most) = kept(self.name, reduction);
        let part = (epoch.start() / reduction.before).clamp(least, most);
        let low = match self.name {
            ControlName::Hstcp | ControlName::Scalable => (part * reduction.before).ceil(),
            _ => (part * reduction.before).floor(),
        };
        let mut growth = Growth::new(self.name, memory, low.max(1.0), part, rtt_s);
        let round_s = epoch.rounds[1].at_s - epoch.rounds[0].at_s;
        growth.step(low * (round_s / rtt_s).max(1.0).floor(), 0.0);
        let high = growth.window.max(low + 1.0);
        let away = (low - epoch.start()).max(epoch.start() - high).max(0.0);
        (
            away / (WINDOW_ERROR.0 + WINDOW_ERROR.1 * reduction.before),
            part,
        )
    }

    fn add_growth(&mut self, rounds: &[Round], mut growth: Growth) {
        let first = rounds[0];
        let (mut distance, mut count, mut last) = (0.0, 0.0, first.window);
        for round in &rounds[1..] {
            growth.step(round.acked, round.at_s - first.at_s);
            if round.window > 0.0 {
                distance += (growth.window - round.window).abs();
                (count, last) = (count + 1.0, round.window);
            }
        }
        let grown = last.max(growth.window) - first.window;
        let error = GROWTH_ERROR.0 + GROWTH_ERROR.1 * grown.abs();
        let cost = (distance / f64::max(count, 1.0) / error)
            .powi(2)
            .min(COST_MAX);
        self.growths += 1;
        self.growth_cost += cost;
        self.cost += cost;
    }
}

fn has_grown(rounds: &[Round]) -> bool {
    let last = rounds.iter().rev().find(|round| round.window > 0.0);
    last.is_some_and(|last| last.window > FIRST_GROWTH * rounds[0].window)
}
