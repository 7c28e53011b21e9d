// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells of a scenario: the combinations of parameter values that it runs.

use super::{Choices, file::ScenarioFile};
use crate::scenario::{
    CellSpec,
    config_error::{CheckResult, ConfigError, check_each, ensure, list_names, locate_error},
    value::{self, plain_text},
};
use anyhow::Result;
use indexmap::IndexMap;
use longhaul_command::exit::Refusal;
use serde::Deserialize;
use toml::{Table, Value};

/// Maximum number of cells of a scenario. Five delays, four losses, relays on or off and ten
/// congestion controls are 400.
const CELLS_MAX: usize = 10_000;

/// Declarations of a scenario's parameters and cells. They are read first, because the other keys may contain
/// placeholders for parameters.
#[derive(Deserialize)]
pub(crate) struct ParameterDeclarations {
    #[serde(default)]
    pub(crate) parameters: Table,
    #[serde(default)]
    pub(crate) quick: Table,
    #[serde(default)]
    pub(crate) matrix: IndexMap<String, Vec<Value>>,
    #[serde(default)]
    pub(crate) overrides: IndexMap<String, IndexMap<String, Table>>,
    #[serde(default)]
    pub(crate) include: Vec<CellSpec>,
}

/// Returns the parameters of full runs and of short runs (`--quick` and warm-up). In short runs
/// `--set` changes a parameter of `[quick]` only if `--quick` is given: warm-up runs stay short.
pub(crate) fn run_parameters(
    file: &ScenarioFile,
    declarations: &ParameterDeclarations,
    choices: &Choices,
) -> Result<[RunParameters; 2]> {
    let full_and_short = declared_parameters(declarations).and_then(|declared| {
        let short = locate_error("quick", quick_parameters(&declared, &declarations.quick))?;
        Ok([declared, short])
    });
    let [declared, short] = full_and_short.map_err(|error| file.refuse(&error))?;
    let applies_to_short =
        |(name, _): &&(String, String)| choices.quick || !declarations.quick.contains_key(name);
    let short_set: Vec<_> = choices
        .set
        .iter()
        .filter(applies_to_short)
        .cloned()
        .collect();
    let set_names = || choices.set.iter().map(|(name, _)| name.clone());
    let quick_names = declarations.quick.keys().cloned();
    Ok([
        RunParameters {
            values: apply_set(declared, &choices.set)?,
            explicit: set_names().collect(),
        },
        RunParameters {
            values: apply_set(short, &short_set)?,
            explicit: set_names().chain(quick_names).collect(),
        },
    ])
}

/// Returns the overrides that go with the varied values of a cell.
pub(crate) fn overrides_of_cell(
    spec: &CellSpec,
    declared: &IndexMap<String, IndexMap<String, Table>>,
) -> Table {
    let found = spec
        .values
        .iter()
        .filter_map(|(key, value)| {
            let by_value = declared.get(key)?.iter();
            by_value
                .into_iter()
                .find(|(name, _)| value::matches(name, value))
        })
        .map(|(_, set)| set);
    let all = found.flatten().map(|(k, v)| (k.clone(), v.clone()));
    all.collect()
}

/// Parameters of full runs or of short runs, before a cell sets its own values.
pub(crate) struct RunParameters {
    pub(crate) values: Table,
    /// Names of the parameters that `--quick` or `--set` changed. Overrides do not change them.
    pub(crate) explicit: Vec<String>,
}

impl RunParameters {
    /// Returns the parameters of a cell. Its own values have precedence over overrides.
    pub(crate) fn for_cell(&self, spec: &CellSpec, overrides: &Table) -> Table {
        let mut values = self.values.clone();
        let not_explicit = |(name, _): &(&String, &Value)| !self.explicit.contains(name);
        let overrides = overrides.iter().filter(not_explicit);
        values.extend(overrides.map(|(k, v)| (k.clone(), v.clone())));
        values.extend(spec.values.clone());
        values.extend(spec.set.clone());
        values
    }
}

/// Returns the declared parameters, with those of `matrix`. Cells may set no others.
fn declared_parameters(declarations: &ParameterDeclarations) -> Result<Table, ConfigError> {
    let mut values = declarations.parameters.clone();
    for (name, choices) in &declarations.matrix {
        let first = choices
            .first()
            .ok_or(format!("matrix.{name} is empty; list at least one value"));
        let first = locate_error("matrix", locate_error(name, first))?;
        locate_error(
            "matrix",
            locate_error(name, check_distinct_values(name, choices)),
        )?;
        values.entry(name.clone()).or_insert_with(|| first.clone());
    }
    locate_error(
        "include",
        check_each(&declarations.include, |cell| {
            locate_error("values", check_declared(&cell.values, &values))?;
            locate_error("set", check_declared(&cell.set, &values))?;
            locate_error("set", check_set_keys(cell))
        }),
    )?;
    let check_overrides = |(key, by_value): (&String, &IndexMap<String, Table>)| {
        let mut all = by_value.iter();
        locate_error(
            key,
            all.try_for_each(|(value, set)| {
                let checked = check_declared(set, &values)
                    .and_then(|()| check_override(declarations, key, value));
                locate_error(value, checked)
            }),
        )
    };
    locate_error(
        "overrides",
        declarations.overrides.iter().try_for_each(check_overrides),
    )?;
    Ok(values)
}

/// Checks that the values are distinct. Otherwise two cells would have the same name.
fn check_distinct_values(name: &str, choices: &[Value]) -> CheckResult {
    check_each(0..choices.len(), |index| {
        let text = plain_text(&choices[index]);
        let twice = choices[..index]
            .iter()
            .any(|before| value::matches(&text, before));
        ensure(!twice, || {
            format!(
                "matrix.{name} lists the value {text} twice; remove one: each value makes its own cells"
            )
        })
    })
}

/// Checks that `values` and `set` of a cell do not name the same parameter.
fn check_set_keys(cell: &CellSpec) -> CheckResult {
    let is_set_once = |name: &String| {
        ensure(!cell.values.contains_key(name), || {
            format!("{name} is in values and in set; remove it from one of them")
        })
    };
    cell.set
        .keys()
        .try_for_each(|name| locate_error(name, is_set_once(name)))
}

/// Checks that a cell sets only declared parameters.
fn check_declared(set: &Table, values: &Table) -> CheckResult {
    let is_declared = |name: &String| {
        ensure(values.contains_key(name), || {
            format!("a cell sets {name:?}, which is no parameter; declare it in [parameters]")
        })
    };
    set.keys()
        .try_for_each(|name| locate_error(name, is_declared(name)))
}

/// Checks that some cell has the value to which an override belongs. Otherwise a typo would go
/// unnoticed.
fn check_override(declarations: &ParameterDeclarations, key: &str, value: &str) -> CheckResult {
    let in_matrix = declarations.matrix.get(key).into_iter().flatten();
    let included = declarations
        .include
        .iter()
        .filter_map(|cell| cell.values.get(key));
    let is_varied = in_matrix
        .chain(included)
        .any(|listed| value::matches(value, listed));
    ensure(is_varied, || {
        format!(
            "overrides.{key}.{value} applies to no cell: {key} never has the value {value}; \
             correct the value, or add it to matrix.{key}"
        )
    })
}

/// Returns the parameters of a short run.
fn quick_parameters(values: &Table, quick: &Table) -> Result<Table, ConfigError> {
    let mut short = values.clone();
    for (name, value) in quick {
        locate_error(name, apply_quick(&mut short, name, value))?;
    }
    Ok(short)
}

fn apply_quick(values: &mut Table, name: &str, value: &Value) -> CheckResult {
    if name == "repetitions" {
        let good = value.as_integer().is_some_and(|n| (1..=1000).contains(&n));
        return ensure(good, || "quick.repetitions must be 1 to 1000");
    }
    let old = values.get_mut(name);
    *old.ok_or_else(|| format!("quick.{name} is not a parameter; declare it in [parameters]"))? =
        value.clone();
    Ok(())
}

fn apply_set(mut values: Table, set: &[(String, String)]) -> Result<Table> {
    for (name, text) in set {
        let Some(value) = values.get_mut(name) else {
            let known: Vec<&str> = values.keys().map(String::as_str).collect();
            return Err(Refusal::usage(format!(
                "--set {name}: no parameter has that name ({})",
                list_names(&known)
            )));
        };
        *value = value::parse_value(text);
    }
    Ok(values)
}

/// Returns all combinations of `matrix`, where the last key varies fastest, and then the cells of
/// `include`.
pub(crate) fn combinations(
    declarations: &ParameterDeclarations,
) -> Result<Vec<CellSpec>, ConfigError> {
    let count = declarations
        .matrix
        .values()
        .map(Vec::len)
        .fold(1usize, usize::saturating_mul);
    let is_bounded = count.saturating_add(declarations.include.len()) <= CELLS_MAX;
    let bounded = ensure(is_bounded, || {
        format!("the scenario has more than {CELLS_MAX} cells")
    });
    locate_error("matrix", bounded)?;
    let mut all = vec![CellSpec::default()];
    for (name, choices) in &declarations.matrix {
        let extended = |spec: &CellSpec, choice: &Value| {
            let mut spec = spec.clone();
            spec.values.insert(name.clone(), choice.clone());
            spec
        };
        all = all
            .iter()
            .flat_map(|spec| choices.iter().map(move |choice| extended(spec, choice)))
            .collect();
    }
    if declarations.matrix.is_empty() && !declarations.include.is_empty() {
        all.clear();
    }
    all.extend(declarations.include.iter().cloned());
    Ok(all)
}
