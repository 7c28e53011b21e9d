// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of scenarios: those built into the binary, and files.

use longhaul_command::exit::Refusal;
use std::{io, path::Path};

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// Files of `scenarios/`, so that an installed binary has them: the demo, then the papers' experiments, then
/// longhaul's own.
const BUILT_IN: &[(&str, &str)] = files! {
    "demo" "nec-dvd" "nec-clients" "nec-linux" "nec-winxp" "nec-aggregate" "nec-background"
    "ack-ratio" "ack-pacing"
    "reservoir-nic" "reservoir-ipg" "reservoir-spacing" "reservoir-24000km"
    "split-position" "split-count" "split-internet" "split-osaka"
    "jgn2-single" "jgn2-rtt-fairness" "jgn2-delay-switch" "jgn2-rate-switch" "jgn2-coexistence"
    "today" "today-fast"
    "simulate" "first-recipe" "relay-objects" "relay-efficiency" "striping" "copy-limit"
    "link-long-fat" "link-proofs" "link-beside-veth" "whole-path"
};

/// Scenario file: its text and where it comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Source {
    /// Name: the file name without `.toml`.
    pub(crate) name: String,
    /// Origin for error messages: a path, or the name of a built-in scenario.
    pub(crate) origin: String,
    pub(crate) text: String,
}

/// Returns the names of all built-in scenarios.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Finds the built-in scenario `wanted`, or the file at that path.
pub(crate) fn find(wanted: &str) -> anyhow::Result<Source> {
    let found = built_in(wanted).map_or_else(|| read(Path::new(wanted)), Ok);
    found.map_err(|error| Refusal::usage(not_found_message(wanted, &error)))
}

fn built_in(wanted: &str) -> Option<Source> {
    let (name, text) = BUILT_IN.iter().find(|(name, _)| *name == wanted)?;
    Some(Source {
        name: (*name).to_owned(),
        origin: format!("{name} (built in)"),
        text: (*text).to_owned(),
    })
}

fn read(path: &Path) -> io::Result<Source> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Source {
        name: name.into_owned(),
        origin: path.display().to_string(),
        text,
    })
}

fn not_found_message(wanted: &str, error: &io::Error) -> String {
    let known: Vec<_> = names().collect();
    format!(
        "{wanted:?} is neither a built-in scenario nor a file that can be read ({error}); \
         built in: {}",
        known.join(", ")
    )
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
