// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links from a configuration file.

use super::{Endpoint, Link, directions};
use crate::capture::CaptureOptions;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::grammar::number_text;
use longhaul_units::Bytes;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Configuration file with links: `[[links]]`, each with its ends and its settings by the names of the flags.
/// `[links.forward]` and `[links.backward]` override settings of one direction; so do lists, as in
/// `backward = ["loss=1%"]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    links: Vec<LinkTable>,
}

#[derive(Deserialize)]
struct LinkTable {
    name: String,
    left: String,
    right: String,
    mtu: Option<u32>,
    delivery: Option<String>,
    offload: Option<bool>,
    seed: Option<u64>,
    memory: Option<Bytes>,
    capture: Option<PathBuf>,
    #[serde(rename = "snap-length", alias = "snap_length")]
    snap_length: Option<u32>,
    #[serde(rename = "capture-memory", alias = "capture_memory")]
    capture_memory: Option<Bytes>,
    /// Settings; an unknown key is refused with its name.
    #[serde(flatten)]
    settings: toml::Table,
}

/// Defaults of the flags.
const SNAP_LENGTH: u32 = 128;
const CAPTURE_MEMORY: Bytes = Bytes::new(256_000_000);

/// Reads all links of a file.
///
/// # Errors
/// Exit code 2: an unreadable file, or an error in it with the link's name.
pub(crate) fn read(path: &Path) -> Result<Vec<Link>> {
    let with_path = |error: &dyn std::fmt::Display| {
        Refusal::usage(format!("--config {}: {error}", path.display()))
    };
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
        if self.capture.is_none() && (self.snap_length.is_some() || self.capture_memory.is_some()) {
            let message = "snap-length and capture-memory have no effect without a capture: give capture, too";
            return Err(Refusal::usage(message));
        }
        let options = options(&self.settings);
        let options: Vec<_> = options.iter().map(|(key, text)| (*key, &**text)).collect();
        let [forward, backward] = directions(&options, mtu, self.memory, base)?;
        let delivery = self.delivery.as_deref().unwrap_or("batched");
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
            capture: self.capture.map(|path| CaptureOptions {
                path: base.join(path),
                snap_length: self.snap_length.unwrap_or(SNAP_LENGTH),
                memory: self.capture_memory.unwrap_or(CAPTURE_MEMORY),
            }),
        })
    }
}

/// Returns the options of `longhaul link` that a table of settings means, with their values.
fn options(table: &toml::Table) -> Vec<(&str, String)> {
    let mut all = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Array(texts) if ["at", "forward", "backward"].contains(&&**key) => {
                all.extend(texts.iter().map(|one| (&**key, text_of(one))));
            }
            toml::Value::Table(direction) => {
                let settings = options(direction).into_iter();
                all.extend(settings.map(|(name, value)| (&**key, format!("{name}={value}"))));
            }
            one => all.push((key, value_of(key, one))),
        }
    }
    all
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
