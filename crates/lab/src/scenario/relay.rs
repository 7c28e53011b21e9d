// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands on a host beside the flows: a relay, or `longhaul decp`.

use super::fault::{Checked, at};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A relay on a host of the path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Relay {
    /// Whether it runs in this cell.
    #[serde(
        default = "super::notation::yes",
        deserialize_with = "super::notation::all_hold"
    )]
    pub(crate) when: bool,
    /// Where it runs, if its name is not the host's.
    pub(crate) host: Option<String>,
    #[serde(default)]
    pub(crate) program: RelayProgram,
    /// Destination ports whose connections its transparent listener takes.
    #[serde(default)]
    pub(crate) intercept: Vec<u16>,
    /// What stands in the configuration file of `longhaul relay`; flags come on top.
    #[serde(default)]
    pub(crate) config: Table,
    /// Every other key: an option of `longhaul relay`, of which other programs know some.
    #[serde(flatten)]
    pub(crate) options: Table,
}

/// `longhaul decp` beside the flows that a host sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Decp {
    /// Whether it runs in this cell.
    #[serde(
        default = "super::notation::yes",
        deserialize_with = "super::notation::all_hold"
    )]
    pub(crate) when: bool,
    /// Every other key: an option of `longhaul decp`.
    #[serde(flatten)]
    pub(crate) options: Table,
}

/// What relays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RelayProgram {
    #[default]
    Longhaul,
    /// HAProxy in its TCP mode.
    Haproxy,
    /// Dante's `danted`: SOCKS5.
    Dante,
    /// Squid without its cache: HTTP.
    Squid,
}

impl RelayProgram {
    pub(crate) const ALL: [Self; 4] = [Self::Longhaul, Self::Haproxy, Self::Dante, Self::Squid];

    /// As scenarios write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::Haproxy => "haproxy",
            Self::Dante => "dante",
            Self::Squid => "squid",
        }
    }

    /// The options of `longhaul relay` that another program knows.
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Longhaul => &[],
            Self::Haproxy => &["forward", "allow_from"],
            Self::Dante => &["socks5", "peer", "allow_from"],
            Self::Squid => &["http", "peer", "allow_from"],
        }
    }
}

/// Those of a relay's legs: among its options, and in the profiles of its configuration.
pub(crate) fn each_of_legs(relay: &Relay, mut judge: impl FnMut(&str, &str) -> Checked) -> Checked {
    let mut named = |key: &str, value: Option<&Value>| {
        let text = value.and_then(Value::as_str);
        at(key, text.map_or(Ok(()), |text| judge(key, text)))
    };
    let options = relay.options.iter();
    let mut options = options.filter(|(key, _)| is_of_legs(key));
    options.try_for_each(|(key, value)| named(key, Some(value)))?;
    let profiles = relay.config.get("profile").and_then(Value::as_table);
    let mut profiles = profiles.into_iter().flatten();
    let profiles = profiles.try_for_each(|(name, profile)| {
        at(
            name,
            named("congestion_control", profile.get("congestion_control")),
        )
    });
    at("config", at("profile", profiles))
}

/// Whether an option of a relay names the congestion control of its legs.
fn is_of_legs(key: &str) -> bool {
    matches!(key.replace('-', "_").as_str(), "cc_near" | "cc_far")
}

/// The congestion controls that a relay names for its legs: among its options, and in the profiles of its
/// configuration.
pub(crate) fn of_legs(relay: &mut Relay) -> Vec<&mut String> {
    let options = relay.options.iter_mut();
    let options = options.filter_map(|(key, value)| is_of_legs(key).then_some(value));
    let profiles = profiles(&mut relay.config);
    let profiles = profiles.filter_map(|profile| profile.get_mut("congestion_control"));
    let text = |value| match value {
        &mut Value::String(ref mut text) => Some(text),
        _ => None,
    };
    options.chain(profiles).filter_map(text).collect()
}

fn profiles(config: &mut Table) -> impl Iterator<Item = &mut Table> {
    let all = config.get_mut("profile").and_then(Value::as_table_mut);
    let each = all.into_iter().flatten();
    each.filter_map(|(_, profile)| profile.as_table_mut())
}

/// The relay without the congestion controls of its legs: before they are provided, it would find none of
/// their names.
pub(crate) fn left_out(relay: &Relay) -> Relay {
    let mut relay = relay.clone();
    relay.options.retain(|key, _| !is_of_legs(key));
    profiles(&mut relay.config).for_each(|profile| drop(profile.remove("congestion_control")));
    relay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_runs_when_all_that_it_names_is_so() {
        let when = |text: &str| toml::from_str::<Relay>(text).map(|relay| relay.when);
        assert!(when("").unwrap());
        assert!(!when("when = false").unwrap());
        assert!(when("when = [true, true]").unwrap());
        assert!(!when("when = [true, false]").unwrap());
        assert!(
            when("when = 'yes'")
                .unwrap_err()
                .to_string()
                .contains("a boolean or a list")
        );
    }
}
