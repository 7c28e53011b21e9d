// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells of a scenario: the combinations of parameter values that it runs.

use super::{Choices, inherit::ScenarioSources};
use crate::scenario::{
    CellSpec,
    config_error::{CheckResult, ConfigError, check_each, ensure, in_key, list_names},
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

/// Keys of a scenario that are read before its parameters are known.
#[derive(Deserialize)]
pub(crate) struct Head {
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
pub(crate) fn values(
    sources: &ScenarioSources,
    head: &Head,
    choices: &Choices,
) -> Result<[Values; 2]> {
    let both = declared_parameters(head).and_then(|declared| {
        let short = in_key("quick", quick_parameters(&declared, &head.quick))?;
        Ok([declared, short])
    });
    let [declared, short] = both.map_err(|error| sources.refuse(&error))?;
    let applies_to_short =
        |(name, _): &&(String, String)| choices.quick || !head.quick.contains_key(name);
    let short_set: Vec<_> = choices
        .set
        .iter()
        .filter(applies_to_short)
        .cloned()
        .collect();
    let set_names = || choices.set.iter().map(|(name, _)| name.clone());
    let quick_names = head.quick.keys().cloned();
    Ok([
        Values {
            all: apply_set(declared, &choices.set)?,
            explicit: set_names().collect(),
        },
        Values {
            all: apply_set(short, &short_set)?,
            explicit: set_names().chain(quick_names).collect(),
        },
    ])
}

/// Returns the overrides that go with the varied values of a cell.
pub(crate) fn overrides(
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

/// Parameters, and the names of those that `--quick` or `--set` changed, which overrides do not
/// change.
pub(crate) struct Values {
    pub(crate) all: Table,
    pub(crate) explicit: Vec<String>,
}

impl Values {
    pub(crate) fn of(&self, spec: &CellSpec, overrides: &Table) -> Table {
        let mut values = self.all.clone();
        let not_explicit = |(name, _): &(&String, &Value)| !self.explicit.contains(name);
        let overrides = overrides.iter().filter(not_explicit);
        values.extend(overrides.map(|(k, v)| (k.clone(), v.clone())));
        values.extend(spec.values.clone());
        values.extend(spec.set.clone());
        values
    }
}

/// Returns the declared parameters, with those of `matrix`. Cells may set no others.
fn declared_parameters(head: &Head) -> Result<Table, ConfigError> {
    let mut values = head.parameters.clone();
    for (name, choices) in &head.matrix {
        let first = choices.first().ok_or(format!("matrix.{name} is empty"));
        let first = in_key("matrix", in_key(name, first))?;
        in_key("matrix", in_key(name, check_distinct_values(name, choices)))?;
        values.entry(name.clone()).or_insert_with(|| first.clone());
    }
    in_key(
        "include",
        check_each(&head.include, |cell| {
            in_key("values", check_declared(&cell.values, &values))?;
            in_key("set", check_declared(&cell.set, &values))?;
            in_key("set", check_set_keys(cell))
        }),
    )?;
    let overrides = |(key, of_values): (&String, &IndexMap<String, Table>)| {
        let mut all = of_values.iter();
        in_key(
            key,
            all.try_for_each(|(value, set)| {
                let checked =
                    check_declared(set, &values).and_then(|()| check_override(head, key, value));
                in_key(value, checked)
            }),
        )
    };
    in_key("overrides", head.overrides.iter().try_for_each(overrides))?;
    Ok(values)
}

/// Checks that the values are distinct. Otherwise two cells would have the same name.
fn check_distinct_values(name: &str, choices: &[Value]) -> CheckResult {
    check_each(0..choices.len(), |at| {
        let text = plain_text(&choices[at]);
        let twice = choices[..at]
            .iter()
            .any(|before| value::matches(&text, before));
        ensure(!twice, || format!("matrix.{name} has {text} twice"))
    })
}

/// Checks that `values` and `set` of a cell do not name the same parameter.
fn check_set_keys(cell: &CellSpec) -> CheckResult {
    let both = |name: &String| {
        ensure(!cell.values.contains_key(name), || {
            format!("{name} is in values and in set")
        })
    };
    cell.set
        .keys()
        .try_for_each(|name| in_key(name, both(name)))
}

/// Checks that a cell sets only declared parameters.
fn check_declared(set: &Table, values: &Table) -> CheckResult {
    let is_declared = |name: &String| {
        ensure(values.contains_key(name), || {
            format!("a cell sets {name:?}, which [parameters] does not declare")
        })
    };
    set.keys()
        .try_for_each(|name| in_key(name, is_declared(name)))
}

/// Checks that some cell has the value to which an override belongs. Otherwise a typo would go
/// unnoticed.
fn check_override(head: &Head, key: &str, value: &str) -> CheckResult {
    let listed = head.matrix.get(key).into_iter().flatten();
    let included = head.include.iter().filter_map(|cell| cell.values.get(key));
    let varied = listed.chain(included).any(|own| value::matches(value, own));
    ensure(varied, || {
        format!("overrides.{key}.{value}: no cell varies {key} as {value}")
    })
}

/// Returns the parameters of a short run.
fn quick_parameters(values: &Table, quick: &Table) -> Result<Table, ConfigError> {
    let mut short = values.clone();
    for (name, value) in quick {
        in_key(name, apply_quick(&mut short, name, value))?;
    }
    Ok(short)
}

fn apply_quick(values: &mut Table, name: &str, value: &Value) -> CheckResult {
    if name == "repetitions" {
        let good = value.as_integer().is_some_and(|n| (1..=1000).contains(&n));
        return ensure(good, || "quick.repetitions must be 1 to 1000");
    }
    let old = values.get_mut(name);
    *old.ok_or_else(|| format!("quick.{name} is not a parameter"))? = value.clone();
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
pub(crate) fn combinations(head: &Head) -> Result<Vec<CellSpec>, ConfigError> {
    let count = head
        .matrix
        .values()
        .map(Vec::len)
        .fold(1usize, usize::saturating_mul);
    let is_bounded = count.saturating_add(head.include.len()) <= CELLS_MAX;
    let bounded = ensure(is_bounded, || {
        format!("the scenario has more than {CELLS_MAX} cells")
    });
    in_key("matrix", bounded)?;
    let mut all = vec![CellSpec::default()];
    for (name, choices) in &head.matrix {
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
    if head.matrix.is_empty() && !head.include.is_empty() {
        all.clear();
    }
    all.extend(head.include.iter().cloned());
    Ok(all)
}
