// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul doctor`: finds settings of this host that limit throughput on a long fat network, and fixes them.
//!
//! `host_facts` reads settings, `trials` try features, `checks` return findings, and `report` prints them. `fix`
//! changes kernel settings, and `record` stores the old ones. `relay_tables` are the tables of relays, and
//! `relay_cleanup` removes leftovers of killed ones.

mod args;
mod checks;
mod facts;
mod finding;
mod fix;
mod host_facts;
mod path;
mod record;
mod relay_cleanup;
mod relay_tables;
mod report;
mod trials;

pub use args::Args;

use anyhow::{Result, bail};
use facts::Facts;
use finding::{Finding, Severity};
use longhaul_command::exit::Refusal;
use longhaul_command::outln;
use path::Path;
use rustix::thread::{CapabilitySet, capabilities};
use std::io::{IsTerminal, Read};

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let path = Path {
        rate: args.rate,
        rtt: args.rtt,
        connections: args.connections,
        transparent: args.transparent,
    };
    let path = path.check()?;
    if args.fix || args.undo || args.clean {
        return change_settings(args, path);
    }
    let facts = match &args.facts {
        Some(file) => read_facts(file)?,
        None => Facts {
            trials: trials::all(),
            ..host_facts::read_all()
        },
    };
    let findings = checks::all(&facts, path);
    if args.json {
        outln!("{}", report::json(path, &facts, &findings)?);
    } else {
        outln!(
            "{}",
            report::text(path, &findings, std::io::stdout().is_terminal())
        );
    }
    check_limits(path, &findings)
}

fn check_limits(path: Path, findings: &[Finding]) -> Result<()> {
    let limits = findings.iter().filter(|f| f.severity == Severity::Limit);
    match limits.count() {
        0 => Ok(()),
        1 => bail!("1 finding limits {} at {}", path.rate, path.rtt),
        n => bail!("{n} findings limit {} at {}", path.rate, path.rtt),
    }
}

/// Reads the facts from the output of `--json`.
fn read_facts(file: &std::path::Path) -> Result<Facts> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut f| f.read_to_string(&mut text))
    };
    read.map_err(|error| Refusal::usage(format!("--facts {}: {error}", file.display())))?;
    report::facts_in(&text).map_err(|error| {
        Refusal::usage(format!(
            "--facts {}: {error}; it takes the output of 'longhaul doctor --json'",
            file.display()
        ))
    })
}

fn is_network_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

fn change_settings(args: &Args, path: Path) -> Result<()> {
    let what = match (args.fix, args.undo) {
        (true, _) => "--fix",
        (_, true) => "--undo",
        _ => "--clean",
    };
    if longhaul_linux::process::user() != 0 {
        return Err(Refusal::unsupported(format!(
            "doctor {what} needs root: run it with sudo"
        )));
    }
    if what == "--clean" && !is_network_admin() {
        return Err(Refusal::unsupported(
            "doctor --clean needs CAP_NET_ADMIN, to see nft tables and routing rules: run it as the machine's root",
        ));
    }
    let open = record::Store::open;
    let outcome = match what {
        "--fix" => {
            // Facts are read before the store is locked: programs run for them could inherit the lock.
            let findings = checks::all(&host_facts::read_all(), path);
            fix::apply(&open()?, &findings, &args.filter, args.persist.as_deref())?
        }
        "--undo" => fix::undo(&open()?)?,
        _ => fix::clean(&open()?)?,
    };
    report::print_outcome(&outcome, args.json)
}
