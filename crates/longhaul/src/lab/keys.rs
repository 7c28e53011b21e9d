// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys that tables of links and relays may have: the lab's own, and the options of the command
//! that stands behind the table. Looked for in the text, where a key still has a place.

use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};

/// Keys of `[[links]]` that are the lab's own.
const LINK: [&str; 5] = ["name", "between", "kind", "addresses", "mtu"];
/// Options of `longhaul link` that the lab sets itself.
const SET_FOR_LINKS: [&str; 4] = ["left", "right", "config", "counters"];
/// Keys of `[relays.HOST]` that are the lab's own.
const RELAY: [&str; 2] = ["when", "intercept"];
/// Options with which `longhaul relay` would not relay.
const NOT_FOR_RELAYS: [&str; 1] = ["check-config"];

/// A key that its table does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown field `{key}`, expected one of {}", listed(.known))]
pub(crate) struct UnknownKey {
    /// The byte of the text where it begins.
    pub(crate) at: usize,
    key: String,
    known: BTreeSet<String>,
}

/// Checks every link and relay of a scenario that is sound TOML.
pub(crate) fn check(text: &str) -> Result<(), UnknownKey> {
    let Ok(scenario) = DeTable::parse(text) else {
        return Ok(());
    };
    let under = |key| scenario.get_ref().get(key).map(toml::Spanned::get_ref);
    let known = known(&LINK, crate::link::options(), &SET_FOR_LINKS);
    tables(under("links")).try_for_each(|link| only(link, &known))?;
    let known = self::known(&RELAY, crate::relay::options(), &NOT_FOR_RELAYS);
    tables(under("relays")).try_for_each(|relay| only(relay, &known))
}

/// As a person writes them in TOML, with underscores.
fn known(own: &[&str], options: Vec<String>, not: &[&str]) -> BTreeSet<String> {
    let options = options.into_iter().filter(|name| !not.contains(&&**name));
    let own = own.iter().map(|key| (*key).to_owned());
    own.chain(options.map(|name| name.replace('-', "_")))
        .collect()
}

/// The tables in an array, or those in a table.
fn tables<'a>(value: Option<&'a DeValue<'a>>) -> impl Iterator<Item = &'a DeTable<'a>> {
    let listed = value.and_then(DeValue::as_array).into_iter().flatten();
    let named = value.and_then(DeValue::as_table).into_iter();
    listed
        .chain(named.flat_map(|table| table.values()))
        .filter_map(|value| value.get_ref().as_table())
}

fn only(table: &DeTable<'_>, known: &BTreeSet<String>) -> Result<(), UnknownKey> {
    let unknown = |key: &str| !known.contains(&key.replace('-', "_"));
    let keys = table.keys().filter(|key| unknown(key.get_ref()));
    match keys.min_by_key(|key| key.span().start) {
        None => Ok(()),
        Some(key) => Err(UnknownKey {
            at: key.span().start,
            key: key.get_ref().to_string(),
            known: known.clone(),
        }),
    }
}

fn listed(known: &BTreeSet<String>) -> String {
    let quoted: Vec<_> = known.iter().map(|key| format!("`{key}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_at(text: &str) -> Option<(String, usize)> {
        check(text).err().map(|unknown| (unknown.key, unknown.at))
    }

    #[test]
    fn options_pass_with_either_dash() {
        let text = "[[links]]\nname = 'a'\nno-offload = true\nack_thin = 3\n\
                    [relays.r]\nwhen = true\nallow_from = []\npipe-size = 1\n";
        assert_eq!(key_at(text), None);
    }

    #[test]
    fn the_first_unknown_key_is_found_where_it_stands() {
        let text = "[[links]]\ndelay = 1\n[[links]]\n  dealy = 1\nlater = 2\n";
        assert_eq!(key_at(text), Some(("dealy".to_owned(), 32)));
        let text = "relays = { r = { peer = 'x', wehn = true } }";
        assert_eq!(key_at(text), Some(("wehn".to_owned(), 29)));
    }

    #[test]
    fn what_the_lab_sets_itself_is_no_key() {
        assert!(key_at("[[links]]\nleft = 'a:b:10.0.0.1/30'\n").is_some());
        assert!(key_at("[[links]]\ncounters = '-'\n").is_some());
        assert!(key_at("[relays.r]\ncheck_config = true\n").is_some());
    }
}
