// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of a testbed: the emulator's arguments and files, and links that are the same as another. Such
//! a link has the same options and the same random decisions, so both treat the same packets alike.

use super::{AddressedLink, Topology};
use crate::scenario::{
    Link, LinkKind, Scenario,
    config_error::{CheckResult, ConfigError, locate_error},
    value::flags,
};
use anyhow::Result;
use longhaul_netem::{LinkConfig, Schedule};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use toml::Value;

/// Emulator configuration of a link in both directions.
///
/// # Errors
/// The emulator would refuse the options.
pub(crate) fn link_configs(
    link: &Link,
    addressed_link: &AddressedLink,
) -> Result<[LinkConfig; 2], String> {
    let link_configs = arguments(link, addressed_link).and_then(|mut arguments| {
        // The file is not known yet; the other options say how to write it.
        arguments.extend(link.capture.then(|| "--capture=-".to_owned()));
        longhaul_emulator::link_configs(&arguments)
    });
    link_configs.map_err(|error| error.to_string())
}

/// Emulator configuration of a link as seen from the host `from`: first for packets that leave it,
/// then for those that return.
pub(crate) fn link_configs_from(
    link: &Link,
    addressed_link: &AddressedLink,
    from: &str,
) -> Result<[LinkConfig; 2], String> {
    let [right, left] = link_configs(link, addressed_link)?;
    Ok(if link.endpoints[0] == from {
        [right, left]
    } else {
        [left, right]
    })
}

/// Emulator configuration of a link in both directions, with its scheduled changes.
pub(crate) fn configs_with_schedules(
    link: &Link,
    addressed_link: &AddressedLink,
) -> Result<[(LinkConfig, Schedule); 2], String> {
    let configs = arguments(link, addressed_link)
        .and_then(|arguments| longhaul_emulator::scheduled_configs(&arguments));
    configs.map_err(|error| error.to_string())
}

/// Warnings of the emulator about the links of a scenario.
pub(crate) fn warnings(scenario: &Scenario) -> BTreeSet<String> {
    let topology = Topology::of(scenario);
    let links = scenario.links.iter().zip(&topology.addressed_links);
    let emulated = links.filter(|(link, _)| link.kind == LinkKind::Emulated);
    // Settings that are refused are reported by the check of the scenario.
    let warnings = emulated.filter_map(|(link, addressed_link)| {
        longhaul_emulator::warnings(&arguments(link, addressed_link).ok()?).ok()
    });
    warnings.flatten().collect()
}

pub(crate) fn arguments(link: &Link, addressed_link: &AddressedLink) -> Result<Vec<String>> {
    let mut arguments = ends(addressed_link);
    arguments.extend(["--name".to_owned(), link.name.clone()]);
    arguments.extend(["--mtu".to_owned(), link.mtu.to_string()]);
    arguments.extend(flags(&link.options).map_err(anyhow::Error::msg)?);
    Ok(arguments)
}

fn ends(addressed_link: &AddressedLink) -> Vec<String> {
    let sides = ["--left", "--right"].into_iter().zip(&addressed_link.ends);
    sides
        .flat_map(|(side, (host, address))| {
            [
                side.to_owned(),
                format!("{host}:{}:{address}", addressed_link.name),
            ]
        })
        .collect()
}

/// File for the emulator's records.
pub(crate) fn counters_file(link: &Link, directory: &Path) -> PathBuf {
    directory.join(format!("link-{}.jsonl", link.name))
}

/// File for the emulator's capture, if the link has one.
pub(crate) fn capture_file(link: &Link, directory: &Path) -> PathBuf {
    directory.join(format!("link-{}.pcapng", link.name))
}

/// Converts the settings of one direction to the form of flags: a table `backward = { loss = "1%" }` becomes the list
/// `["loss=1%"]`.
pub(crate) fn list_direction_settings(links: &mut [Link]) -> CheckResult {
    for (index, link) in links.iter_mut().enumerate() {
        for direction in ["forward", "backward"] {
            if let Some(Value::Table(settings)) = link.options.get(direction) {
                let settings = flags(settings).map_err(ConfigError::from);
                let settings = locate_error(
                    "links",
                    locate_error(index, locate_error(direction, settings)),
                )?;
                let list = settings
                    .iter()
                    .map(|flag| Value::from(flag.trim_start_matches("--")));
                link.options
                    .insert(direction.to_owned(), Value::Array(list.collect()));
            }
        }
    }
    Ok(())
}

/// Copies options to every link that is the same as another.
pub(crate) fn resolve_same_as(links: &mut [Link]) -> CheckResult {
    for index in 0..links.len() {
        if let Some(wanted) = links[index].same_as.clone() {
            locate_error(
                "links",
                locate_error(index, copy_options(links, index, &wanted)),
            )?;
        }
    }
    Ok(())
}

fn copy_options(links: &mut [Link], index: usize, wanted: &str) -> CheckResult {
    let refused = |key: &str, problem: &str| {
        let error = ConfigError::from(format!("same_as = {wanted:?} {problem}"));
        locate_error(
            key,
            Err(error.with_owner(format!("link {:?}", links[index].name))),
        )
    };
    let template = links
        .iter()
        .find(|link| link.name == wanted && link.same_as.is_none());
    let Some(template) = template.cloned() else {
        return refused("same_as", "names no link that has options of its own");
    };
    if let Some(key) = links[index].options.keys().next() {
        return refused(key, "excludes options of its own");
    }
    let copy = &mut links[index];
    (copy.kind, copy.mtu, copy.options) = (template.kind, template.mtu, template.options);
    Ok(())
}

/// Index of the link whose random decisions the link at `index` uses: the one that it is the same as, or
/// itself.
pub(crate) fn seed_index(links: &[Link], index: usize) -> usize {
    let same_as = links[index].same_as.as_ref();
    same_as
        .and_then(|name| links.iter().position(|link| link.name == *name))
        .unwrap_or(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(second: &str) -> Vec<Link> {
        let text = format!(
            "[[links]]\nname = 'a'\nendpoints = ['x', 'y']\nmtu = 9000\nloss = 0.01\n\
             [[links]]\nname = 'b'\nendpoints = ['u', 'v']\n{second}"
        );
        let mut table: toml::Table = toml::from_str(&text).unwrap();
        table.remove("links").unwrap().try_into().unwrap()
    }

    #[test]
    fn settings_of_a_direction_may_be_a_table_or_a_list() {
        let mut both = links("backward = { loss = 0.001, max_ack_delay = '5ms' }");
        list_direction_settings(&mut both).unwrap();
        let list: Value = vec!["loss=0.1%", "max-ack-delay=5ms"].into();
        assert_eq!(both[1].options["backward"], list);
        let mut listed = links("backward = ['loss=0.1%', 'max-ack-delay=5ms']");
        list_direction_settings(&mut listed).unwrap();
        assert_eq!(listed[1].options["backward"], list);
    }

    #[test]
    fn same_as_copies_the_options_and_shares_the_seed() {
        let mut links = links("same_as = 'a'");
        resolve_same_as(&mut links).unwrap();
        assert_eq!(links[1].options, links[0].options);
        assert_eq!(links[1].mtu, 9000);
        assert_eq!(links[1].endpoints, ["u", "v"]);
        assert_eq!((seed_index(&links, 0), seed_index(&links, 1)), (0, 0));
    }

    #[test]
    fn same_as_needs_another_link_and_no_own_options() {
        let refused = |second| resolve_same_as(&mut links(second)).unwrap_err().to_string();
        assert!(
            refused("same_as = 'c'").contains("'c'") || refused("same_as = 'c'").contains("\"c\"")
        );
        assert!(refused("same_as = 'b'").contains("names no link"));
        assert!(refused("same_as = 'a'\nloss = 0.5").contains("excludes"));
    }

    #[test]
    fn link_without_same_as_has_its_own_seed() {
        assert_eq!(seed_index(&links("loss = 0.5"), 1), 1);
    }
}
