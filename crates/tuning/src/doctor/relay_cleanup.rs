// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cleanup after killed transparent relays: an nft table, and a routing rule and table for its mark,
//! both named by the port of its listener.
//!
//! The relay renews the table's lease while it runs. Only tables and rules with neither lease nor listener are
//! removed; all others with such a name are listed and stay.

use super::{
    record::inode,
    relay_tables::{self, has_listener, has_live_lease, port_of, run_json},
};
use anyhow::Result;
use longhaul_linux::{
    diversion::Diversion,
    netfilter::{Family, marks::Marks, nft},
};
use serde_json::Value;
use std::fs;

/// Whether a process runs in the network namespace, or `ip netns` has a name for it.
pub(super) fn namespace_exists(namespace: u64) -> bool {
    let is_it = |file: std::path::PathBuf| inode(file) == Some(namespace);
    let entries = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten();
    entries("/proc").any(|process| is_it(process.path().join("ns/net")))
        || entries(longhaul_linux::netns::DIRECTORY).any(|name| is_it(name.path()))
}

/// Action for a table.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Remove,
    Keep(&'static str),
}

/// Removes leftovers of dead relays in this network namespace; returns messages about each.
pub(super) fn clean() -> Result<Vec<String>> {
    let mut messages = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        let tables = match relay_tables::of_family(family) {
            Ok(tables) => tables,
            Err(error) => return Ok(vec![format!("cannot search for tables of relays: {error}")]),
        };
        for table in tables {
            messages.push(clean_table(family, &table)?);
        }
        messages.extend(clean_rules(family)?);
    }
    Ok(messages)
}

fn clean_table(family: Family, table: &str) -> Result<String> {
    let name = format!("nft table {} {table}", family.name());
    let port = port_of(table);
    let listening = port.is_none_or(|port| has_listener(port).unwrap_or(true));
    Ok(
        match choose_action(port, has_live_lease(family, table), listening) {
            Action::Remove => {
                nft::delete_table(family, table)?;
                format!("{name} removed: no relay renews it or listens")
            }
            Action::Keep(why) => format!("{name} stays: {why}"),
        },
    )
}

/// Chooses the action. `leased` is whether the table has an unexpired lease; `None` if it has no lease set.
fn choose_action(port: Option<u16>, leased: Option<bool>, listening: bool) -> Action {
    match (port, leased) {
        (None, _) => Action::Keep("its name has no port, so its owner is unknown"),
        (_, None) => Action::Keep("it has no lease, so its owner is unknown"),
        (_, Some(true)) => Action::Keep("its relay runs"),
        (_, Some(false)) if listening => Action::Keep("a program listens on its port"),
        (_, Some(false)) => Action::Remove,
    }
}

/// Removes routing rules without an nft table and without a listener on the port.
fn clean_rules(family: Family) -> Result<Vec<String>> {
    let option = match family {
        Family::Ip => "-4",
        Family::Ip6 => "-6",
    };
    // A kernel without IPv6 has no such rules.
    let Ok(rules) = run_json("ip", &["-j", option, "rule", "list"]) else {
        return Ok(Vec::new());
    };
    let tables = relay_tables::of_family(family)?;
    let mut messages = Vec::new();
    for (mark, port) in rules
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(parse_rule_mark)
    {
        let name = format!("{} rule for mark {mark:#x}", family.name());
        let in_use = tables.iter().any(|table| port_of(table) == Some(port));
        if in_use || has_listener(port).unwrap_or(true) {
            messages.push(format!("{name} stays: it is in use"));
            continue;
        }
        Diversion::new(family, Marks::of(port)).remove()?;
        messages.push(format!("{name} removed with its route"));
    }
    Ok(messages)
}

/// Returns the mark and port of a rule of longhaul's: its routing table has the mark's number.
fn parse_rule_mark(rule: &Value) -> Option<(u32, u16)> {
    let mark = rule["fwmark"].as_str()?.strip_prefix("0x")?;
    let mark = u32::from_str_radix(mark, 16).ok()?;
    let table: u32 = rule["table"].as_str()?.parse().ok()?;
    let port = (mark & 0xffff) as u16;
    (Marks::of(port).diverted() == mark && table == mark).then_some((mark, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn removes_only_tables_of_dead_relays() {
        let dead = choose_action(Some(1081), Some(false), false);
        assert_eq!(dead, Action::Remove);
        for (port, lease, listening) in [
            (None, Some(false), false),
            (Some(1081), None, false),
            (Some(1081), Some(true), false),
            (Some(1081), Some(false), true),
        ] {
            let chosen = choose_action(port, lease, listening);
            assert!(matches!(chosen, Action::Keep(_)), "{port:?} {lease:?}");
        }
    }

    #[test]
    fn parses_port_from_names_and_marks() {
        assert_eq!(port_of("longhaul-1081"), Some(1081));
        assert_eq!(port_of("longhaul-70000"), None);
        assert_eq!(port_of("longhaul"), None);
        let rule =
            |mark: &str, table: &str| parse_rule_mark(&json!({"fwmark": mark, "table": table}));
        assert_eq!(rule("0x4c480439", "1279788089"), Some((0x4c48_0439, 1081)));
        assert_eq!(rule("0x4c480439", "100"), None);
        assert_eq!(rule("0x1", "1"), None);
    }

    #[test]
    fn own_namespace_exists() {
        assert!(namespace_exists(inode("/proc/self/ns/net").unwrap()));
        assert!(!namespace_exists(1));
    }
}
