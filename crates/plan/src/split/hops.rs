// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimates of each hop alone, with the fastest congestion control.

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
    chain::{Chain, Hop, Network},
    streams::{self, Streams},
};
use longhaul_units::Bytes;

/// Estimate of one hop with the fastest congestion control.
#[derive(Debug, Clone, Copy)]
pub(super) struct HopEstimate {
    pub(super) path: Path,
    pub(super) single: Estimate,
    /// Estimate for the configured number of streams.
    pub(super) all_streams: Streams,
    /// Number of streams that would fill the link.
    pub(super) streams_to_fill: u32,
}

/// Estimates of all hops between the sites.
#[derive(Debug)]
pub(super) struct Hops {
    /// Matrix of estimates: rows are sources, columns destinations.
    pub(super) all: Vec<Vec<Option<HopEstimate>>>,
    /// Whether there were too many hops to simulate each, so that formulas were used.
    pub(super) simulation_skipped: bool,
}

/// Maximum number of simulations of TCP. Each takes a fifth of a second.
const SIMULATIONS_MAX: usize = 100;

impl Hops {
    pub(super) fn of(sites: &Sites, config: &Config) -> Result<Self> {
        let simulable = config
            .controls
            .iter()
            .filter(|control| simulated::is_supported(**control))
            .count();
        let lossy = count_lossy(sites) * simulable;
        let simulation_skipped = config.method == Method::Auto && lossy > SIMULATIONS_MAX;
        let method = if simulation_skipped {
            Method::Formula
        } else {
            config.method
        };
        let numbers = 0..sites.len();
        let hop = |from, to| {
            let path = sites.path(from, to);
            path.map(|path| estimate_hop(path, config, method))
                .transpose()
        };
        let row = |from| {
            numbers
                .clone()
                .map(|to| Ok(hop(from, to)?.flatten()))
                .collect()
        };
        Ok(Self {
            all: numbers.clone().map(row).collect::<Result<_>>()?,
            simulation_skipped,
        })
    }

    pub(super) fn network(&self, sites: &Sites) -> Network {
        let hop = |estimate: &Option<HopEstimate>| {
            estimate.map(|estimate| Hop {
                bps: estimate.all_streams.goodput_bps,
                rtt_s: estimate.path.rtt_s(),
            })
        };
        let row = |row: &Vec<Option<HopEstimate>>| row.iter().map(hop).collect();
        Network {
            hops: self.all.iter().map(row).collect(),
            forwards: sites.forwarding_rates_bps(),
        }
    }
}

fn count_lossy(sites: &Sites) -> usize {
    let pairs = (0..sites.len()).flat_map(|from| (0..sites.len()).map(move |to| (from, to)));
    let paths = pairs.filter_map(|(from, to)| sites.path(from, to));
    paths.filter(|path| path.loss > 0.0).count()
}

/// Estimates a hop with the fastest of the controls, or the first of equal ones; `None` if none has a figure.
fn estimate_hop(mut path: Path, config: &Config, method: Method) -> Result<Option<HopEstimate>> {
    path.window = config
        .window
        .map_or(path.window, |window: Bytes| window.min(path.window));
    let mut fastest: Option<Estimate> = None;
    for &control in &config.controls {
        let found = estimate(control, &path, method_of(control, method), None)?;
        if let Some(found) = found
            && fastest.is_none_or(|best| found.goodput_bps > GAIN_MIN * best.goodput_bps)
        {
            fastest = Some(found);
        }
    }
    Ok(fastest.map(|single| {
        let prediction = single.prediction(&path);
        HopEstimate {
            path,
            single,
            all_streams: streams::of(config.streams, &prediction, &path),
            streams_to_fill: streams::needed(&prediction, &path),
        }
    }))
}

/// Factor of goodput by which a control must exceed an earlier one of the list.
const GAIN_MIN: f64 = 1.05;

/// Returns the method for a control: the formula if it can't be simulated.
fn method_of(control: Control, method: Method) -> Method {
    if simulated::is_supported(control) {
        method
    } else {
        Method::Formula
    }
}

/// Plan of relays.
pub(super) struct Plan<'a> {
    pub(super) sites: &'a Sites,
    pub(super) hops: &'a Hops,
    /// Best chains with at most 0, 1, … relays.
    pub(super) by_relays: Vec<Option<Chain>>,
    pub(super) best: Chain,
}
