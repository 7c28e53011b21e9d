// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading of a scenario: from its text and the command line to the plan of the experiment, with
//! the scenario of each cell. Each cell is checked when it is read, then the cells together.

use crate::{
    check::{
        available_metrics::AvailableMetrics,
        claims,
        keys::{self, UnknownKey},
        measures, scenario, views,
    },
    experiment::{
        Cell, Choices, ExperimentPlan,
        cells::{
            ParameterDeclarations, RunParameters, combinations, overrides_of_cell, run_parameters,
        },
        file::{Parameters, ScenarioFile},
    },
    network::{link, relay_names},
    scenario::{
        CellSpec, Scenario,
        config_error::{CheckResult, ConfigError, check_each, ensure, list_names, locate_error},
        value::{self, plain_text},
    },
};
use anyhow::Result;
use indexmap::IndexSet;
use longhaul_command::exit::Refusal;
use toml::{Spanned, Table, Value, de::DeTable};

impl ExperimentPlan {
    /// Reads and checks a scenario.
    ///
    /// # Errors
    /// Every error is a usage error with file and line.
    pub(crate) fn open(file: ScenarioFile, choices: &Choices) -> Result<Self> {
        let parsed = file.parse()?;
        let declarations: ParameterDeclarations = file.read(parsed.clone())?;
        let [full, short] = run_parameters(&file, &declarations, choices)?;
        let used = if choices.quick { &short } else { &full };

        let specs = combinations(&declarations).map_err(|error| file.refuse(&error))?;
        let read = |spec: CellSpec| {
            let overrides = overrides_of_cell(&spec, &declarations.overrides);
            read_cell(&file, &parsed, [used, &short], spec, &overrides)
        };
        let mut experiment = Self {
            name: file.name.clone(),
            scenario: scenario_with(&file, &parsed, &used.values)?,
            cells: specs.into_iter().map(read).collect::<Result<_>>()?,
            quick: choices.quick,
            file,
        };
        let checked = experiment.check_labels(&declarations);
        checked.map_err(|error| experiment.file.refuse(&error))?;
        experiment.check_set(choices)?;
        experiment.apply_choices(&declarations, choices);
        let available = AvailableMetrics::of(&experiment);
        let checked =
            claims::check(&experiment).and_then(|()| views::check(&experiment, &available));
        checked.map_err(|error| experiment.file.refuse(&error))?;
        experiment.select_cells(&choices.filter)?;
        Ok(experiment)
    }

    /// Checks that the labels of single cells are distinct.
    fn check_labels(&self, declarations: &ParameterDeclarations) -> CheckResult {
        let names: Vec<String> = self.cells.iter().map(Cell::name).collect();
        let first = names.len() - declarations.include.len();
        let checked = check_each(&declarations.include, |cell| {
            let named = ensure(cell.label.as_deref() != Some(""), || "a label is empty");
            locate_error("label", named)
        });
        locate_error("include", checked)?;
        let checked = check_each(first..names.len(), |index| {
            let name = &names[index];
            let alone = ensure(!names[..index].contains(name), || {
                format!("two cells are called {name:?}")
            });
            locate_error("label", alone)
        });
        locate_error("include", checked)
    }

    /// Refuses `--set` of a parameter that every cell varies: no cell would use the value.
    fn check_set(&self, choices: &Choices) -> Result<()> {
        let varied = |name: &str| self.cells.iter().all(|cell| cell.values.contains_key(name));
        match choices.set.iter().find(|(name, _)| varied(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Refusal::usage(format!(
                "--set {name}: every cell varies it; --filter {name}=VALUE selects cells"
            ))),
        }
    }

    fn apply_choices(&mut self, declarations: &ParameterDeclarations, choices: &Choices) {
        let quick = declarations
            .quick
            .get("repetitions")
            .and_then(Value::as_integer)
            .filter(|_| choices.quick);
        let quick = quick.and_then(|n| u32::try_from(n).ok());
        self.scenario.repetitions = choices
            .repetitions
            .or(quick)
            .unwrap_or(self.scenario.repetitions);
        self.scenario.seed = choices.seed.unwrap_or(self.scenario.seed);
        if choices.quick {
            self.scenario.warmup_runs = 0;
        }
    }

    fn select_cells(&mut self, filter: &[(String, String)]) -> Result<()> {
        let all: Vec<String> = self.cells.iter().map(Cell::name).collect();
        self.check_filter_values(filter)?;
        self.cells.retain(|cell| cell.is_among(filter));
        if !self.cells.is_empty() {
            Ok(())
        } else {
            Err(Refusal::usage(format!(
                "--filter matches none of the cells: {}",
                all.join("; ")
            )))
        }
    }

    /// Checks that each filter names a varied parameter and values that some cell has. Otherwise a typo would silently
    /// leave out cells.
    fn check_filter_values(&self, filter: &[(String, String)]) -> Result<()> {
        filter.iter().try_for_each(|(key, text)| {
            let values: Vec<&Value> = self
                .cells
                .iter()
                .filter_map(|cell| cell.values.get(key))
                .collect();
            if values.is_empty() {
                return Err(self.not_varied(key, text));
            }
            let is_value = |one: &str| values.iter().any(|value| value::matches(one, value));
            let mut alternatives = text.split('|').map(str::trim);
            match alternatives
                .find(|one| !is_value(one))
                .filter(|_| !is_value(text))
            {
                Some(unknown) => Err(no_such_value(key, unknown, &values)),
                None => Ok(()),
            }
        })
    }

    /// Returns the refusal of a filter for a parameter that no cell varies.
    fn not_varied(&self, key: &str, text: &str) -> anyhow::Error {
        let varied: IndexSet<&str> = self
            .cells
            .iter()
            .flat_map(|cell| cell.values.keys().map(String::as_str))
            .collect();
        let varied: Vec<&str> = varied.into_iter().collect();
        Refusal::usage(format!(
            "--filter {key}={text}: {key} is not a varied parameter of the scenario ({})",
            list_names(&varied)
        ))
    }
}

fn no_such_value(key: &str, text: &str, values: &[&Value]) -> anyhow::Error {
    let values: IndexSet<String> = values.iter().map(|value| plain_text(value)).collect();
    let values: Vec<String> = values.into_iter().collect();
    Refusal::usage(format!(
        "--filter {key}={text}: no cell has this value; {key} is {}",
        values.join(", ")
    ))
}

fn read_cell(
    file: &ScenarioFile,
    parsed: &Spanned<DeTable<'_>>,
    [used, short]: [&RunParameters; 2],
    spec: CellSpec,
    overrides: &Table,
) -> Result<Cell> {
    let [values, short_values] =
        [used, short].map(|parameters| parameters.for_cell(&spec, overrides));
    let scenario = scenario_with(file, parsed, &values)?;
    let quick_scenario = scenario_with(file, parsed, &short_values)?;
    let cell = Cell {
        scenario,
        quick_scenario,
        values: spec.values,
        label: spec.label,
    };
    for scenario in [&cell.scenario, &cell.quick_scenario] {
        let named = |error: ConfigError| error.in_cell(&cell.name());
        scenario::check(scenario).map_err(|error| file.refuse(&named(error)))?;
    }
    Ok(cell)
}

fn scenario_with<'t>(
    file: &'t ScenarioFile,
    parsed: &Spanned<DeTable<'t>>,
    values: &Table,
) -> Result<Scenario> {
    let parameters = Parameters::of(values);
    let filled = file.filled(parsed, &parameters)?;
    keys::check(filled.get_ref()).map_err(|error| match error.downcast::<UnknownKey>() {
        Ok(unknown) => file.refusal(unknown.at, &unknown),
        Err(error) => error,
    })?;
    let mut scenario: Scenario = file.read(filled)?;
    let checked = measures::check(&scenario)
        .and_then(|()| link::check_same_losses(&scenario.links))
        .and_then(|()| relay_names::resolve(&mut scenario));
    checked.map_err(|error| file.refuse(&error))?;
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
title = "t"
question = "q"
[parameters]
size = "1GB"
relays = false
from = "a"
[quick]
size = "1MB"
repetitions = 1
[matrix]
relays = [false, true]
loss = [0.0, 0.1]
[[include]]
values = { from = "b" }
[[links]]
name = "wan"
kind = "veth"
endpoints = ["a", "b"]
[[links]]
name = "lan"
kind = "veth"
endpoints = ["b", "c"]
[[flows]]
name = "get"
program = "curl"
from = "${from}"
to = "c"
size = "${size}"
"#;

    fn open(text: &str, choices: &Choices) -> Result<ExperimentPlan> {
        let (name, origin) = ("t".to_owned(), "t.toml".to_owned());
        ExperimentPlan::open(
            ScenarioFile {
                name,
                origin,
                text: text.to_owned(),
            },
            choices,
        )
    }

    fn error(text: &str) -> String {
        open(text, &Choices::default()).unwrap_err().to_string()
    }

    #[test]
    fn cells_are_the_cross_product_and_the_single_cells() {
        let experiment = open(TEXT, &Choices::default()).unwrap();
        let names: Vec<_> = experiment.cells.iter().map(Cell::name).collect();
        let expected = [
            "relays=false, loss=0.0",
            "relays=false, loss=0.1",
            "relays=true, loss=0.0",
            "relays=true, loss=0.1",
            "from=b",
        ];
        assert_eq!(names, expected);
        assert_eq!(experiment.cells[4].scenario.flows[0].from, "b");
        assert_eq!(
            experiment.cells[0].scenario.flows[0].size.unwrap().get(),
            1_000_000_000
        );
        assert_eq!(
            experiment.cells[0].quick_scenario.flows[0]
                .size
                .unwrap()
                .get(),
            1_000_000
        );
    }

    #[test]
    fn refuses_set_of_a_parameter_that_every_cell_varies() {
        let set = |name: &str, value: &str| Choices {
            set: vec![(name.to_owned(), value.to_owned())],
            ..Choices::default()
        };
        let text = TEXT.replace("[[include]]\nvalues = { from = \"b\" }\n", "");
        let error = open(&text, &set("loss", "0.5")).unwrap_err().to_string();
        assert!(error.contains("--filter loss=VALUE"), "{error}");
        // The single cell does not vary loss.
        open(TEXT, &set("loss", "0.5")).unwrap();
    }

    #[test]
    fn command_line_sets_parameters_and_selects_cells() {
        let pair = |k: &str, v: &str| vec![(k.to_owned(), v.to_owned())];
        let choices = Choices {
            quick: true,
            set: pair("size", "5MB"),
            filter: pair("relays", "true"),
            ..Choices::default()
        };
        let experiment = open(TEXT, &choices).unwrap();
        assert_eq!(experiment.cells.len(), 2);
        assert_eq!(experiment.scenario.repetitions, 1);
        assert_eq!(
            experiment.cells[0].scenario.flows[0].size.unwrap().get(),
            5_000_000
        );
        assert!(
            open(
                TEXT,
                &Choices {
                    set: pair("sise", "1"),
                    ..Choices::default()
                }
            )
            .is_err()
        );
        assert!(
            open(
                TEXT,
                &Choices {
                    filter: pair("relays", "maybe"),
                    ..Choices::default()
                }
            )
            .is_err()
        );
    }

    #[test]
    fn unknown_keys_are_refused_with_line_and_column() {
        let wrong = TEXT.replace("program = \"curl\"", "progam = \"curl\"");
        let line = wrong
            .lines()
            .position(|line| line.starts_with("progam"))
            .unwrap()
            + 1;
        let message = error(&wrong);
        assert!(
            message.starts_with(&format!("t.toml: line {line}, column 1:")),
            "{message}"
        );
        assert!(message.contains("progam"), "{message}");
    }

    #[test]
    fn unknown_keys_of_links_and_relays_are_refused_with_line_and_column() {
        let emulated = TEXT.replacen(
            "kind = \"veth\"",
            "delay = \"1ms\"\n dealy = \"${size}\"",
            1,
        );
        let message = error(&emulated);
        assert!(
            message.starts_with("t.toml: line 19, column 2: unknown field `dealy`"),
            "{message}"
        );
        assert!(message.contains("`delay`"), "{message}");
        let relay = format!("{TEXT}[relays.b]\nsocks5 = \"127.0.0.1:1080\"\nwehn = true\n");
        let message = error(&relay);
        assert!(
            message.contains(", column 1: unknown field `wehn`"),
            "{message}"
        );
    }

    #[test]
    fn overrides_apply_to_cells_with_their_value() {
        let text = TEXT.replace(
            "[[include]]",
            "[overrides.relays.true]\nsize = \"2MB\"\n[[include]]",
        );
        let experiment = open(&text, &Choices::default()).unwrap();
        let sizes: Vec<_> = experiment
            .cells
            .iter()
            .map(|cell| cell.scenario.flows[0].size.unwrap().get())
            .collect();
        let (big, small) = (1_000_000_000, 2_000_000);
        assert_eq!(sizes, [big, big, small, small, big]);
        // The command line has precedence over overrides.
        let error =
            |with: &str| error(&TEXT.replace("[[include]]", &format!("{with}\n[[include]]")));
        let choices = |quick, set: &[(&str, &str)]| Choices {
            quick,
            set: set
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..Choices::default()
        };
        let third = |choices| open(&text, &choices).unwrap().cells[2].scenario.flows[0].size;
        assert_eq!(third(choices(true, &[])).unwrap().get(), 1_000_000);
        assert_eq!(
            third(choices(false, &[("size", "5MB")])).unwrap().get(),
            5_000_000
        );
        assert!(
            error("[overrides.relays.maybe]\nsize = \"2MB\"").contains("overrides.relays.maybe")
        );
        assert!(error("[overrides.relays.true]\nsise = \"2MB\"").contains("sise"));
    }

    #[test]
    fn refuses_invalid_via_and_proxy_with_line_and_column() {
        let error = |line: &str| error(&format!("{TEXT}{line}\n"));
        let place = format!("line {}, column 7:", TEXT.lines().count() + 1);
        assert!(
            error("via = \"b\"").contains(&place),
            "{}",
            error("via = \"b\"")
        );
        assert!(error("proxy = \"ftp://b:1\"").contains("socks5h://"));
        assert!(error("via = \"nobody:80\"").contains("nobody"));
        assert!(error("via = \"b:80\"\nproxy = \"http://b:80\"").contains("exclude"));
    }

    #[test]
    fn refuses_invalid_values_of_cells() {
        assert!(error(&TEXT.replace("from = \"b\" }", "form = \"b\" }")).contains("form"));
        assert!(error(&TEXT.replace("from = \"b\" }", "from = \"nobody\" }")).contains("nobody"));
        assert!(error(&TEXT.replace("size = \"1GB\"", "size = \"1 stone\"")).contains("stone"));
        assert!(error(&TEXT.replace("[false, true]", "[]")).contains("matrix.relays"));
    }

    #[test]
    fn several_values_select_several_cells() {
        let only = |value: &str| Choices {
            filter: vec![("loss".to_owned(), value.to_owned())],
            ..Choices::default()
        };
        assert_eq!(open(TEXT, &only("0|1e-1")).unwrap().cells.len(), 4);
        assert_eq!(open(TEXT, &only("0.10")).unwrap().cells.len(), 2);
        for none in ["0.5", "0|0.5"] {
            let error = open(TEXT, &only(none)).unwrap_err().to_string();
            let expected = "--filter loss=0.5: no cell has this value; loss is 0.0, 0.1";
            assert!(error.contains(expected), "{error}");
        }
    }
}
