// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each leg carries alone, with the congestion control that suits it.

use super::{
    super::{
        estimate::{Estimate, Method, estimate},
        simulated,
    },
    config::Config,
    sites::Sites,
};
use anyhow::Result;
use longhaul_tcpsim::formulas::{
    Control, Path,
    chain::{Chain, Leg, Network},
    streams::{self, Streams},
};
use longhaul_units::Bytes;

/// One leg with the control that suits it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suited {
    pub(super) path: Path,
    pub(super) single: Estimate,
    /// With as many streams as were asked for.
    pub(super) together: Streams,
    /// How many would fill the line.
    pub(super) needed: u32,
}

/// All legs of a set of sites.
#[derive(Debug)]
pub(super) struct Legs {
    /// Row: from, column: to.
    pub(super) all: Vec<Vec<Option<Suited>>>,
    /// Too many legs to simulate each: formulas had to do.
    pub(super) too_many: bool,
}

/// Runs of simulated TCP, a fifth of a second each.
const RUNS_MAX: usize = 100;

impl Legs {
    pub(super) fn of(sites: &Sites, config: &Config) -> Result<Self> {
        let simulable = config
            .controls
            .iter()
            .filter(|control| simulated::can(**control))
            .count();
        let lossy = lossy(sites) * simulable;
        let too_many = config.method == Method::Auto && lossy > RUNS_MAX;
        let method = if too_many {
            Method::Formula
        } else {
            config.method
        };
        let numbers = 0..sites.len();
        let leg = |from, to| {
            let path = sites.path(from, to);
            path.map(|path| suited(path, config, method)).transpose()
        };
        let row = |from| {
            numbers
                .clone()
                .map(|to| Ok(leg(from, to)?.flatten()))
                .collect()
        };
        Ok(Self {
            all: numbers.clone().map(row).collect::<Result<_>>()?,
            too_many,
        })
    }

    pub(super) fn network(&self, sites: &Sites) -> Network {
        let leg = |suited: &Option<Suited>| {
            suited.map(|suited| Leg {
                bps: suited.together.goodput_bps,
                rtt_s: suited.path.rtt_s(),
            })
        };
        let row = |row: &Vec<Option<Suited>>| row.iter().map(leg).collect();
        Network {
            legs: self.all.iter().map(row).collect(),
            forwards: sites.forwards(),
        }
    }
}

fn lossy(sites: &Sites) -> usize {
    let pairs = (0..sites.len()).flat_map(|from| (0..sites.len()).map(move |to| (from, to)));
    let paths = pairs.filter_map(|(from, to)| sites.path(from, to));
    paths.filter(|path| path.loss > 0.0).count()
}

/// The fastest of the controls; of equals the first. `None`: none of them has a figure.
fn suited(mut path: Path, config: &Config, method: Method) -> Result<Option<Suited>> {
    path.window = config
        .window
        .map_or(path.window, |window: Bytes| window.min(path.window));
    let mut fastest: Option<Estimate> = None;
    for &control in &config.controls {
        let found = estimate(control, &path, method_of(control, method), None)?;
        if let Some(found) = found
            && fastest.is_none_or(|best| found.goodput_bps > MARGIN * best.goodput_bps)
        {
            fastest = Some(found);
        }
    }
    Ok(fastest.map(|single| {
        let prediction = single.prediction(&path);
        Suited {
            path,
            single,
            together: streams::of(config.streams, &prediction, &path),
            needed: streams::needed(&prediction, &path),
        }
    }))
}

/// A control that comes later in the list must be worth it.
const MARGIN: f64 = 1.05;

/// What can't be simulated has its formula, whatever was asked for others.
fn method_of(control: Control, method: Method) -> Method {
    match simulated::can(control) {
        true => method,
        false => Method::Formula,
    }
}

/// What was found.
pub(super) struct Plan<'a> {
    pub(super) sites: &'a Sites,
    pub(super) legs: &'a Legs,
    /// For 0, 1, … relays at most.
    pub(super) by_relays: Vec<Option<Chain>>,
    pub(super) best: Chain,
}
