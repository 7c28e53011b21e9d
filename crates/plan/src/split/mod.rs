// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan split`: finds the best relays among many sites, and the gain of each.

mod args;
mod config;
mod hops;
mod report;
pub(super) mod sites;

pub(super) use args::Args;

use anyhow::Result;
use config::Config;
use hops::{Hops, Plan};
use longhaul_command::{exit::Refusal, outln};
use longhaul_tcpsim::formulas::chain;
use sites::Sites;

/// Runs the command.
pub(super) fn run(config: &Config) -> Result<()> {
    if config.from == config.to {
        return Err(Refusal::usage(format!(
            "--from {0} --to {0}: want two different sites",
            config.from
        )));
    }
    let sites = Sites::read(&config.sites)?;
    let ends = [
        site(&sites, "--from", &config.from)?,
        site(&sites, "--to", &config.to)?,
    ];
    let hops = Hops::of(&sites, config)?;
    let [from, to] = ends;
    let network = hops.network(&sites);
    let by_relays = chain::by_relays(&network, from, to, config.relays_max, config.overhead);
    let best = chain::best(&network, from, to, config.relays_max, config.overhead);
    let best = best.ok_or_else(|| {
        Refusal::usage(format!(
            "no path from {} to {} with at most {} relays: --sites has no paths for it",
            config.from, config.to, config.relays_max
        ))
    })?;
    let plan = Plan {
        sites: &sites,
        hops: &hops,
        by_relays,
        best,
    };
    if config.json {
        outln!("{}", report::json(&plan, config));
    } else {
        outln!("{}", report::text(&plan, config));
    }
    Ok(())
}

fn site(sites: &Sites, flag: &str, name: &str) -> Result<usize> {
    sites.number(name).ok_or_else(|| {
        Refusal::usage(format!(
            "{flag} {name:?} is not a site; there are: {}",
            sites.names().join(", ")
        ))
    })
}
