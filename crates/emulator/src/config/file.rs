// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links from a configuration file.

use super::{DirectionConfig, Endpoint, Link, parse_setting, read_trace, resets_trace};
use crate::tap;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::grammar::number_text;
use longhaul_units::Bytes;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Configuration file with links: `[[links]]`, each with its ends and its settings by the names of the flags.
/// `[links.forward]` and `[links.backward]` override settings of one direction.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    links: Vec<LinkTable>,
}

#[derive(serde::Deserialize)]
struct LinkTable {
    name: String,
    left: String,
    right: String,
    mtu: Option<u32>,
    delivery: Option<String>,
    offload: Option<bool>,
    seed: Option<u64>,
    memory: Option<Bytes>,
    tap: Option<PathBuf>,
    #[serde(rename = "tap-snap")]
    tap_snap: Option<u32>,
    #[serde(rename = "tap-memory")]
    tap_memory: Option<Bytes>,
    #[serde(default)]
    forward: BTreeMap<String, toml::Value>,
    #[serde(default)]
    backward: BTreeMap<String, toml::Value>,
    /// Settings of both directions; an unknown key is refused with its name.
    #[serde(flatten)]
    both: BTreeMap<String, toml::Value>,
}

/// Defaults of the flags.
const TAP_SNAP: u32 = 128;
const TAP_MEMORY: Bytes = Bytes::new(256_000_000);

/// Reads all links of a file.
///
/// # Errors
/// Exit code 2: an unreadable file, or an error in it with the link's name.
pub(crate) fn read(path: &Path) -> Result<Vec<Link>> {
    let with_path =
        |error: &dyn std::fmt::Display| Refusal::usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| with_path(&error))?;
    let file: File = toml::from_str(&text).map_err(|error| with_path(&error))?;
    if file.links.is_empty() {
        return Err(with_path(&"no links; give at least one [[links]]"));
    }
    let base = path.parent().unwrap_or(Path::new("."));
    let mut links = Vec::new();
    for table in file.links {
        let name = table.name.clone();
        if links.iter().any(|link: &Link| link.name == name) {
            return Err(with_path(&format!("two links are named {name:?}")));
        }
        let link = table.link(base);
        links.push(link.map_err(|error| with_path(&format!("link {name:?}: {error}")))?);
    }
    Ok(links)
}

impl LinkTable {
    fn link(self, base: &Path) -> Result<Link> {
        let mtu = self.mtu.unwrap_or(1_500);
        if self.tap.is_none() && (self.tap_snap.is_some() || self.tap_memory.is_some()) {
            let message = "tap-snap and tap-memory configure tap, which is missing: give tap, too";
            return Err(Refusal::usage(message));
        }
        let mut both = DirectionConfig {
            memory: self.memory,
            ..DirectionConfig::default()
        };
        both.initial.mtu = mtu;
        apply(&mut both, &self.both, base)?;
        let (mut forward, mut backward) = (both.clone(), both);
        apply(&mut forward, &self.forward, base)?;
        apply(&mut backward, &self.backward, base)?;
        let delivery = self.delivery.as_deref().unwrap_or("bulk");
        Ok(Link {
            name: self.name,
            left: Endpoint::parse(&self.left)?,
            right: Endpoint::parse(&self.right)?,
            forward,
            backward,
            mtu,
            delivery: delivery
                .parse()
                .map_err(|error: String| Refusal::usage(error))?,
            offload: self.offload.unwrap_or(true),
            seed: self.seed.unwrap_or(1),
            tap: self.tap.map(|path| tap::TapOptions {
                path: base.join(path),
                snap: self.tap_snap.unwrap_or(TAP_SNAP),
                memory: self.tap_memory.unwrap_or(TAP_MEMORY),
            }),
        })
    }
}

fn apply(
    direction: &mut DirectionConfig,
    table: &BTreeMap<String, toml::Value>,
    base: &Path,
) -> Result<()> {
    for (key, value) in table {
        match (key.as_str(), value) {
            ("at", toml::Value::Array(changes)) => {
                for change in changes {
                    direction
                        .schedule
                        .add_text(&text_of(change))
                        .map_err(Refusal::usage)?;
                }
            }
            ("trace", toml::Value::String(path)) if !resets_trace(path) => {
                direction.initial.apply(read_trace(&base.join(path))?);
            }
            _ => direction
                .initial
                .apply(parse_setting(key, &value_of(key, value))?),
        }
    }
    Ok(())
}

fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a value of a file as its flag takes it: a share may be the number `0.001` as well as `"0.1%"`.
fn value_of(key: &str, value: &toml::Value) -> String {
    match value {
        toml::Value::Float(number) => number_text(key, *number),
        other => text_of(other),
    }
}
