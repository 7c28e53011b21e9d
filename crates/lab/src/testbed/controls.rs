// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls of a scenario on this machine. Longhaul's own are registered by this process
//! and vanish when it ends or is killed.

use crate::{
    experiment::ExperimentPlan,
    scenario::{
        CcSpec, Flow, Scenario,
        config_error::{CheckResult, ConfigError, check_each, locate_error},
        relay::{check_leg_controls, leg_controls},
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    Error,
    choice::{self, Availability, Choice},
    loader::{self, TransientCc},
    math::{Algorithm, algorithm, parameters},
};
use longhaul_results::result::CongestionControl;
use std::collections::BTreeMap;
use strsim::levenshtein;

/// Resolution of a name on this machine: a control of the kernel, or longhaul's with its
/// parameters.
enum Resolution {
    Kernel(String),
    Longhaul(Algorithm, Vec<u32>),
}

impl Resolution {
    /// Resolves a control. With parameters it is longhaul's own, even if the kernel has one of that
    /// name.
    fn of(control: &CcSpec) -> Result<Self> {
        let values = control.values().map_err(Refusal::usage)?;
        let name = control.name.as_deref().unwrap_or_default();
        match (choice::choose(name), values, algorithm(name)) {
            (_, Some(values), Some(algorithm)) => Ok(Self::Longhaul(algorithm, values)),
            (Some(Choice::Ours(algorithm)), ..) => {
                Ok(Self::Longhaul(algorithm, parameters::defaults(algorithm)))
            }
            (Some(Choice::Kernel(name)), ..) => Ok(Self::Kernel(name)),
            (None, ..) => Err(Refusal::unsupported(describe_unknown(name))),
        }
    }
}

/// Message for an unknown control: neither this kernel nor longhaul nor Linux has it. It is a typo,
/// or one that another program registers (struct_ops) and has not registered yet.
fn describe_unknown(name: &str) -> String {
    let longhauls = longhaul_congestion::math::algorithms().map(Algorithm::system_name);
    let mut known: Vec<_> = choice::registered().into_iter().chain(longhauls).collect();
    known.sort_unstable();
    known.dedup();
    let distance = |known: &&String| levenshtein(known, name);
    let nearest = known
        .iter()
        .min_by_key(distance)
        .filter(|known| distance(known) <= 2);
    let suggestion = nearest.map_or(String::new(), |one| format!("; did you mean {one:?}?"));
    format!(
        "no congestion control {name:?} on this machine{suggestion} (there are: {})",
        known.join(", ")
    )
}

/// Congestion controls of an experiment, registered for the time of its runs.
#[derive(Debug, Default)]
pub(crate) struct CongestionControls {
    provided: Vec<CongestionControl>,
    /// Registrations of longhaul's controls, by algorithm and parameters.
    registered: BTreeMap<(&'static str, Vec<u32>), TransientCc>,
}

/// Refuses unknown names of congestion controls.
pub(crate) fn check_names(experiment: &ExperimentPlan) -> Result<()> {
    for cell in &experiment.cells {
        for scenario in [&cell.scenario, &cell.quick_scenario] {
            let checked = check_named_controls(scenario, |_, text| check_exists(text));
            let refuse = |error: ConfigError| experiment.file.refuse(&error.in_cell(&cell.name()));
            checked.map_err(refuse)?;
        }
    }
    Ok(())
}

/// Refuses controls that this machine cannot provide. Nothing is changed; no module is loaded for
/// it.
pub(crate) fn check(experiment: &ExperimentPlan) -> Result<()> {
    requested_controls(experiment)
        .iter()
        .try_for_each(check_available)
}

/// Checks that a name exists, whether this machine has it or not.
fn check_exists(text: &str) -> CheckResult {
    let control: CcSpec = text.parse()?;
    let name = control.name.as_deref().unwrap_or("reno");
    let exists = choice::availability(name) != Availability::Absent || choice::is_in_linux(name);
    if exists {
        Ok(())
    } else {
        Err(describe_unknown(name).into())
    }
}

/// Checks that this machine has a control, or that this process can register it.
fn check_available(control: &CcSpec) -> Result<()> {
    let name = control.name.as_deref().unwrap_or_default();
    let has_parameters = control.values().map_err(Refusal::usage)?.is_some();
    match choice::availability(name) {
        _ if has_parameters => loader::permitted().map_err(Error::refusal),
        Availability::Ours => loader::permitted().map_err(Error::refusal),
        Availability::Registered => Ok(()),
        Availability::Module if choice::may_load_modules() => Ok(()),
        Availability::Module => Err(Refusal::unsupported(format!(
            "congestion control {name:?} is a module that this kernel has not loaded; load it: sudo modprobe {}",
            choice::module(name)
        ))),
        Availability::Absent => Err(Refusal::unsupported(format!(
            "congestion control {name:?} is Linux's, but this kernel was built without it ({})",
            choice::module(name)
        ))),
    }
}

/// Checks every congestion control that a run names, with its key. Those of simulated flows are
/// checked when their connections are planned.
fn check_named_controls(
    scenario: &Scenario,
    mut check: impl FnMut(&str, &str) -> CheckResult,
) -> CheckResult {
    let mut check_setting = |text: &Option<String>| match text {
        Some(text) => locate_error("congestion_control", check("congestion_control", text)),
        None => Ok(()),
    };
    check_setting(&scenario.congestion_control)?;
    let mut hosts = scenario.hosts.iter();
    locate_error(
        "hosts",
        hosts.try_for_each(|(name, host)| {
            locate_error(name, check_setting(&host.congestion_control))
        }),
    )?;
    let mut relays = scenario.relays.iter().filter(|(_, relay)| relay.enabled);
    locate_error(
        "relays",
        relays.try_for_each(|(name, relay)| {
            locate_error(name, check_leg_controls(relay, &mut check))
        }),
    )?;
    let flows = check_each(&scenario.flows, |flow| {
        let on_sockets = flow.enabled && flow.program.is_tcp() && !scenario.simulated;
        match flow.cc.as_ref().filter(|_| on_sockets) {
            Some(control) => locate_error("cc", check("cc", &control.to_string())),
            None => Ok(()),
        }
    });
    locate_error("flows", flows)
}

/// Returns every control that some run of the experiment names, once.
fn requested_controls(experiment: &ExperimentPlan) -> Vec<CcSpec> {
    let scenarios = experiment
        .cells
        .iter()
        .flat_map(|cell| [&cell.scenario, &cell.quick_scenario])
        .filter(|scenario| !scenario.simulated);
    let mut requested: Vec<CcSpec> = scenarios.flat_map(controls_of).collect();
    requested.retain(|control| control.name.is_some());
    for control in &mut requested {
        control.paced = false;
    }
    requested.sort();
    requested.dedup();
    requested
}

fn controls_of(scenario: &Scenario) -> Vec<CcSpec> {
    let hosts = scenario.hosts.values();
    let hosts = hosts.filter_map(|host| host.congestion_control.as_ref());
    let routes = hosts.chain(&scenario.congestion_control);
    let relays = scenario.relays.values().filter(|relay| relay.enabled);
    let legs = relays.flat_map(|relay| {
        let mut relay = relay.clone();
        let named = leg_controls(&mut relay).into_iter();
        named.map(|text| text.clone()).collect::<Vec<_>>()
    });
    let flows = scenario.flows.iter();
    let flows = flows.filter(|flow| flow.enabled && flow.program.is_tcp());
    let flows = flows.filter_map(|flow| flow.cc.clone());
    routes
        .cloned()
        .chain(legs)
        .filter_map(|text| text.parse().ok())
        .chain(flows)
        .collect()
}

impl CongestionControls {
    /// Resolves all controls, and registers those of longhaul.
    pub(crate) fn provide(experiment: &ExperimentPlan) -> Result<Self> {
        let mut controls = Self::default();
        for control in requested_controls(experiment) {
            let provided = controls.provide_one(&control)?;
            controls.provided.push(provided);
        }
        Ok(controls)
    }

    fn provide_one(&mut self, control: &CcSpec) -> Result<CongestionControl> {
        let requested = control.key().unwrap_or_default();
        Ok(match Resolution::of(control)? {
            Resolution::Kernel(name) => CongestionControl {
                requested,
                name,
                provider: "kernel".to_owned(),
                ..CongestionControl::default()
            },
            Resolution::Longhaul(algorithm, values) => CongestionControl {
                requested,
                name: self.register(algorithm, &values)?,
                provider: "longhaul".to_owned(),
                parameters: algorithm
                    .parameters()
                    .map(|parameter| parameter.name.to_owned())
                    .zip(values)
                    .collect(),
            },
        })
    }

    fn register(&mut self, algorithm: Algorithm, values: &[u32]) -> Result<String> {
        let key = (algorithm.name(), values.to_vec());
        if let Some(registered) = self.registered.get(&key) {
            return Ok(registered.name().to_owned());
        }
        let registered = loader::register_transient(algorithm, values).map_err(Error::refusal)?;
        let name = registered.name().to_owned();
        self.registered.insert(key, registered);
        Ok(name)
    }

    /// Provided controls, for the result.
    pub(crate) fn provided(&self) -> Vec<CongestionControl> {
        self.provided.clone()
    }

    /// Returns `scenario` with the kernel's names of its congestion controls.
    pub(crate) fn resolve(&self, scenario: &Scenario) -> Scenario {
        let mut resolved = scenario.clone();
        let hosts = resolved.hosts.values_mut();
        let hosts = hosts.map(|host| &mut host.congestion_control);
        let routes = hosts.chain([&mut resolved.congestion_control]).flatten();
        for text in routes.chain(resolved.relays.values_mut().flat_map(leg_controls)) {
            if let Some(name) = text.parse().ok().and_then(|control| self.name_of(&control)) {
                *text = name;
            }
        }
        for Flow { cc, .. } in &mut resolved.flows {
            if let Some(control) = cc {
                control.name = self.name_of(control);
                control.settings.clear();
            }
        }
        resolved
    }

    fn name_of(&self, control: &CcSpec) -> Option<String> {
        let key = control.key()?;
        let found = self
            .provided
            .iter()
            .find(|provided| provided.requested == key);
        found.map(|provided| provided.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_names_to_the_provided_ones() {
        let provided = |requested: &str, name: &str| CongestionControl {
            requested: requested.to_owned(),
            name: name.to_owned(),
            ..CongestionControl::default()
        };
        let controls = CongestionControls {
            provided: vec![
                provided("bic:ack_shift=3", "lh_bic.2"),
                provided("reno", "reno"),
            ],
            ..CongestionControls::default()
        };
        let scenario: Scenario = toml::from_str(
            "title = 't'\nquestion = 'q'\ncongestion_control = 'reno'\nlinks = []\n\
             [hosts.a]\ncongestion_control = 'bic:ack_shift=3'\n\
             [relays.a]\ncc_downstream = 'bic:ack_shift=3'\ncc-upstream = 'reno'\n\
             config.profile.wan.congestion_control = 'bic:ack_shift=3'\n\
             [[flows]]\nname = 'f'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\n\
             cc = 'bic:ack_shift=3+pace'",
        )
        .unwrap();
        let resolved = controls.resolve(&scenario);
        assert_eq!(resolved.congestion_control.as_deref(), Some("reno"));
        let own = resolved.hosts["a"].congestion_control.as_deref();
        assert_eq!(own, Some("lh_bic.2"));
        assert_eq!(
            resolved.flows[0].cc.as_ref().unwrap().to_string(),
            "lh_bic.2+pace"
        );
        let relay = &resolved.relays["a"];
        assert_eq!(relay.options["cc_downstream"].as_str(), Some("lh_bic.2"));
        assert_eq!(relay.options["cc-upstream"].as_str(), Some("reno"));
        let profile = &relay.config["profile"]["wan"];
        assert_eq!(profile["congestion_control"].as_str(), Some("lh_bic.2"));
    }

    /// Regression: relays were left out, so their legs requested controls that nobody had
    /// registered.
    #[test]
    fn finds_all_controls_of_a_scenario() {
        let scenario: Scenario = toml::from_str(
            "title = 't'\nquestion = 'q'\ncongestion_control = 'cubic'\nlinks = []\n\
             [hosts.a]\ncongestion_control = 'lh_htcp'\n\
             [relays.a]\ncc_downstream = 'lh_bic'\ncc_upstream = 'lh_bic:ack_shift=3'\n\
             config.profile.wan.congestion_control = 'lh_scalable'\n\
             [relays.b]\nenabled = false\ncc_downstream = 'lh_hstcp'\n\
             [[flows]]\nname = 'f'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\ncc = 'reno+pace'",
        )
        .unwrap();
        let named = controls_of(&scenario);
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        let expected = [
            "lh_htcp",
            "cubic",
            "lh_bic",
            "lh_bic:ack_shift=3",
            "lh_scalable",
            "reno+pace",
        ];
        assert_eq!(named, expected);
    }
}
