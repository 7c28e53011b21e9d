// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc list`: congestion controls of the kernel and of longhaul, with their numbers of connections.

use super::{
    config::List,
    default_setting,
    output::{print, table},
};
use anyhow::Result;
use longhaul_congestion::{Error, choice, loader, math, watch::Watch};
use longhaul_linux::{sock_diag::SockDiag, sysctl};
use serde::Serialize;
use std::collections::BTreeMap;

/// A congestion control.
#[derive(Debug, Serialize)]
struct Entry {
    /// Name for TCP_CONGESTION.
    name: String,
    /// Origin: `kernel` or `longhaul`.
    origin: &'static str,
    /// Whether a socket can choose it now.
    loaded: bool,
    /// Whether a socket can choose it without CAP_NET_ADMIN.
    unprivileged: bool,
    /// Whether it is the default in this namespace.
    default: bool,
    /// Number of connections: longhaul's in all namespaces for root, else in this one.
    connections: usize,
}

/// Runs the command.
pub(super) fn run(config: &List) -> Result<()> {
    let users = users(config)?;
    let entries = entries(&users.connections)?;
    if config.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&entries)?))
    } else {
        print(&text(&entries, users.only_here))
    }
}

fn entries(users: &BTreeMap<String, usize>) -> Result<Vec<Entry>> {
    let allowed = sysctl::read_here("net.ipv4.tcp_allowed_congestion_control")?;
    let default = default_setting::current()?;
    let registered = choice::registered();
    let ours: Vec<String> = math::algorithms()
        .map(math::Algorithm::system_name)
        .collect();
    // `longhaul decp` registers one briefly for its own use; it is not listed.
    let kernels = registered.iter();
    let kernels = kernels.filter(|name| !ours.contains(name) && !name.starts_with("longhaul_"));
    let entry = |name: &String, origin| Entry {
        name: name.clone(),
        origin,
        loaded: registered.contains(name),
        unprivileged: allowed.split(' ').any(|other| other == name),
        default: default == *name,
        connections: users.get(name).copied().unwrap_or(0),
    };
    let kernels = kernels.map(|name| entry(name, "kernel"));
    Ok(kernels
        .chain(ours.iter().map(|name| entry(name, "longhaul")))
        .collect())
}

/// Numbers of connections by congestion control.
struct Users {
    connections: BTreeMap<String, usize>,
    /// Whether only those of this network namespace are known: without root, pins can't be read, and not every
    /// kernel lets a program walk through connections.
    only_here: bool,
}

fn users(config: &List) -> Result<Users> {
    let mut users = Users {
        connections: BTreeMap::new(),
        only_here: true,
    };
    for connection in SockDiag::here()?.connections()? {
        *users.connections.entry(connection.congestion).or_default() += 1;
    }
    let Ok(loaded) = loader::all_loaded(&config.pins) else {
        return Ok(users);
    };
    users.only_here = !loaded.is_empty();
    if let (false, Ok(watch)) = (loaded.is_empty(), Watch::new()) {
        users.only_here = false;
        for one in loaded {
            let found = watch.connections(&one).map_err(Error::refusal)?;
            let name = one.algorithm().system_name();
            users.connections.insert(name, found.len());
        }
    }
    Ok(users)
}

fn text(entries: &[Entry], only_here: bool) -> String {
    let connections = if only_here {
        "connections here"
    } else {
        "connections"
    };
    let heading = ["name", "origin", "state", "allowed for", connections];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(entries.iter().map(row));
    table(&rows)
}

fn row(entry: &Entry) -> Vec<String> {
    let state = match (entry.loaded, entry.default) {
        (true, true) => "default",
        (true, false) => "loaded",
        (false, _) => "not loaded",
    };
    let audience = match (entry.loaded, entry.unprivileged) {
        (true, true) => "everyone",
        (true, false) => "root",
        (false, _) => "-",
    };
    let connections = if entry.loaded {
        entry.connections.to_string()
    } else {
        "-".to_owned()
    };
    vec![
        entry.name.clone(),
        entry.origin.to_owned(),
        state.to_owned(),
        audience.to_owned(),
        connections,
    ]
}
