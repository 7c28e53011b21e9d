// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of a testbed: the emulator's arguments and files, their changes with time, and links with the losses of another.
//! Such a link makes the same random decisions, so with the same options both lose the same packets.

use super::AddressedLink;
use crate::{
    command_check,
    scenario::{
        Link, LinkKind, Scenario,
        config_error::{CheckResult, ConfigError, check_each, ensure, locate_error},
        value::flags,
    },
};
use longhaul_netem::{LinkConfig, ScheduledConfig, Setting};
use longhaul_results::result::{Event, format_value};
use longhaul_units::Time;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Settings of an emulated link from left to right and from right to left, with their changes.
///
/// # Errors
/// The emulator would refuse the options.
pub(crate) fn configs(link: &Link) -> Result<[ScheduledConfig; 2], String> {
    let flags = flags(&link.options).map_err(|error| error.to_string())?;
    let options = flags.iter().filter_map(|flag| flag[2..].split_once('='));
    let is_setting = |(key, _): &(&str, &str)| {
        ["forward", "backward", "at"].contains(key) || Setting::is_key(key)
    };
    let options: Vec<_> = options.filter(is_setting).collect();
    let read = |name: &str| fs::read_to_string(name).map_err(|error| error.to_string());
    ScheduledConfig::of_options(&options, link.mtu, &read).map_err(|error| error.problem)
}

/// Settings of a link at its start as seen from the host `from`: first for packets that leave it, then for those that
/// return.
pub(crate) fn configs_from(link: &Link, from: &str) -> Result<[LinkConfig; 2], String> {
    let [right, left] = configs(link)?.map(|config| config.initial);
    Ok(if link.endpoints[0] == from {
        [right, left]
    } else {
        [left, right]
    })
}

/// Warnings about the settings of a scenario's links.
pub(crate) fn warnings(scenario: &Scenario) -> BTreeSet<String> {
    let links = scenario.links.iter();
    let emulated = links.filter(|link| link.kind == LinkKind::Emulated);
    // Settings that are refused are reported by the check of the scenario.
    let warnings = emulated.filter_map(|link| {
        let [forward, backward] = configs(link).ok()?.map(|config| config.warnings());
        let both = (&forward | &backward).into_iter();
        Some(both.map(|text| format!("link {}: {text}", link.name)))
    });
    warnings.flatten().collect()
}

/// Checks the options of an emulated link.
pub(crate) fn check(link: &Link, addressed_link: &AddressedLink) -> CheckResult {
    let mut arguments = arguments(link, addressed_link)?;
    // The file is not known yet; the other options say how to write it.
    arguments.extend(link.capture.then(|| "--capture=-".to_owned()));
    let checked = command_check::check("link", &arguments).map(drop);
    checked.map_err(|refused| ConfigError::of_option(&link.options, refused))
}

pub(crate) fn arguments(
    link: &Link,
    addressed_link: &AddressedLink,
) -> Result<Vec<String>, ConfigError> {
    let mut arguments = ends(addressed_link);
    arguments.extend(["--name".to_owned(), link.name.clone()]);
    arguments.extend(["--mtu".to_owned(), link.mtu.to_string()]);
    arguments.extend(flags(&link.options)?);
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

/// Returns all link changes during the run, in order of time. The clock of link n started
/// `offsets[n]` before the run. Simulated links start with the run and need no offset.
pub(crate) fn events(scenario: &Scenario, offsets: &[Time]) -> Vec<Event> {
    let changing = |link: &&Link| link.options.contains_key("at");
    let several = scenario.links.iter().filter(changing).count() > 1;
    let mut events = Vec::new();
    for (number, link) in scenario.links.iter().enumerate() {
        let offset_s = offsets.get(number).map_or(0.0, |time| time.as_secs_f64());
        let name = if several { &link.name } else { "" };
        let link_events = changes(link).into_iter().map(|(at, change)| Event {
            at_s: at.as_secs_f64() - offset_s,
            label: [name, &change].join(" ").trim_start().to_owned(),
        });
        events.extend(link_events.filter(|event| event.at_s >= 0.0));
    }
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// Changes of one link, such as "delay 19 → 40 ms". Changes at the same time are joined.
fn changes(link: &Link) -> Vec<(Time, String)> {
    // Invalid changes were refused when the scenario was opened.
    let Ok([forward, backward]) = configs(link) else {
        return Vec::new();
    };
    let both = forward
        .initial
        .settings()
        .into_iter()
        .zip(backward.initial.settings());
    let mut differing: Vec<_> = both.filter(|(one, other)| one != other).collect();
    let configs: Vec<LinkConfig> = forward.configs().collect();
    let mut joined: Vec<(Time, String)> = Vec::new();
    for ((at, _), pair) in forward.schedule.iter().zip(configs.windows(2)) {
        let settings = pair[0].settings().into_iter().zip(pair[1].settings());
        for ((key, before), (_, after)) in settings.filter(|(before, after)| before != after) {
            let format = |value: String| format_value(key, &value.into());
            let differs = differing
                .extract_if(.., |((known, _), _)| *known == key)
                .count()
                > 0;
            let before = (!differs).then(|| format(before));
            let change = describe_change(key, before, &format(after));
            match joined.last_mut() {
                Some((last, all)) if last == at => *all = format!("{all}, {change}"),
                _ => joined.push((*at, change)),
            }
        }
    }
    joined
}

/// Formats a change. If both values have the same unit, it is written once.
fn describe_change(key: &str, before: Option<String>, after: &str) -> String {
    let Some(before) = before else {
        return format!("{key} → {after}");
    };
    let before = match (before.split_once(' '), after.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => number,
        _ => &before,
    };
    format!("{key} {before} → {after}")
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

#[cfg(test)]
mod schedule_tests {
    use super::*;

    fn labels(links: &str, offsets: &[Time]) -> Vec<String> {
        let rest = "title = 't'\nquestion = 'q'\n[[flows]]\nname = 'f'\nprogram = 'iperf3'\n\
                    from = 'a'\nto = 'b'\nduration = '9s'\n";
        let scenario: Scenario = toml::from_str(&format!("{rest}{links}")).unwrap();
        let text = |event: Event| format!("{} {}", event.at_s, event.label);
        events(&scenario, offsets).into_iter().map(text).collect()
    }

    fn link(name: &str, options: &str) -> String {
        format!("[[links]]\nname = '{name}'\nendpoints = ['a', 'b']\n{options}\n")
    }

    #[test]
    fn describes_changes_with_old_and_new_value() {
        let wan = link(
            "wan",
            "delay = '19ms'\nrate = '1gbit'\nat = ['90s: delay 19ms', 'at 30s: delay=40ms', '30s: rate 250mbit', \
             '95s: rate unlimited', '99s: loss 1%']",
        );
        assert_eq!(
            labels(&wan, &[]),
            [
                "30 delay 19 → 40 ms, rate 1 Gbit/s → 250 Mbit/s",
                "90 delay 40 → 19 ms",
                "95 rate 250 Mbit/s → unlimited",
                "99 loss none → 1%"
            ]
        );
    }

    #[test]
    fn names_links_and_uses_each_links_clock() {
        let links = ["x", "y"].map(|name| link(name, "delay = '1ms'\nat = ['3s: delay 2ms']"));
        let offsets = [500, 4000].map(Time::from_millis);
        assert_eq!(labels(&links.concat(), &offsets), ["2.5 x delay 1 → 2 ms"]);
    }

    #[test]
    fn omits_an_initial_value_that_differs_between_directions() {
        let wan = link(
            "wan",
            "rate = '1gbit'\nforward = ['rate=2gbit']\nat = ['3s: rate 5gbit', '4s: rate 1gbit']",
        );
        assert_eq!(
            labels(&wan, &[]),
            ["3 rate → 5 Gbit/s", "4 rate 5 → 1 Gbit/s"]
        );
    }
}
