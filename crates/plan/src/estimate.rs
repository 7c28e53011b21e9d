// SPDX-License-Identifier: MIT OR Apache-2.0
//! Goodput of a congestion control on a path: by formula, or by simulation where that is more accurate.

use super::simulated::{self, Span};
use anyhow::Result;
use longhaul_tcpsim::formulas::{
    Control, Path,
    prediction::{self, LimitingFactor, Prediction},
};
use longhaul_units::Time;
use serde::Serialize;

/// Method of estimation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Method {
    /// Simulation if the path loses packets, for which closed forms are inaccurate; else the formula.
    #[default]
    Auto,
    Formula,
    /// Simulated TCP.
    Simulate,
}

/// Source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    Formula,
    Simulation,
}

/// Estimated goodput of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub(super) control: Control,
    /// Payload, bits a second.
    pub(super) goodput_bps: f64,
    pub(super) limit: LimitingFactor,
    pub(super) source: Source,
    /// Prediction of the formula, if there is one.
    pub(super) formula: Option<Prediction>,
}

impl Estimate {
    /// Converts the estimate to a prediction, for calculations that take one.
    pub(super) fn prediction(&self, path: &Path) -> Prediction {
        let by_formula = self.formula.unwrap_or(Prediction {
            goodput_bps: self.goodput_bps,
            window_packets: 0.0,
            limit: self.limit,
            formula: prediction::SAWTOOTH,
            outside: None,
            recovery: None,
        });
        Prediction {
            goodput_bps: self.goodput_bps,
            window_packets: self.goodput_bps * path.rtt_s() / path.packet_bits(),
            limit: self.limit,
            ..by_formula
        }
    }

    pub(super) fn recovery(&self) -> Option<Time> {
        self.formula.and_then(|formula| formula.recovery)
    }
}

/// Estimates the goodput; `None` if the method supports neither formula nor simulation of the congestion control.
pub(super) fn estimate(
    control: Control,
    path: &Path,
    method: Method,
    span: Option<Span>,
) -> Result<Option<Estimate>> {
    let formula = prediction::predict(control, path);
    let expected = formula.map_or(path.payload_bps(), |known| known.goodput_bps);
    let span = span.or_else(|| simulated::steady_span(path, expected));
    match span.filter(|_| is_simulated(control, path, method, formula.as_ref())) {
        Some(span) => simulate(control, path, span, formula).map(Some),
        None => Ok(formula
            .filter(|_| method != Method::Simulate)
            .map(from_formula(control))),
    }
}

fn is_simulated(
    control: Control,
    path: &Path,
    method: Method,
    formula: Option<&Prediction>,
) -> bool {
    let better = path.loss > 0.0 || formula.is_none();
    simulated::is_supported(control)
        && (method == Method::Simulate || method == Method::Auto && better)
}

fn from_formula(control: Control) -> impl Fn(Prediction) -> Estimate {
    move |formula| Estimate {
        control,
        goodput_bps: formula.goodput_bps,
        limit: formula.limit,
        source: Source::Formula,
        formula: Some(formula),
    }
}

fn simulate(
    control: Control,
    path: &Path,
    span: Span,
    formula: Option<Prediction>,
) -> Result<Estimate> {
    let goodput_bps = simulated::goodput_bps(control, path, 1, span, SEED)?;
    Ok(Estimate {
        control,
        goodput_bps,
        limit: limit(goodput_bps, path),
        source: Source::Simulation,
        formula,
    })
}

/// Fixed seed, so that figures are reproducible.
const SEED: u64 = 1;

/// Derives the limit from the bound that the goodput is close to.
fn limit(goodput_bps: f64, path: &Path) -> LimitingFactor {
    let window_bps = path.goodput_bps(path.window_packets());
    if goodput_bps < 0.9 * window_bps.min(path.payload_bps()) {
        LimitingFactor::Loss
    } else if window_bps < path.payload_bps() {
        LimitingFactor::Window
    } else {
        LimitingFactor::Rate
    }
}

/// Formats a rate for text.
pub(crate) fn format_rate(bps: f64) -> String {
    longhaul_units::BitRate::measured(bps as u64)
}
