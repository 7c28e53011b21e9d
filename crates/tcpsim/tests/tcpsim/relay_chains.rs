// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best chain of relays against an exhaustive search.

use longhaul_tcpsim::formulas::{
    chain::{self, Chain, Hop, Network},
    relays::{self, RelayOverhead},
};
use proptest::prelude::*;

/// Networks of 2 to 6 sites. Rates have few values, so that ties are common.
fn networks() -> impl Strategy<Value = Network> {
    let hop = prop_oneof![
        1 => Just(None),
        4 => (1..6_u32, 1..20_u32).prop_map(|(bps, ms)| Some(Hop {
            bps: f64::from(bps) * 1e8,
            rtt_s: f64::from(ms) / 1e3,
        })),
    ];
    let forwards = prop_oneof![
        1 => Just(None),
        1 => Just(Some(2.5e8)),
        4 => Just(Some(f64::INFINITY)),
    ];
    (2..7_usize).prop_flat_map(move |sites| {
        let row = prop::collection::vec(hop.clone(), sites);
        let hops = prop::collection::vec(row, sites);
        let forwards = prop::collection::vec(forwards.clone(), sites);
        (hops, forwards).prop_map(|(hops, forwards)| Network { hops, forwards })
    })
}

/// Returns the chain over `sites` with its `T_n`; `None` if a hop is missing.
fn chain_over(network: &Network, sites: &[usize], overhead: RelayOverhead) -> Option<Chain> {
    let hops: Option<Vec<Hop>> = sites
        .windows(2)
        .map(|two| network.hops[two[0]][two[1]])
        .collect();
    let hops = hops?;
    let relays = sites.get(1..sites.len().checked_sub(1)?)?;
    let passes = relays
        .iter()
        .map(|&site| network.forwards[site].unwrap_or(0.0));
    let rates: Vec<f64> = hops.iter().map(|hop| hop.bps).collect();
    let bottleneck_bps = rates
        .iter()
        .copied()
        .chain(passes)
        .fold(f64::INFINITY, f64::min);
    let limited: Vec<f64> = rates.iter().map(|bps| bps.min(bottleneck_bps)).collect();
    Some(Chain {
        sites: sites.to_vec(),
        bottleneck_bps,
        throughput_bps: relays::chain_throughput_bps(&limited, overhead),
        rtt_s: hops.iter().map(|hop| hop.rtt_s).sum(),
    })
}

/// Returns each simple path from site 0 to the last.
fn all_chains(network: &Network, overhead: RelayOverhead) -> Vec<Chain> {
    let mut found = Vec::new();
    extend_chain(network, &mut vec![0], overhead, &mut found);
    found
}

/// Adds to `found` each chain that begins with `sites`.
fn extend_chain(
    network: &Network,
    sites: &mut Vec<usize>,
    overhead: RelayOverhead,
    found: &mut Vec<Chain>,
) {
    let here = sites[sites.len() - 1];
    if here == network.hops.len() - 1 {
        found.extend(chain_over(network, sites, overhead));
        return;
    }
    for next in 1..network.hops.len() {
        if !sites.contains(&next) && network.hops[here][next].is_some() {
            sites.push(next);
            extend_chain(network, sites, overhead, found);
            sites.pop();
        }
    }
}

proptest! {
    #[test]
    fn best_chain_matches_an_exhaustive_search(
        network in networks(), relays_max in 0..6_usize, per_relay in 0..3_u32, share in 0..3_u32,
    ) {
        let overhead = RelayOverhead {
            per_relay_bps: f64::from(per_relay) * 4e7,
            share: f64::from(share) * 0.1,
        };
        let last = network.hops.len() - 1;
        let all: Vec<Chain> = all_chains(&network, overhead)
            .into_iter()
            .filter(|chain| chain.relays() <= relays_max && chain.bottleneck_bps > 0.0)
            .collect();
        let found = chain::best(&network, 0, last, relays_max, overhead);
        prop_assert_eq!(found.is_some(), !all.is_empty());
        if let Some(found) = found {
            let most = all.iter().map(|chain| chain.throughput_bps).fold(0.0, f64::max);
            prop_assert!((found.throughput_bps - most).abs() <= most * 1e-9, "{:?} {}", found, most);
            // The chain exists and is as good as it says. No chain as wide with as few relays is shorter.
            let recomputed = chain_over(&network, &found.sites, overhead).unwrap();
            prop_assert!((recomputed.throughput_bps - found.throughput_bps).abs() <= most * 1e-9);
            prop_assert!((recomputed.rtt_s - found.rtt_s).abs() < 1e-9);
            for other in &all {
                let as_good = other.bottleneck_bps >= found.bottleneck_bps
                    && other.relays() <= found.relays();
                prop_assert!(!as_good || other.rtt_s >= found.rtt_s - 1e-9, "{:?} {:?}", other, found);
            }
        }
    }

    #[test]
    fn more_relays_never_lower_the_bottleneck(network in networks()) {
        let last = network.hops.len() - 1;
        let chains = chain::by_relays(&network, 0, last, 5, RelayOverhead::default());
        let widths: Vec<f64> = chains.iter().map(|c| c.as_ref().map_or(0.0, |c| c.bottleneck_bps)).collect();
        prop_assert_eq!(widths.len(), 6);
        prop_assert!(widths.windows(2).all(|two| two[1] >= two[0]), "{:?}", widths);
    }
}
