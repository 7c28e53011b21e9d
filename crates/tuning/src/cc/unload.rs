// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc unload`.

use super::{default_setting, output::say, place::Place};
use anyhow::Result;
use longhaul_congestion::{
    Error, loader,
    math::{Algorithm, parameters},
    watch::Watch,
};
use longhaul_report::count::counted;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  sudo longhaul cc unload bic
  sudo longhaul cc unload --all

Connections that use it keep its programs until they close; no other can choose it any more.
What load --default set is put back.";

/// Arguments of `longhaul cc unload`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Congestion control, with or without lh_; repeatable
    #[arg(
        value_name = "NAME",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    names: Vec<String>,
    /// All that longhaul loaded
    #[arg(long)]
    all: bool,
    /// Print JSON, one line a congestion control
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    for algorithm in wanted(args)? {
        unload(args, algorithm)?;
    }
    Ok(())
}

fn wanted(args: &Args) -> Result<Vec<Algorithm>> {
    if args.all {
        let pins = args.place.pins();
        loader::clean(&pins).map_err(Error::refusal)?;
        let loaded = loader::all_loaded(&pins).map_err(Error::refusal)?;
        return Ok(loaded.iter().map(loader::Loaded::algorithm).collect());
    }
    let names = args.names.iter();
    let named = names.map(|name| parameters::named(name).map_err(Error::refusal));
    named.collect()
}

fn unload(args: &Args, algorithm: Algorithm) -> Result<()> {
    let (pins, name) = (args.place.pins(), algorithm.system_name());
    let loaded = loader::loaded(&pins, algorithm).map_err(Error::refusal)?;
    let (mut users, mut default) = (0, None);
    if let Some(loaded) = &loaded {
        users = users_of(loaded)?;
        default = default_setting::restore(loaded)?;
    }
    loader::unload(&pins, algorithm).map_err(Error::refusal)?;
    let keepers = default_setting::with_default(&name)?;
    let keepers: Vec<_> = keepers.into_iter().map(|(netns, _)| netns).collect();
    if args.json {
        let line = json!({ "name": name, "connections": users, "default": default,
            "default_in": keepers });
        return say(&format!("{line}\n"));
    }
    say(&format!(
        "{name}: unloaded{}\n",
        aftermath(users, default.as_deref())
    ))?;
    match keepers.is_empty() {
        true => Ok(()),
        false => say(&format!(
            "it stays the default of network namespaces {}: set \
            net.ipv4.tcp_congestion_control there\n",
            keepers.join(", ")
        )),
    }
}

fn users_of(loaded: &loader::Loaded) -> Result<usize> {
    let watch = Watch::new().map_err(Error::refusal)?;
    Ok(watch.look(loaded).map_err(Error::refusal)?.len())
}

fn aftermath(users: usize, default: Option<&str>) -> String {
    let users = match users {
        0 => String::new(),
        n => format!(
            "; {} {} it until closed",
            counted(n as u64, "socket"),
            if n == 1 { "keeps" } else { "keep" }
        ),
    };
    let default = default.map_or(String::new(), |name| {
        format!("; the default is {name} again")
    });
    format!("{users}{default}")
}
