// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc load`.

use super::{config::Load, default_setting, output::print};
use anyhow::Result;
use longhaul_congestion::{
    Error,
    loader::{self, Loaded, Outcome, Request},
    math::Algorithm,
};
use serde_json::{Map, Value, json};
use std::os::fd::AsFd;

/// Runs the command.
pub(super) fn run(config: &Load) -> Result<()> {
    for (algorithm, values) in &config.wanted {
        let request = Request {
            parameters: values,
            count_acks: config.count_acks,
        };
        let outcome = loader::load(&config.pins, *algorithm, request, config.replace);
        let outcome = outcome.map_err(Error::refusal)?;
        if let Some(cgroup) = &config.cgroup {
            loaded(&outcome)
                .attach_socket_option(cgroup.as_fd())
                .map_err(Error::refusal)?;
        }
        let before = if config.default {
            Some(default_setting::set(loaded(&outcome))?)
        } else {
            None
        };
        print_outcome(config, &outcome, values, before.as_deref())?;
    }
    Ok(())
}

fn loaded(outcome: &Outcome) -> &Loaded {
    match outcome {
        Outcome::New(it) | Outcome::Same(it) | Outcome::Replaced(it, _) => it,
    }
}

fn print_outcome(
    config: &Load,
    outcome: &Outcome,
    values: &[u32],
    before: Option<&str>,
) -> Result<()> {
    let algorithm = loaded(outcome).algorithm();
    let result = match outcome {
        Outcome::New(_) => "loaded",
        Outcome::Same(_) => "already loaded",
        Outcome::Replaced(..) => "replaced",
    };
    if config.json {
        let parameters = parameters_json(algorithm, values);
        let line = json!({ "name": algorithm.system_name(), "outcome": result, "parameters": parameters,
            "previous_default": before });
        return print(&format!("{line}\n"));
    }
    print(&format!(
        "{}: {result}{}\n",
        algorithm.system_name(),
        parameters_text(algorithm, values)
    ))?;
    if let Outcome::Replaced(_, false) = outcome {
        print(
            "open connections of the replaced one continue, but can no longer be watched: it was \
             another longhaul's\n",
        )?;
    }
    match before {
        Some(before) => print(&format!(
            "default of this network namespace: {before} -> {}\n",
            algorithm.system_name()
        )),
        None => Ok(()),
    }
}

/// Returns parameters as JSON: `{"ai": 100}`.
pub(super) fn parameters_json(algorithm: Algorithm, values: &[u32]) -> Map<String, Value> {
    let pairs = algorithm.parameters().zip(values);
    pairs
        .map(|(p, value)| (p.name.to_owned(), json!(value)))
        .collect()
}

/// Returns parameters as text: `, ai=100 md_shift=3`.
fn parameters_text(algorithm: Algorithm, values: &[u32]) -> String {
    let pairs = algorithm.parameters().zip(values);
    let words: Vec<_> = pairs
        .map(|(p, value)| format!("{}={value}", p.name))
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(", {}", words.join(" "))
    }
}
