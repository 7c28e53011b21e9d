// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons on a host beside the flows: relays and `longhaul decp`.

use super::config_error::{CheckResult, locate_error};
#[cfg(test)]
use super::schema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Relay on a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Relay {
    /// Whether it runs in this cell.
    #[serde(
        default = "super::notation::default_true",
        deserialize_with = "super::notation::bool_or_all"
    )]
    #[cfg_attr(test, schemars(with = "schema::BoolOrAll"))]
    pub(crate) enabled: bool,
    /// Host that it runs on, if that is not its name.
    pub(crate) host: Option<String>,
    #[serde(default)]
    pub(crate) program: RelayProgram,
    /// Configuration file of `longhaul relay`. Command-line options have precedence.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::RelayConfig"))]
    pub(crate) config: Table,
    /// All other keys: options of `longhaul relay`. Other programs support some of them.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    pub(crate) options: Table,
}

/// Instance of `longhaul decp` on a host that sends flows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Decp {
    /// Whether it runs in this cell.
    #[serde(
        default = "super::notation::default_true",
        deserialize_with = "super::notation::bool_or_all"
    )]
    #[cfg_attr(test, schemars(with = "schema::BoolOrAll"))]
    pub(crate) enabled: bool,
    /// All other keys: options of `longhaul decp`.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    pub(crate) options: Table,
}

/// Relay program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

    /// Name in scenarios.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::Haproxy => "haproxy",
            Self::Dante => "dante",
            Self::Squid => "squid",
        }
    }

    /// Options of `longhaul relay` that another program supports.
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Longhaul => &[],
            Self::Haproxy => &["forward", "allow_from"],
            Self::Dante => &["socks5", "peer", "allow_from"],
            Self::Squid => &["http", "peer", "allow_from"],
        }
    }
}

/// Checks each congestion control of a relay's legs, in its options and in the profiles of its
/// configuration.
pub(crate) fn check_leg_controls(
    relay: &Relay,
    mut check: impl FnMut(&str, &str) -> CheckResult,
) -> CheckResult {
    let mut check_text = |key: &str, value: Option<&Value>| {
        let text = value.and_then(Value::as_str);
        locate_error(key, text.map_or(Ok(()), |text| check(key, text)))
    };
    let options = relay.options.iter();
    let mut options = options.filter(|(key, _)| is_leg_control(key));
    options.try_for_each(|(key, value)| check_text(key, Some(value)))?;
    let profiles = relay.config.get("profile").and_then(Value::as_table);
    let mut profiles = profiles.into_iter().flatten();
    let profiles = profiles.try_for_each(|(name, profile)| {
        locate_error(
            name,
            check_text("congestion_control", profile.get("congestion_control")),
        )
    });
    locate_error("config", locate_error("profile", profiles))
}

/// Whether an option of a relay names the congestion control of a leg.
fn is_leg_control(key: &str) -> bool {
    let key = key.replace('-', "_");
    matches!(key.as_str(), "cc_downstream" | "cc_upstream")
}

/// Returns the congestion controls of a relay's legs, in its options and in the profiles of its
/// configuration.
pub(crate) fn leg_controls(relay: &mut Relay) -> Vec<&mut String> {
    let options = relay.options.iter_mut();
    let options = options.filter_map(|(key, value)| is_leg_control(key).then_some(value));
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

/// Returns the relay without the congestion controls of its legs. Before they are registered, the
/// relay would refuse their names.
pub(crate) fn without_leg_controls(relay: &Relay) -> Relay {
    let mut relay = relay.clone();
    relay.options.retain(|key, _| !is_leg_control(key));
    profiles(&mut relay.config).for_each(|profile| drop(profile.remove("congestion_control")));
    relay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_is_enabled_if_all_conditions_hold() {
        let enabled = |text: &str| toml::from_str::<Relay>(text).map(|relay| relay.enabled);
        assert!(enabled("").unwrap());
        assert!(!enabled("enabled = false").unwrap());
        assert!(enabled("enabled = [true, true]").unwrap());
        assert!(!enabled("enabled = [true, false]").unwrap());
        assert!(
            enabled("enabled = 'yes'")
                .unwrap_err()
                .to_string()
                .contains("a boolean or a list")
        );
    }
}
