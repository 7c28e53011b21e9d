// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a killed transparent relay leaves: an nft table `longhaul-PORT` with a set `lease`, and a
//! routing rule and table for the mark `LH` (0x4c48) in the upper half and PORT in the lower.
//!
//! The relay renews the lease while it lives and listens on PORT. Only what has neither lease nor
//! listener is removed; all else with the name is listed and stays.

use super::record::inode;
use anyhow::{Context, Result};
use host::{netns::Netns, sock_diag::SockDiag};
use serde_json::Value;
use std::{fs, process::Command};

const PREFIX: &str = "longhaul";
/// `LH`, the upper half of marks.
const LETTERS: u32 = 0x4c48;

/// Whether a process lives in the network namespace, or `ip netns` names it.
pub(super) fn namespace_lives(namespace: u64) -> bool {
    let is_it = |file: std::path::PathBuf| inode(file) == Some(namespace);
    let entries = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten();
    entries("/proc").any(|process| is_it(process.path().join("ns/net")))
        || entries(host::netns::DIRECTORY).any(|name| is_it(name.path()))
}

/// An nft table by one of our names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    family: String,
    name: String,
}

/// What to do with it.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Remove { port: u16 },
    Keep(&'static str),
}

/// Removes what dead relays left in this network namespace, and says what it did and did not do.
pub(super) fn clean() -> Result<Vec<String>> {
    let mut said = Vec::new();
    let Ok(tables) = tables() else {
        return Ok(vec![
            "nft is missing or fails: no relay's tables were looked for".to_owned(),
        ]);
    };
    for table in tables {
        said.push(clean_table(&table)?);
    }
    for family in ["-4", "-6"] {
        said.extend(clean_rules(family)?);
    }
    Ok(said)
}

fn clean_table(table: &Table) -> Result<String> {
    let Table { family, name } = table;
    let port = port_of(name);
    let listening = port.is_none_or(|port| listens(port).unwrap_or(true));
    Ok(match fate(port, lease(table), listening) {
        Fate::Remove { .. } => {
            run("nft", &["delete", "table", family, name])?;
            format!("nft table {family} {name} removed: no relay renews or listens")
        }
        Fate::Keep(why) => format!("nft table {family} {name} stays: {why}"),
    })
}

/// `lease` is whether the table has a lease that runs; `None` if it has no such set.
fn fate(port: Option<u16>, lease: Option<bool>, listening: bool) -> Fate {
    match (port, lease) {
        (None, _) => Fate::Keep("its name has no port, so its owner is unknown"),
        (_, None) => Fate::Keep("it has no lease, so its owner is unknown"),
        (_, Some(true)) => Fate::Keep("its relay lives"),
        (Some(_), Some(false)) if listening => Fate::Keep("somebody listens on its port"),
        (Some(port), Some(false)) => Fate::Remove { port },
    }
}

fn port_of(name: &str) -> Option<u16> {
    name.strip_prefix(PREFIX)?.strip_prefix('-')?.parse().ok()
}

fn tables() -> Result<Vec<Table>> {
    let listing = run_json("nft", &["-j", "list", "tables"])?;
    let items = listing["nftables"].as_array().cloned().unwrap_or_default();
    let ours = |item: &Value| {
        let table = &item["table"];
        let name = table["name"].as_str()?.to_owned();
        let family = table["family"].as_str()?.to_owned();
        name.starts_with(PREFIX).then_some(Table { family, name })
    };
    Ok(items.iter().filter_map(ours).collect())
}

fn lease(table: &Table) -> Option<bool> {
    let Table { family, name } = table;
    let listing = run_json("nft", &["-j", "list", "set", family, name, "lease"]).ok()?;
    let items = listing["nftables"].as_array()?;
    let set = items.iter().find_map(|item| item.get("set"))?;
    let elements = set["elem"].as_array();
    Some(elements.is_some_and(|all| !all.is_empty()))
}

fn listens(port: u16) -> std::io::Result<bool> {
    SockDiag::open(&Netns::current()?)?.listens_on(port)
}

/// Routing rules whose table of filters is gone and whose port nobody listens on.
fn clean_rules(family: &str) -> Result<Vec<String>> {
    let Ok(rules) = run_json("ip", &["-j", family, "rule", "list"]) else {
        return Ok(Vec::new());
    };
    let mut said = Vec::new();
    let marks = rules.as_array().into_iter().flatten().filter_map(mark_of);
    for mark in marks {
        let port = (mark & 0xffff) as u16;
        if has_table(family, port)? || listens(port).unwrap_or(true) {
            said.push(format!(
                "ip rule {family} fwmark {mark:#x} stays: it is in use"
            ));
            continue;
        }
        let number = mark.to_string();
        let rule = [family, "rule", "del", "fwmark", &number, "table", &number];
        run("ip", &rule)?;
        // The routes go with the rule; a table without any is no error.
        let _ = run("ip", &[family, "route", "flush", "table", &number]);
        said.push(format!(
            "ip rule {family} fwmark {mark:#x} removed with its routes"
        ));
    }
    Ok(said)
}

/// The mark of a rule of ours: its table has the same number.
fn mark_of(rule: &Value) -> Option<u32> {
    let mark = rule["fwmark"].as_str()?.strip_prefix("0x")?;
    let mark = u32::from_str_radix(mark, 16).ok()?;
    let table: u32 = rule["table"].as_str()?.parse().ok()?;
    (mark >> 16 == LETTERS && table == mark).then_some(mark)
}

fn has_table(family: &str, port: u16) -> Result<bool> {
    let family = if family == "-6" { "ip6" } else { "ip" };
    let ours = |table: &Table| table.family == family && port_of(&table.name) == Some(port);
    Ok(tables()?.iter().any(ours))
}

fn run_json(program: &str, args: &[&str]) -> Result<Value> {
    let text = run(program, args)?;
    // ip prints nothing at all for an empty list.
    Ok(match text.trim() {
        "" => Value::Array(Vec::new()),
        text => serde_json::from_str(text)?,
    })
}

fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        said.lines().next().unwrap_or("failed")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_surely_dead_is_removed() {
        let dead = fate(Some(1081), Some(false), false);
        assert_eq!(dead, Fate::Remove { port: 1081 });
        for (port, lease, listening) in [
            (None, Some(false), false),
            (Some(1081), None, false),
            (Some(1081), Some(true), false),
            (Some(1081), Some(false), true),
        ] {
            let fate = fate(port, lease, listening);
            assert!(matches!(fate, Fate::Keep(_)), "{port:?} {lease:?}");
        }
    }

    #[test]
    fn names_and_marks_say_the_port() {
        assert_eq!(port_of("longhaul-1081"), Some(1081));
        assert_eq!(port_of("longhaul-70000"), None);
        assert_eq!(port_of("longhaul"), None);
        let rule = |mark: &str, table: &str| mark_of(&json!({"fwmark": mark, "table": table}));
        assert_eq!(rule("0x4c480439", "1279788089"), Some(0x4c48_0439));
        assert_eq!(rule("0x4c480439", "100"), None);
        assert_eq!(rule("0x1", "1"), None);
    }

    #[test]
    fn this_namespace_lives() {
        assert!(namespace_lives(inode("/proc/self/ns/net").unwrap()));
        assert!(!namespace_lives(1));
    }
}
