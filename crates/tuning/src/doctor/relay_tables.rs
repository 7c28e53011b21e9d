// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nft tables of transparent relays in this network namespace, and the INPUT chains that they meet. Reading them needs nft and CAP_NET_ADMIN.

use super::facts::Interception;
use anyhow::{Context, Result};
use longhaul_linux::{
    netfilter::{
        Family, counter, input, lease,
        marks::{ARRIVED_SYNS, DIVERTED_SYNS, TABLE_PREFIX},
        nft,
    },
    programs,
    sock_diag::SockDiag,
};
use serde_json::Value;
use std::{collections::BTreeSet, io};

/// Returns the names of the tables of relays, of running and of killed ones.
pub(super) fn of_family(family: Family) -> Result<Vec<String>, nft::NftError> {
    let mut tables = nft::tables(family)?;
    tables.retain(|name| name.starts_with(TABLE_PREFIX));
    Ok(tables)
}

/// Returns the port of the listener to which a table diverts.
pub(super) fn port_of(table: &str) -> Option<u16> {
    table.strip_prefix(TABLE_PREFIX)?.parse().ok()
}

pub(super) fn has_listener(port: u16) -> io::Result<bool> {
    SockDiag::here()?.listens_on(port)
}

/// Whether a relay renews the table's lease; `None` if it has no lease set.
pub(super) fn has_live_lease(family: Family, table: &str) -> Option<bool> {
    let args = ["-j", "list", "set", family.name(), table, lease::SET];
    let listing = run_json("nft", &args).ok()?;
    let items = listing["nftables"].as_array()?;
    let set = items.iter().find_map(|item| item.get("set"))?;
    let elements = set["elem"].as_array();
    Some(elements.is_some_and(|all| !all.is_empty()))
}

/// Reads what running relays intercept.
pub(super) fn interceptions() -> Result<Vec<Interception>> {
    let mut all = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        for table in of_family(family)? {
            all.extend(interception(family, &table)?);
        }
    }
    Ok(all)
}

/// Reads a table; `None` if no relay of this version uses it.
fn interception(family: Family, table: &str) -> Result<Option<Interception>> {
    let Some(port) = port_of(table) else {
        return Ok(None);
    };
    let packets = |name| match counter::packets(family, table, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        packets => packets.map(Some),
    };
    // In this order: a SYN that comes in between does not seem to be lost.
    let (Some(diverted_syns), Some(arrived_syns), true) = (
        packets(DIVERTED_SYNS)?,
        packets(ARRIVED_SYNS)?,
        has_listener(port)?,
    ) else {
        return Ok(None);
    };
    Ok(Some(Interception {
        is_ipv6: family == Family::Ip6,
        port,
        active: has_live_lease(family, table) == Some(true),
        diverted_syns,
        arrived_syns,
    }))
}

/// Returns the INPUT chains that drop what no rule accepts.
pub(super) fn input_drops() -> Result<BTreeSet<String>, nft::NftError> {
    let of = |family| input::dropping_chains(family, 0);
    Ok(of(Family::Ip)?
        .into_iter()
        .chain(of(Family::Ip6)?)
        .collect())
}

/// Runs a program, and parses what it prints.
pub(super) fn run_json(program: &str, args: &[&str]) -> Result<Value> {
    let output = programs::command(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        messages.lines().next().unwrap_or("failed")
    );
    // ip prints nothing at all for an empty list.
    match output.stdout.trim_ascii() {
        b"" => Ok(Value::Array(Vec::new())),
        text => Ok(serde_json::from_slice(text)?),
    }
}
