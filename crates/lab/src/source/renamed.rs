// SPDX-License-Identifier: MIT OR Apache-2.0
//! Old names in scenario files. They work for one version, and each gives a warning. With the next version this file
//! goes, and its three calls in `inherit`.

use super::key_path;
use clap::{Args, Command};
use longhaul_command::deprecated::{RenamedKey, rename_keys, renamed_flags};
use longhaul_netem::{Schedule, coalescer, setting};
use std::{collections::BTreeMap, sync::LazyLock};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

const fn renamed(table: &'static str, old: &'static str, new: &'static str) -> RenamedKey {
    RenamedKey { table, old, new }
}

/// Keys of scenario files. Options of commands are not among them: those have old names of their own.
const RENAMED: [RenamedKey; 43] = [
    renamed("", "base", "extends"),
    renamed("", "without", "unset"),
    renamed("", "simulate", "simulated"),
    renamed("", "retakes", "max_retries"),
    renamed("", "warmup", "warmup_runs"),
    renamed("", "limit", "timeout"),
    renamed("", "vary", "matrix"),
    renamed("", "with", "overrides"),
    renamed("", "cells", "include"),
    renamed("", "paper", "reference"),
    renamed("include", "vary", "values"),
    renamed("links", "between", "endpoints"),
    renamed("links", "like", "same_as"),
    renamed("links", "tap", "capture"),
    renamed("links", "tap_keep", "keep_capture"),
    renamed("relays.*", "when", "enabled"),
    renamed("decp.*", "when", "enabled"),
    renamed("flows", "when", "enabled"),
    renamed("flows", "parallel", "streams"),
    renamed("flows", "pace", "pacing"),
    renamed("flows", "gap", "inter_packet_gap"),
    renamed("flows", "length", "packet_size"),
    renamed("flows", "segments", "gso_segments"),
    renamed("flows", "active", "ftp_active"),
    renamed("flows", "ready", "server_port"),
    renamed("flows", "arrives", "output_file"),
    renamed("measure", "of", "metric"),
    renamed("measure", "reaches", "target"),
    renamed("check", "want", "threshold"),
    renamed("check", "every", "for_each"),
    renamed("answer", "sentence", "headline"),
    renamed("reference", "suspect", "exclude"),
    renamed("reference.table", "suspect", "exclude"),
    renamed("table", "panels", "facet"),
    renamed("table", "only", "filter"),
    renamed("table", "paper", "reference"),
    renamed("figure", "of", "time_series"),
    renamed("figure", "over", "x"),
    renamed("figure", "by", "hue"),
    renamed("figure", "panels", "facet"),
    renamed("figure", "only", "filter"),
    renamed("figure", "paper", "reference"),
    renamed("figure", "limits", "reference_lines"),
];

/// Values of keys: table, key, old value, new value.
const RENAMED_VALUES: [[&str; 4]; 2] = [
    ["measure", "stat", "time_to", "settling_time"],
    ["figure", "kind", "series", "line"],
];

/// Prefix of a metric in a check.
const RENAMED_PREFIX: [&str; 2] = ["paper.", "reference."];

/// Old names of the options of a command, as keys.
type RenamedOptions = LazyLock<BTreeMap<String, String>>;

static OF_LINKS: RenamedOptions = LazyLock::new(renamed_options::<longhaul_emulator::Args>);
static OF_RELAYS: RenamedOptions = LazyLock::new(renamed_options::<longhaul_relay::Args>);
static OF_DECP: RenamedOptions = LazyLock::new(renamed_options::<longhaul_tuning::decp::Args>);

fn renamed_options<A: Args>() -> BTreeMap<String, String> {
    let flags = renamed_flags(&A::augment_args(Command::new("longhaul")));
    let key = |flag: &str| flag.replace('-', "_");
    let keys = flags.into_iter().map(|(old, new)| (key(&old), key(&new)));
    keys.collect()
}

/// Old name in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldName {
    /// Byte offset of the key or value.
    pub(crate) at: usize,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Gives keys and values of a scenario file their new names, and returns the old ones in the order of the file.
pub(crate) fn rename(file: &mut DeTable<'_>) -> Vec<OldName> {
    let keys = rename_keys(file, &RENAMED).into_iter();
    let mut found: Vec<OldName> = keys
        .map(|key| OldName {
            at: key.offset,
            old: key.rename.old.to_owned(),
            new: key.rename.new.to_owned(),
        })
        .collect();
    for (table, options) in [
        ("links", &OF_LINKS),
        ("relays", &OF_RELAYS),
        ("decp", &OF_DECP),
    ] {
        for table in tables(file, table) {
            found.extend(rename_options(table, options));
        }
    }
    for relay in tables(file, "relays") {
        if let Some(DeValue::Table(config)) = relay.get_mut("config").map(Spanned::get_mut) {
            let names = longhaul_relay::rename_old_names(config).into_iter();
            found.extend(names.map(|(at, old, new)| OldName { at, old, new }));
        }
    }
    for link in tables(file, "links") {
        found.extend(old_settings(link));
    }
    for [table, key, old, new] in RENAMED_VALUES {
        for table in tables(file, table) {
            found.extend(rename_value(table, key, |text| {
                (text == old).then(|| new.to_owned())
            }));
        }
    }
    let [old, new] = RENAMED_PREFIX;
    for (table, key) in [("check", "value"), ("table", "title"), ("figure", "title")] {
        for table in tables(file, table) {
            let renamed = rename_value(table, key, |text| match key {
                "title" => rename_in_braces(text, old, new),
                _ => text.contains(old).then(|| text.replace(old, new)),
            });
            found.extend(renamed.map(|name| OldName {
                old: old.to_owned(),
                new: new.to_owned(),
                ..name
            }));
        }
    }
    found.extend(old_paths(file));
    found.sort_by_key(|name| name.at);
    found
}

/// Tables in an array, or in a table.
fn tables<'f, 't>(
    file: &'f mut DeTable<'t>,
    name: &str,
) -> impl Iterator<Item = &'f mut DeTable<'t>> + use<'f, 't> {
    let values: Vec<&mut Spanned<DeValue<'t>>> = match file.get_mut(name).map(Spanned::get_mut) {
        Some(DeValue::Array(array)) => array.iter_mut().collect(),
        Some(DeValue::Table(table)) => table.iter_mut().map(|(_, value)| value).collect(),
        _ => Vec::new(),
    };
    values
        .into_iter()
        .filter_map(|value| match value.get_mut() {
            DeValue::Table(table) => Some(table),
            _ => None,
        })
}

fn rename_options(table: &mut DeTable<'_>, options: &BTreeMap<String, String>) -> Vec<OldName> {
    let new_name = |key: &str| options.get(&key.replace('-', "_"));
    let keys = table.keys().map(|key| key.get_ref().to_string());
    let old: Vec<String> = keys.filter(|key| new_name(key).is_some()).collect();
    let renamed = old.into_iter().filter_map(|old| {
        let new = new_name(&old).filter(|new| !table.contains_key(new.as_str()))?;
        let (key, value) = table.remove_entry(old.as_str())?;
        table.insert(Spanned::new(key.span(), new.clone().into()), value);
        Some(OldName {
            at: key.span().start,
            old,
            new: new.clone(),
        })
    });
    renamed.collect()
}

/// Replaces the text of a key, if it has an old name.
fn rename_value(
    table: &mut DeTable<'_>,
    key: &str,
    new_text: impl Fn(&str) -> Option<String>,
) -> Option<OldName> {
    let value = table.get_mut(key)?;
    let old = value.get_ref().as_str()?.to_owned();
    let new = new_text(&old)?;
    *value.get_mut() = DeValue::String(new.clone().into());
    let at = value.span().start;
    Some(OldName { at, old, new })
}

/// Replaces `old` in the expressions of a title, which stand in braces.
fn rename_in_braces(text: &str, old: &str, new: &str) -> Option<String> {
    let mut depth = 0usize;
    let part = |part: &str| {
        let renamed = match depth {
            0 => part.to_owned(),
            _ => part.replace(old, new),
        };
        match part.chars().next_back() {
            Some('{') => depth += 1,
            Some('}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        renamed
    };
    let renamed: String = text.split_inclusive(['{', '}']).map(part).collect();
    (renamed != text).then_some(renamed)
}

/// Old names in the values of a link. The values stay, because the emulator reads them.
fn old_settings(link: &DeTable<'_>) -> Vec<OldName> {
    let mut found = Vec::new();
    for (key, value) in link {
        let values = match value.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![value],
        };
        for value in values {
            let text = value.get_ref().as_str().unwrap_or_default();
            let names = match key.get_ref().replace('_', "-").as_str() {
                "delivery" => {
                    let mode = coalescer::old_name(text).into_iter();
                    mode.map(|(old, new)| (old.to_owned(), new.to_owned()))
                        .collect()
                }
                "forward" | "backward" => {
                    text.split_once('=').map_or_else(Vec::new, |(key, value)| {
                        setting::old_names(key.trim(), value)
                    })
                }
                "at" => Schedule::split(text).map_or_else(
                    |_| Vec::new(),
                    |(_, key, value)| setting::old_names(key, value),
                ),
                key => setting::old_names(key, text),
            };
            let at = value.span().start;
            found.extend(names.into_iter().map(|(old, new)| OldName { at, old, new }));
        }
    }
    found
}

/// Old keys in the paths of `unset`. The texts stay: `rename_path` is applied where they are read.
fn old_paths(file: &DeTable<'_>) -> Vec<OldName> {
    let unset = file.get("unset").and_then(|list| list.get_ref().as_array());
    let old_path = |value: &Spanned<DeValue<'_>>| {
        let path = value.get_ref().as_str()?;
        let mut keys = key_path::split(path);
        let (old, new) = rename_path(&mut keys)?;
        let at = value.span().start;
        Some(OldName { at, old, new })
    };
    unset.into_iter().flatten().filter_map(old_path).collect()
}

/// Gives the keys of a path their new names. Returns the last of them with its old name.
pub(crate) fn rename_path(path: &mut [String]) -> Option<(String, String)> {
    /// Arrays whose elements have a name, which stands in the path.
    const NAMED: [&str; 6] = ["links", "flows", "measure", "check", "table", "figure"];
    let mut found = None;
    for key in RENAMED {
        let table: Vec<&str> = key
            .table
            .split('.')
            .filter(|name| !name.is_empty())
            .collect();
        let at = table.len() + usize::from(NAMED.contains(&key.table));
        let mut pairs = path.iter().zip(&table);
        let is_table = pairs.all(|(own, name)| *name == "*" || own == name);
        if is_table && path.get(at).is_some_and(|own| own == key.old) {
            path[at] = key.new.to_owned();
            found = Some((key.old.to_owned(), key.new.to_owned()));
        }
    }
    found.or_else(|| rename_option(path))
}

/// Gives the option of a link, relay or decp its new name, as in `links.wan.rule`, and a relay's profile, as in
/// `relays.r.config.profile.near`.
fn rename_option(path: &mut [String]) -> Option<(String, String)> {
    let options = match path.first()?.as_str() {
        "links" => &OF_LINKS,
        "relays" => &OF_RELAYS,
        "decp" => &OF_DECP,
        _ => return None,
    };
    let (at, new) = match path {
        [first, _, config, profile, name, ..]
            if first == "relays" && config == "config" && profile == "profile" =>
        {
            let profiles = [("near", "downstream"), ("far", "upstream")];
            let new = profiles.iter().find(|(old, _)| old == name)?.1;
            (4, new.to_owned())
        }
        [_, _, option, ..] => (2, options.get(&option.replace('-', "_"))?.clone()),
        _ => return None,
    };
    let old = std::mem::replace(&mut path[at], new.clone());
    Some((old, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed_text(text: &str) -> (toml::Table, Vec<OldName>) {
        let mut file = DeTable::parse(text).unwrap();
        let found = rename(file.get_mut());
        let file = toml::de::Deserializer::from(file);
        (serde::Deserialize::deserialize(file).unwrap(), found)
    }

    #[test]
    fn renames_every_key_in_its_table() {
        let mut found = 0;
        for key in RENAMED {
            let table = key.table.replace('*', "b");
            let text = match (table.as_str(), key.table.contains('*')) {
                ("", _) => format!("{} = 1", key.old),
                (table, true) => format!("[{table}]\n{} = 1", key.old),
                ("answer" | "reference.table", _) => format!("[{table}]\n{} = 1", key.old),
                (table, _) => format!("[[{table}]]\n{} = 1", key.old),
            };
            let (renamed, names) = renamed_text(&text);
            let at = text.find(&format!("{} = 1", key.old)).unwrap();
            assert_eq!(
                (names[0].at, names[0].new.as_str()),
                (at, key.new),
                "{text}"
            );
            assert!(
                renamed.to_string().contains(&format!("{} = 1", key.new)),
                "{renamed}"
            );
            found += names.len();
        }
        assert_eq!(found, RENAMED.len());
    }

    #[test]
    fn renames_values_and_prefixes() {
        let text = "[[measure]]\nstat = 'time_to'\n[[figure]]\nkind = 'series'\n\
                    [[check]]\nvalue = 'a_bps / paper.a_bps'\n";
        let (renamed, names) = renamed_text(text);
        let expected = "[[measure]]\nstat = 'settling_time'\n[[figure]]\nkind = 'line'\n\
                        [[check]]\nvalue = 'a_bps / reference.a_bps'\n";
        assert_eq!(renamed, toml::from_str(expected).unwrap());
        let names: Vec<&str> = names.iter().map(|name| name.old.as_str()).collect();
        assert_eq!(names, ["time_to", "series", "paper."]);
    }

    #[test]
    fn renames_prefixes_in_the_expressions_of_titles() {
        let title = "paper.a {paper.a_bps{x=1} / a_bps :x} paper.";
        let expected = "paper.a {reference.a_bps{x=1} / a_bps :x} paper.";
        let (renamed, names) = renamed_text(&format!("[[table]]\ntitle = '{title}'\n"));
        assert_eq!(renamed["table"][0]["title"].as_str(), Some(expected));
        assert_eq!(names.len(), 1);
        assert_eq!(
            rename_in_braces("paper. {a_bps}", "paper.", "reference."),
            None
        );
    }

    #[test]
    fn renames_the_keys_of_unset_paths() {
        let path = |text: &str| {
            let mut keys = key_path::split(text);
            let renamed = rename_path(&mut keys);
            (keys.join("."), renamed.map(|(old, _)| old))
        };
        assert_eq!(
            path("vary.loss"),
            ("matrix.loss".to_owned(), Some("vary".to_owned()))
        );
        assert_eq!(path("check.c.every").0, "check.c.for_each");
        assert_eq!(path("relays.b.when").0, "relays.b.enabled");
        assert_eq!(path("answer.sentence").0, "answer.headline");
        assert_eq!(path("links.wan.rule").0, "links.wan.aqm");
        assert_eq!(path("relays.r.cc-near").0, "relays.r.cc_downstream");
        assert_eq!(
            path("relays.r.config.profile.far.mss").0,
            "relays.r.config.profile.upstream.mss"
        );
        assert_eq!(
            path("parameters.vary"),
            ("parameters.vary".to_owned(), None)
        );
        assert_eq!(
            path("links.like.rate"),
            ("links.like.rate".to_owned(), None)
        );
    }

    /// A command that renames a flag needs no change here.
    #[test]
    fn options_of_commands_have_their_old_names() {
        let tables = [
            ("[[links]]", &OF_LINKS),
            ("[relays.r]", &OF_RELAYS),
            ("[decp.h]", &OF_DECP),
        ];
        for (table, options) in tables {
            for (old, new) in options.iter() {
                let text = format!("{table}\n{} = 1\n", old.replace('_', "-"));
                let (renamed, names) = renamed_text(&text);
                assert!(
                    renamed.to_string().contains(&format!("{new} = 1")),
                    "{renamed}"
                );
                assert_eq!(names.len(), 1);
            }
            assert!(!options.is_empty(), "{table}");
        }
    }

    #[test]
    fn finds_old_names_in_links_and_configurations() {
        let text = "[[links]]\norder = 'keep'\ndelivery = 'exact'\nforward = ['rule=codel', 'ack-pace=9']\n\
                    ack_hold = '5ms'\n\
                    at = ['3s: order switch']\n[relays.r.config.profile.near]\nmss = 1200\n";
        let (renamed, names) = renamed_text(text);
        let names: Vec<&str> = names.iter().map(|name| name.old.as_str()).collect();
        let expected = [
            "order",
            "allow-reordering keep",
            "exact",
            "rule",
            "ack-pace",
            "ack_hold",
            "order",
            "allow-reordering switch",
            "profile.near",
        ];
        assert_eq!(names, expected);
        assert!(
            renamed["relays"]["r"]["config"]["profile"]
                .get("downstream")
                .is_some()
        );
        assert_eq!(
            renamed["links"][0]["allow_reordering"].as_str(),
            Some("keep")
        );
        assert_eq!(renamed["links"][0]["max_ack_delay"].as_str(), Some("5ms"));
    }
}
