// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where scenarios come from: those built into the binary, and files.

use crate::exit::Refusal;
use std::path::Path;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml")))),*]
    };
}

/// The files of `scenarios/`, so that an installed binary has them: the papers' experiments one after the
/// other, then longhaul's own.
const BUILT_IN: &[(&str, &str)] = files! {
    "nec-dvd" "nec-clients" "nec-linux" "nec-aggregate" "nec-background"
    "reservoir-nic" "reservoir-24000km"
    "split-count" "split-internet"
    "relay-objects" "relay-efficiency" "striping"
    "link-long-fat" "link-proofs" "link-beside-veth" "whole-path"
};

/// A scenario's text and where it was found.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// File name without `.toml`.
    pub(crate) name: String,
    /// For error messages: a path, or the name of the built-in one.
    pub(crate) origin: String,
    pub(crate) text: String,
}

/// The names of all built-in scenarios.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The built-in scenario called `wanted`, or the file at that path.
pub(crate) fn find(wanted: &str) -> anyhow::Result<Source> {
    let built_in = BUILT_IN.iter().find(|(name, _)| *name == wanted);
    if let Some((name, text)) = built_in {
        let origin = format!("{name} (built in)");
        return Ok(Source {
            name: (*name).to_owned(),
            origin,
            text: (*text).to_owned(),
        });
    }
    let path = Path::new(wanted);
    let text = std::fs::read_to_string(path).map_err(|error| {
        let known: Vec<_> = names().collect();
        Refusal::usage(format!(
            "no scenario is called {wanted:?} and it is not a file that can be read ({error}); \
             built in: {}",
            known.join(", ")
        ))
    })?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Source {
        name,
        origin: wanted.to_owned(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_under_scenarios_is_built_in() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
            .collect();
        files.sort();
        let mut built_in: Vec<&str> = names().collect();
        built_in.sort_unstable();
        assert_eq!(files, built_in);
    }
}
