// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of a testbed: the emulator's arguments and files, and links with the losses of another. Such a link makes
//! the same random decisions, so with the same options both lose the same packets.

use super::{AddressedLink, Topology};
use crate::scenario::{
    Link, LinkKind, Scenario,
    config_error::{CheckResult, ConfigError, check_each, ensure, locate_error},
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
        longhaul_link::link_configs(&arguments)
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
        .and_then(|arguments| longhaul_link::scheduled_configs(&arguments));
    configs.map_err(|error| error.to_string())
}

/// Warnings of the emulator about the links of a scenario.
pub(crate) fn warnings(scenario: &Scenario) -> BTreeSet<String> {
    let topology = Topology::of(scenario);
    let links = scenario.links.iter().zip(&topology.addressed_links);
    let emulated = links.filter(|(link, _)| link.kind == LinkKind::Emulated);
    // Settings that are refused are reported by the check of the scenario.
    let warnings = emulated.filter_map(|(link, addressed_link)| {
        longhaul_link::warnings(&arguments(link, addressed_link).ok()?).ok()
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

/// Checks that each link with the losses of another names one that has its own.
pub(crate) fn check_same_losses(links: &[Link]) -> CheckResult {
    let has_own = |name: &str| {
        links
            .iter()
            .any(|l| l.name == name && l.same_losses_as.is_none())
    };
    let checked = check_each(links, |link| {
        let valid = link.same_losses_as.as_deref().is_none_or(has_own);
        let problem = || {
            format!(
                "link {:?}: no link of this name has its own losses",
                link.name
            )
        };
        locate_error("same_losses_as", ensure(valid, problem))
    });
    locate_error("links", checked)
}

/// Index of the link whose random decisions the link at `index` uses: that whose losses it has, or
/// itself.
pub(crate) fn seed_index(links: &[Link], index: usize) -> usize {
    let same = links[index].same_losses_as.as_ref();
    same.and_then(|name| links.iter().position(|link| link.name == *name))
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
    fn link_with_the_losses_of_another_shares_its_seed() {
        let links = links("same_losses_as = 'a'");
        check_same_losses(&links).unwrap();
        assert_eq!((seed_index(&links, 0), seed_index(&links, 1)), (0, 0));
    }

    #[test]
    fn refuses_losses_of_an_unknown_link_or_of_itself() {
        for name in ["c", "b"] {
            let links = links(&format!("same_losses_as = '{name}'"));
            assert!(check_same_losses(&links).is_err(), "{name}");
        }
    }

    #[test]
    fn other_links_have_their_own_seeds() {
        assert_eq!(seed_index(&links("loss = 0.5"), 1), 1);
    }
}
