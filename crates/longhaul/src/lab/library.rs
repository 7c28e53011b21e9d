// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where scenarios come from: those built into the binary, and files.

use crate::exit::Refusal;
use std::path::Path;

/// The files of `scenarios/`, so that an installed binary has them.
const BUILT_IN: [(&str, &str); 11] = [
    (
        "nec-dvd",
        include_str!("../../../../scenarios/nec-dvd.toml"),
    ),
    (
        "whole-path",
        include_str!("../../../../scenarios/whole-path.toml"),
    ),
    (
        "link-beside-veth",
        include_str!("../../../../scenarios/link-beside-veth.toml"),
    ),
    (
        "link-long-fat",
        include_str!("../../../../scenarios/link-long-fat.toml"),
    ),
    (
        "relay-objects",
        include_str!("../../../../scenarios/relay-objects.toml"),
    ),
    (
        "split-count",
        include_str!("../../../../scenarios/split-count.toml"),
    ),
    (
        "nec-background",
        include_str!("../../../../scenarios/nec-background.toml"),
    ),
    (
        "relay-efficiency",
        include_str!("../../../../scenarios/relay-efficiency.toml"),
    ),
    (
        "link-proofs",
        include_str!("../../../../scenarios/link-proofs.toml"),
    ),
    (
        "striping",
        include_str!("../../../../scenarios/striping.toml"),
    ),
    ("decp", include_str!("../../../../scenarios/decp.toml")),
];

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
