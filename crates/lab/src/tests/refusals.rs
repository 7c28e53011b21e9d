// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of invalid scenarios: each names the file, line and column of the invalid value.

use super::{
    invalid_claims::{CLAIM_CASES, VIEW_CASES},
    invalid_values::{
        FLOW_CASES, InvalidCase, PARAMETER_CASES, PROGRAM_CASES, TESTBED_CASES, TEXT,
    },
};
use crate::{
    experiment::{Choices, ExperimentPlan, file::ScenarioFile},
    run, simulated,
};

/// Marks the invalid value in a test case.
const MARK: char = '¦';

fn open(text: String) -> anyhow::Result<ExperimentPlan> {
    let source = ScenarioFile {
        name: "t".to_owned(),
        origin: "t.toml".to_owned(),
        text,
    };
    ExperimentPlan::open(source, &Choices::default())
}

/// Returns the text without its mark, and the mark's position as error messages print it.
fn marked(text: &str) -> (String, String) {
    let before = text.split(MARK).next().unwrap();
    let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
    let place = format!("t.toml: line {line}, column {column}: ");
    (text.replace(MARK, ""), place)
}

#[test]
fn every_refusal_has_a_position() {
    open(TEXT.to_owned()).unwrap();
    let invalid_values = [
        PARAMETER_CASES,
        TESTBED_CASES,
        FLOW_CASES,
        CLAIM_CASES,
        VIEW_CASES,
    ];
    let invalid_values = invalid_values.into_iter().flatten();
    let wrong_refusal = invalid_values.filter_map(|case| wrong_refusal(TEXT, case, |_| Ok(())));
    assert_eq!(wrong_refusal.collect::<String>(), "");
}

/// Returns a description if the refusal of a case has the wrong position or message. The case is
/// refused when the scenario is opened, or else by `check`.
fn wrong_refusal(
    right_text: &str,
    (right, wrong, message): &InvalidCase,
    check: fn(&ExperimentPlan) -> anyhow::Result<()>,
) -> Option<String> {
    assert!(right_text.contains(right), "{right}");
    let (text, place) = marked(&right_text.replacen(right, wrong, 1));
    let refused = open(text).and_then(|experiment| check(&experiment));
    let error = refused.map_or_else(|error| error.to_string(), |()| "nothing".to_owned());
    let good = error.starts_with(&place) && error.contains(message);
    (!good).then(|| format!("{wrong}\n  wanted: {place}{message}\n  found: {error}\n"))
}

#[test]
fn refusals_of_program_limits_have_a_position() {
    // Nothing after the flow is kept. Each case replaces the flow's program.
    let text = TEXT.replace("\nsize = '${size}'", "");
    let text = text.split("[derived]").next().unwrap();
    let text = text.replace("'curl'", "'curl'\nsize = '1GB'");
    let alone = text.replace("\nsize = '1GB'\nfrom = '${from}'", "\nfrom = '${from}'");
    let wrong_refusal = PROGRAM_CASES.iter().filter_map(|case| {
        let text = if case.0 == "'curl'" { &alone } else { &text };
        wrong_refusal(text, case, run::validate)
    });
    assert_eq!(wrong_refusal.collect::<String>(), "");
    // Limits of programs do not apply under simulated time.
    let simulated = alone.replace("'curl'", "'iperf3'\nduration = '1500ms'");
    let mut experiment = open(simulated).unwrap();
    for cell in &mut experiment.cells {
        cell.scenario.simulated = true;
        cell.quick_scenario.simulated = true;
    }
    crate::check::program_limits::check(&experiment).unwrap();
    // The limit of a run's duration applies there too.
    for cell in &mut experiment.cells {
        cell.scenario.timeout = longhaul_units::Time::from_secs(1);
    }
    let error = crate::check::program_limits::check(&experiment)
        .unwrap_err()
        .to_string();
    assert!(error.contains("timeout, the longest"), "{error}");
}

/// A wrong value of a parameter is reported where it is used, not where it is set.
#[test]
fn wrong_cell_value_is_reported_where_it_is_used() {
    let text = TEXT.replace("{ from = 'b' }\n[hosts", "{ from = 'nobody' }\n[hosts");
    let (text, place) = marked(&text.replace("'${from}'", "¦'${from}'"));
    let error = open(text).unwrap_err().to_string();
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("in the cell \"from=nobody\": flow \"get\": "),
        "{error}"
    );
}

#[test]
fn refusals_of_simulation_have_a_position() {
    let (text, place) = marked(&TEXT.replace("'curl'", "¦'curl'"));
    let mut experiment = open(text).unwrap();
    simulated::check(&experiment).unwrap();
    experiment.simulate();
    let error = simulated::check(&experiment).unwrap_err().to_string();
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("can't be simulated: flow \"get\" has program \"curl\""),
        "{error}"
    );
}
