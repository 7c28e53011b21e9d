// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid keys of links, relays and decp: the lab's own, and the options of the command behind the
//! table. They are checked in the parsed text, where a key still has its position.

use crate::{command_check::options, scenario::RelayProgram};
use anyhow::Result;
use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};

/// The lab's own keys of `[[links]]`.
const LINK: [&str; 8] = [
    "name",
    "endpoints",
    "kind",
    "addresses",
    "mtu",
    "same_losses_as",
    "capture",
    "keep_capture",
];
/// Options of `longhaul link` that the lab sets itself, or that would end it during a run.
const SET_FOR_LINKS: [&str; 5] = ["left", "right", "config", "counters", "duration"];
/// The lab's own keys of `[relays.HOST]`.
const RELAY: [&str; 3] = ["enabled", "host", "program"];
/// The lab's own keys of relays with the program `longhaul`.
const LONGHAUL: [&str; 1] = ["config"];
/// Options with which `longhaul relay` would not relay.
const NOT_FOR_RELAYS: [&str; 3] = ["check-config", "make-certificates", "print-default-config"];

/// The lab's own keys of `[decp.HOST]`.
const DECP: [&str; 1] = ["enabled"];
/// Options of `longhaul decp` that the lab sets itself, or with which it would not limit flows.
const NOT_FOR_DECP: [&str; 5] = ["netns", "json", "duration", "dry-run", "remove-caps"];

/// Unknown key of a table, or unknown value of a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{word}`, expected one of {}", quoted_list(.valid_keys))]
pub(crate) struct UnknownKey {
    /// Byte offset of the key or value.
    pub(crate) at: usize,
    kind: &'static str,
    word: String,
    valid_keys: BTreeSet<String>,
}

/// Checks the keys of every link, relay and decp of a scenario.
///
/// # Errors
/// An [`UnknownKey`], or the options of a command cannot be read.
pub(crate) fn check(scenario: &DeTable<'_>) -> Result<()> {
    let under = |key| scenario.get(key).map(toml::Spanned::get_ref);
    let links = link_keys()?;
    tables(under("links")).try_for_each(|link| check_keys(link, &links))?;
    let decps = decp_keys()?;
    tables(under("decp")).try_for_each(|decp| check_keys(decp, &decps))?;
    let mut relays = tables(under("relays"));
    relays.try_for_each(|relay| Ok(check_keys(relay, &relay_keys(program(relay)?)?)?))
}

/// Valid keys of links.
pub(crate) fn link_keys() -> Result<BTreeSet<String>> {
    Ok(valid_keys(&LINK, options("link")?, &SET_FOR_LINKS))
}

/// Valid keys of instances of decp.
pub(crate) fn decp_keys() -> Result<BTreeSet<String>> {
    Ok(valid_keys(&DECP, options("decp")?, &NOT_FOR_DECP))
}

/// Program of a relay; `longhaul` by default.
fn program(relay: &DeTable<'_>) -> Result<RelayProgram, UnknownKey> {
    let Some(value) = relay.get("program") else {
        return Ok(RelayProgram::default());
    };
    let word = value.get_ref().as_str().unwrap_or_default();
    let found = RelayProgram::ALL
        .into_iter()
        .find(|program| program.name() == word);
    found.ok_or_else(|| UnknownKey {
        at: value.span().start,
        kind: "program",
        word: word.to_owned(),
        valid_keys: RelayProgram::ALL
            .iter()
            .map(|program| program.name().to_owned())
            .collect(),
    })
}

/// Valid keys of relays with this program.
pub(crate) fn relay_keys(program: RelayProgram) -> Result<BTreeSet<String>> {
    let own = [&RELAY[..], &LONGHAUL].concat();
    let not = [&NOT_FOR_RELAYS[..], &["config"]].concat();
    Ok(match program {
        RelayProgram::Longhaul => valid_keys(&own, options("relay")?, &not),
        other => {
            let options = other.keys().iter().map(|key| (*key).to_owned());
            valid_keys(&RELAY, options.collect(), &[])
        }
    })
}

/// Valid keys as written in TOML, with underscores.
fn valid_keys(own: &[&str], options: Vec<String>, not: &[&str]) -> BTreeSet<String> {
    let options = options.into_iter().filter(|name| !not.contains(&&**name));
    let own = own.iter().map(|key| (*key).to_owned());
    own.chain(options.map(|name| name.replace('-', "_")))
        .collect()
}

/// Tables in an array, or in a table.
fn tables<'a>(value: Option<&'a DeValue<'a>>) -> impl Iterator<Item = &'a DeTable<'a>> {
    let quoted_list = value.and_then(DeValue::as_array).into_iter().flatten();
    let named = value.and_then(DeValue::as_table).into_iter();
    quoted_list
        .chain(named.flat_map(|table| table.values()))
        .filter_map(|value| value.get_ref().as_table())
}

fn check_keys(table: &DeTable<'_>, valid_keys: &BTreeSet<String>) -> Result<(), UnknownKey> {
    let unknown = |key: &str| !valid_keys.contains(&key.replace('-', "_"));
    let present = table.iter().filter(|(_, value)| !empty(value.get_ref()));
    let keys = present
        .map(|(key, _)| key)
        .filter(|key| unknown(key.get_ref()));
    match keys.min_by_key(|key| key.span().start) {
        None => Ok(()),
        Some(key) => Err(UnknownKey {
            at: key.span().start,
            kind: "field",
            word: key.get_ref().to_string(),
            valid_keys: valid_keys.clone(),
        }),
    }
}

/// Whether a value is an empty list. It counts as absent, so that a parameter can leave out the
/// key.
fn empty(value: &DeValue<'_>) -> bool {
    value.as_array().is_some_and(|list| list.is_empty())
}

fn quoted_list(valid_keys: &BTreeSet<String>) -> String {
    let quoted: Vec<_> = valid_keys.iter().map(|key| format!("`{key}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_at(text: &str) -> Option<(String, usize)> {
        let table = DeTable::parse(text).unwrap();
        let unknown: UnknownKey = check(table.get_ref()).err()?.downcast().unwrap();
        Some((unknown.word, unknown.at))
    }

    #[test]
    fn options_pass_with_either_dash() {
        let text = "[[links]]\nname = 'a'\nno-offload = true\nack_thin = 3\n\
                    [relays.r]\nenabled = true\nallow_from = []\npipe-size = 1\n";
        assert_eq!(key_at(text), None);
    }

    #[test]
    fn reports_the_position_of_the_first_unknown_key() {
        let text = "[[links]]\ndelay = 1\n[[links]]\n  dealy = 1\nlater = 2\n";
        assert_eq!(key_at(text), Some(("dealy".to_owned(), 32)));
        let text = "relays = { r = { peer = 'x', enabeld = true } }";
        assert_eq!(key_at(text), Some(("enabeld".to_owned(), 29)));
    }

    #[test]
    fn refuses_options_that_the_lab_sets_itself() {
        assert!(key_at("[[links]]\nleft = 'a:b:10.0.0.1/30'\n").is_some());
        assert!(key_at("[[links]]\ncounters = '-'\n").is_some());
        assert!(key_at("[relays.r]\ncheck_config = true\n").is_some());
    }

    #[test]
    fn decp_has_its_own_options() {
        let decp = |key| key_at(&format!("[decp.left]\nenabled = true\n{key}"));
        assert_eq!(decp("filter = 'dport 5201'\nslow_start = true"), None);
        assert!(decp("netns = 'x'").is_some() && decp("delay = '1ms'").is_some());
    }

    #[test]
    fn keys_depend_on_the_relay_program() {
        let relay = |text| key_at(&format!("[relays.r]\n{text}"));
        assert_eq!(relay("program = 'haproxy'\nforward = []"), None);
        assert_eq!(relay("program = 'dante'\nsocks5 = []\npeer = []"), None);
        assert_eq!(relay("program = 'dante'\nforward = []"), None);
        let unknown = relay("program = 'dante'\nforward = ['x']").unwrap();
        assert_eq!(unknown, ("forward".to_owned(), 29));
        assert!(relay("program = 'squid'\nconfig = {}").is_some());
        assert_eq!(relay("program = 'nginx'"), Some(("nginx".to_owned(), 21)));
    }
}
