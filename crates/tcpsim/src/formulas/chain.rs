// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where relays belong: the chain of sites whose slowest leg is fastest.

use super::relays::Overhead;

/// A leg between two sites.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// What it carries alone, bits a second of payload.
    pub bps: f64,
    /// Its round trip, seconds.
    pub rtt_s: f64,
}

/// Sites by number, and what is known of the ways between them.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// Row: from, column: to. `None`: no way, or not measured.
    pub legs: Vec<Vec<Option<Leg>>>,
    /// What a relay at each site forwards at most, bits a second; `None`: nothing relays there.
    pub forwards: Vec<Option<f64>>,
}

/// A way over relays.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Both ends included, from the sender on.
    pub sites: Vec<usize>,
    /// Of its slowest leg or relay, bits a second.
    pub bottleneck_bps: f64,
    /// `T_n`: that less the relays' overhead.
    pub throughput_bps: f64,
    /// Round trips of its legs together, seconds.
    pub rtt_s: f64,
}

impl Chain {
    /// Relays on it.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.sites.len() - 2
    }
}

/// Relays in one chain at most.
pub const RELAYS_MAX: usize = 64;

/// For 0, 1, … `relays_max` relays the best chain with at most so many: of those with the fastest
/// slowest leg the one with the fewest relays, then the shortest. `None` where no chain is so short.
///
/// # Panics
/// If `from` or `to` is no site.
#[must_use]
pub fn by_relays(
    network: &Network,
    from: usize,
    to: usize,
    relays_max: usize,
    overhead: Overhead,
) -> Vec<Option<Chain>> {
    let legs_max = relays_max.min(RELAYS_MAX) + 1;
    let widest = widest(network, from, legs_max);
    let mut chains = Vec::with_capacity(legs_max);
    let mut before = 0.0;
    for (legs, widths) in (1..).zip(&widest) {
        let width = widths[to];
        match width > before {
            true => chains.push(shortest(network, [from, to], legs, width, overhead)),
            false => chains.push(chains.last().cloned().flatten()),
        }
        before = width;
    }
    chains
}

/// The chain with the highest throughput after overhead, with at most `relays_max` relays.
#[must_use]
pub fn best(
    network: &Network,
    from: usize,
    to: usize,
    relays_max: usize,
    overhead: Overhead,
) -> Option<Chain> {
    let chains = by_relays(network, from, to, relays_max, overhead);
    let mut best: Option<Chain> = None;
    for chain in chains.into_iter().flatten() {
        if best
            .as_ref()
            .is_none_or(|best| chain.throughput_bps > best.throughput_bps)
        {
            best = Some(chain);
        }
    }
    best
}

/// By number of legs from 1 on and by site: the rate of the slowest leg on the best way there.
fn widest(network: &Network, from: usize, legs_max: usize) -> Vec<Vec<f64>> {
    let sites = network.legs.len();
    let mut all: Vec<Vec<f64>> = Vec::with_capacity(legs_max);
    let mut here = vec![0.0; sites];
    here[from] = f64::INFINITY;
    for _ in 0..legs_max {
        let mut next = here.clone();
        for (via, &width) in here.iter().enumerate() {
            let passes = width.min(through(network, from, via));
            for (to, leg) in network.legs[via].iter().enumerate() {
                let there = leg.map_or(0.0, |leg| leg.bps.min(passes));
                next[to] = f64::max(next[to], there);
            }
        }
        here.clone_from(&next);
        all.push(next);
    }
    all
}

/// What may pass `via` on a way from `from`.
fn through(network: &Network, from: usize, via: usize) -> f64 {
    match via == from {
        true => f64::INFINITY,
        false => network.forwards[via].unwrap_or(0.0),
    }
}

/// The chain of at most `legs` legs with the shortest round trips of those as wide as `width`.
fn shortest(
    network: &Network,
    [from, to]: [usize; 2],
    legs: usize,
    width: f64,
    overhead: Overhead,
) -> Option<Chain> {
    let sites = network.legs.len();
    let mut rtt_s = vec![f64::INFINITY; sites];
    rtt_s[from] = 0.0;
    // By number of legs: from where each site was reached then, if that was shorter.
    let mut reached: Vec<Vec<Option<usize>>> = Vec::with_capacity(legs);
    for _ in 0..legs {
        let before = rtt_s.clone();
        let mut by = vec![None; sites];
        for via in (0..sites).filter(|&via| through(network, from, via) >= width) {
            for (there, leg) in network.legs[via].iter().enumerate() {
                let Some(leg) = leg.filter(|leg| leg.bps >= width) else {
                    continue;
                };
                if before[via] + leg.rtt_s < rtt_s[there] {
                    rtt_s[there] = before[via] + leg.rtt_s;
                    by[there] = Some(via);
                }
            }
        }
        reached.push(by);
    }
    let sites = walk_back(&reached, from, to)?;
    Some(Chain {
        throughput_bps: overhead.remains(width, sites.len() - 2),
        bottleneck_bps: width,
        rtt_s: rtt_s[to],
        sites,
    })
}

fn walk_back(reached: &[Vec<Option<usize>>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut sites = vec![to];
    let mut here = to;
    for by in reached.iter().rev() {
        if let Some(via) = by[here] {
            sites.push(via);
            here = via;
        }
    }
    sites.reverse();
    (here == from && sites.len() > 1).then_some(sites)
}
