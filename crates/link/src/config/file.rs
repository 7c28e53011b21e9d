// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links from a configuration file.

use super::{Link, options::LinkOptions};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::grammar::number_text;
use serde::Deserialize;
use std::{collections::BTreeSet, fmt::Display, fs, path::Path};
use toml::{Table, Value};

/// Configuration file with links: `[[links]]`, each with its options by the names of the flags. `[links.forward]` and
/// `[links.backward]` override settings of one direction; so do lists, as in `backward = ["loss=1%"]`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct File {
    /// Links.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<LinkOptions>"))]
    links: Vec<Table>,
}

/// Reads all links of a file.
///
/// # Errors
/// Exit code 2: an unreadable file, or an error in it with the link's name.
pub(crate) fn read(path: &Path) -> Result<Vec<Link>> {
    let with_path =
        |error: &dyn Display| Refusal::usage(format!("--config {}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| with_path(&error))?;
    let file: File = toml::from_str(&text).map_err(|error| with_path(&error))?;
    if file.links.is_empty() {
        return Err(with_path(&"no links; give at least one [[links]]"));
    }
    let base = path.parent().unwrap_or(Path::new("."));
    let mut links: Vec<Link> = Vec::new();
    for table in file.links {
        let name = table.get("name").map_or_else(|| "link".to_owned(), text_of);
        if links.iter().any(|link| link.name == name) {
            return Err(with_path(&format!("two links are named {name:?}")));
        }
        let link = link(&table, base);
        links.push(link.map_err(|error| with_path(&format!("link {name:?}: {error}")))?);
    }
    Ok(links)
}

fn link(table: &Table, base: &Path) -> Result<Link> {
    if let Some(end) = ["left", "right"]
        .iter()
        .find(|end| !table.contains_key(**end))
    {
        return Err(Refusal::usage(format!("missing field `{end}`")));
    }
    check_keys(table)?;
    LinkOptions::parse(flags(table))?.link(base)
}

/// Refuses keys that are no options, keys in two spellings, and values that would give no flag.
fn check_keys(table: &Table) -> Result<()> {
    let known = LinkOptions::names();
    let mut names = BTreeSet::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        let problem = if !known.contains(&name) {
            format!("unknown key {key:?}; the keys are {}", known.join(", "))
        } else if name == "no-offload" && !value.is_bool() {
            format!("{key} = {value}: give true or false")
        } else if !names.insert(name) {
            format!("{key} is given twice, with - and with _")
        } else if is_empty(value) {
            format!("{key} = {value}: give a value")
        } else {
            continue;
        };
        return Err(Refusal::usage(problem));
    }
    Ok(())
}

/// Whether a value, or one in it, gives no flag.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(all) => all.is_empty(),
        Value::Table(all) => all.is_empty() || all.values().any(is_empty),
        _ => false,
    }
}

/// Returns the flags that a table means.
fn flags(table: &Table) -> Vec<String> {
    let mut flags = Vec::new();
    for (key, value) in table {
        let flag = format!("--{}", key.replace('_', "-"));
        match value {
            Value::Boolean(on) if flag == "--no-offload" => flags.extend(on.then_some(flag)),
            Value::Table(settings) => {
                let settings = settings.iter().flat_map(values);
                flags.extend(settings.map(|(key, text)| format!("{flag}={key}={text}")));
            }
            _ => flags.extend(values((key, value)).map(|(_, text)| format!("{flag}={text}"))),
        }
    }
    flags
}

/// Returns a key with its value, or with each value of its list, as flags take them: a share may be the number `0.001`
/// as well as `"0.1%"`.
fn values<'a>((key, value): (&'a String, &'a Value)) -> impl Iterator<Item = (&'a str, String)> {
    let all = match value {
        Value::Array(all) => all.iter(),
        one => std::slice::from_ref(one).iter(),
    };
    all.map(move |value| match value {
        Value::Float(number) => (&**key, number_text(key, *number)),
        other => (&**key, text_of(other)),
    })
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[test]
fn file_in_dist_is_the_schema_of_a_file() {
    let schema = schemars::schema_for!(File);
    longhaul_testprograms::schema::assert_written(
        "link.schema.json",
        "Links of longhaul link",
        schema,
    );
}
