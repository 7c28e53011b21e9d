// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc unload`.

use super::{config::Unload, default_setting, output::print};
use anyhow::Result;
use longhaul_congestion::{Error, loader, math::Algorithm, watch::Watch};
use longhaul_report::count::counted;
use serde_json::json;

/// Runs the command.
pub(super) fn run(config: &Unload) -> Result<()> {
    for algorithm in algorithms_to_unload(config)? {
        unload(config, algorithm)?;
    }
    Ok(())
}

fn algorithms_to_unload(config: &Unload) -> Result<Vec<Algorithm>> {
    if let Some(only) = &config.only {
        return Ok(only.clone());
    }
    loader::clean(&config.pins).map_err(Error::refusal)?;
    let loaded = loader::all_loaded(&config.pins).map_err(Error::refusal)?;
    Ok(loaded.iter().map(loader::Loaded::algorithm).collect())
}

fn unload(config: &Unload, algorithm: Algorithm) -> Result<()> {
    let (pins, name) = (&config.pins, algorithm.system_name());
    let loaded = loader::loaded(pins, algorithm).map_err(Error::refusal)?;
    let (mut users, mut default) = (Ok(0), None);
    if let Some(loaded) = &loaded {
        users = count_connections(loaded);
        default = default_setting::restore(loaded)?;
    }
    loader::unload(pins, algorithm).map_err(Error::refusal)?;
    let namespaces = default_setting::namespaces_with_default(&name)?;
    let namespaces: Vec<_> = namespaces.into_iter().map(|(netns, _)| netns).collect();
    if config.json {
        let line = json!({ "name": name, "connections": users.ok(), "restored_default": default,
            "default_in_namespaces": namespaces });
        return print(&format!("{line}\n"));
    }
    print(&format!(
        "{name}: unloaded{}\n",
        describe_effects(&users, default.as_deref())
    ))?;
    if namespaces.is_empty() {
        Ok(())
    } else {
        print(&format!(
            "it stays the default of network namespaces {}: set \
        net.ipv4.tcp_congestion_control there\n",
            namespaces.join(", ")
        ))
    }
}

/// Counts its connections. A kernel that does not allow that unloads it all the same.
fn count_connections(loaded: &loader::Loaded) -> Result<usize, Error> {
    Ok(Watch::new()?.connections(loaded)?.len())
}

fn describe_effects(users: &Result<usize, Error>, default: Option<&str>) -> String {
    let users = match users {
        Err(reason) => {
            format!("; its sockets keep it until closed, their number is unknown: {reason}")
        }
        Ok(0) => String::new(),
        Ok(n) => format!(
            "; {} {} it until closed",
            counted(*n as u64, "socket"),
            if *n == 1 { "keeps" } else { "keep" }
        ),
    };
    let default = default.map_or(String::new(), |name| {
        format!("; the default is {name} again")
    });
    format!("{users}{default}")
}
