// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement of relays: the chain of sites whose slowest hop is fastest.

use super::relays::RelayOverhead;

/// Path between two sites.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    /// Payload rate of the hop alone, bits a second.
    pub bps: f64,
    /// Round trip, seconds.
    pub rtt_s: f64,
}

/// Sites by number, and the hops between them.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// Hop from each site (row) to each other site (column). `None` is no path, or one not measured.
    pub hops: Vec<Vec<Option<Hop>>>,
    /// Highest rate that a relay at each site forwards, bits a second. `None` is a site without relay.
    pub forwards: Vec<Option<f64>>,
}

/// Path over relays.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Sites from the sender to the receiver, both included.
    pub sites: Vec<usize>,
    /// Rate of the slowest hop or relay, bits a second.
    pub bottleneck_bps: f64,
    /// `T_n`: the bottleneck's rate less the overhead of the relays, bits a second.
    pub throughput_bps: f64,
    /// Sum of the hops' round trips, seconds.
    pub rtt_s: f64,
}

impl Chain {
    /// Returns the number of relays.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.sites.len() - 2
    }
}

/// Largest number of relays in one chain.
pub const RELAYS_MAX: usize = 64;

/// Returns the best chain of at most 0, 1, … `relays_max` relays.
///
/// The best chain has the fastest slowest hop. Among equals it has the fewest relays, then the shortest round
/// trip. An entry is `None` where no chain has so few relays.
///
/// # Panics
/// If `from` or `to` is no site.
#[must_use]
pub fn by_relays(
    network: &Network,
    from: usize,
    to: usize,
    relays_max: usize,
    overhead: RelayOverhead,
) -> Vec<Option<Chain>> {
    let hops_max = relays_max.min(RELAYS_MAX) + 1;
    let widest = widest_rates(network, from, hops_max);
    let mut chains = Vec::with_capacity(hops_max);
    let mut before = 0.0;
    for (hops, widths) in (1..).zip(&widest) {
        let width = widths[to];
        if width > before {
            chains.push(find_shortest(network, [from, to], hops, width, overhead));
        } else {
            chains.push(chains.last().cloned().flatten());
        }
        before = width;
    }
    chains
}

/// Returns the chain of at most `relays_max` relays with the highest throughput after overhead.
#[must_use]
pub fn best(
    network: &Network,
    from: usize,
    to: usize,
    relays_max: usize,
    overhead: RelayOverhead,
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

/// Returns the rate of the slowest hop on the best path from `from`, by number of hops from 1 on and by site.
fn widest_rates(network: &Network, from: usize, hops_max: usize) -> Vec<Vec<f64>> {
    let sites = network.hops.len();
    let mut all: Vec<Vec<f64>> = Vec::with_capacity(hops_max);
    let mut widths = vec![0.0; sites];
    widths[from] = f64::INFINITY;
    for _ in 0..hops_max {
        let mut next = widths.clone();
        for (via, &width) in widths.iter().enumerate() {
            let passes = width.min(forwarding_rate(network, from, via));
            for (to, hop) in network.hops[via].iter().enumerate() {
                let rate = hop.map_or(0.0, |hop| hop.bps.min(passes));
                next[to] = f64::max(next[to], rate);
            }
        }
        widths.clone_from(&next);
        all.push(next);
    }
    all
}

/// Returns the rate that `via` forwards on a path from `from`. The sender itself has no limit.
fn forwarding_rate(network: &Network, from: usize, via: usize) -> f64 {
    if via == from {
        f64::INFINITY
    } else {
        network.forwards[via].unwrap_or(0.0)
    }
}

/// Returns the chain with the shortest round trip among those of at most `hops` hops and at least `width` bits
/// a second.
fn find_shortest(
    network: &Network,
    [from, to]: [usize; 2],
    hops: usize,
    width: f64,
    overhead: RelayOverhead,
) -> Option<Chain> {
    let sites = network.hops.len();
    let mut rtt_s = vec![f64::INFINITY; sites];
    rtt_s[from] = 0.0;
    // Predecessor of each site by number of hops, where that hop made the path shorter.
    let mut predecessors: Vec<Vec<Option<usize>>> = Vec::with_capacity(hops);
    for _ in 0..hops {
        let before = rtt_s.clone();
        let mut previous = vec![None; sites];
        for via in (0..sites).filter(|&via| forwarding_rate(network, from, via) >= width) {
            for (next, hop) in network.hops[via].iter().enumerate() {
                let Some(hop) = hop.filter(|hop| hop.bps >= width) else {
                    continue;
                };
                if before[via] + hop.rtt_s < rtt_s[next] {
                    rtt_s[next] = before[via] + hop.rtt_s;
                    previous[next] = Some(via);
                }
            }
        }
        predecessors.push(previous);
    }
    let sites = trace_path(&predecessors, from, to)?;
    Some(Chain {
        throughput_bps: overhead.subtract_from(width, sites.len() - 2),
        bottleneck_bps: width,
        rtt_s: rtt_s[to],
        sites,
    })
}

/// Returns the sites from `from` to `to` by their predecessors.
fn trace_path(predecessors: &[Vec<Option<usize>>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut sites = vec![to];
    let mut site = to;
    for previous in predecessors.iter().rev() {
        if let Some(via) = previous[site] {
            sites.push(via);
            site = via;
        }
    }
    sites.reverse();
    (site == from && sites.len() > 1).then_some(sites)
}
