// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every file under `scenarios/`.

use crate::{
    evaluation::{claims, topology_diagram, view},
    experiment::{Choices, ExperimentPlan, file},
};
use longhaul_results::result::{self, Metrics, Run};
use std::{collections::BTreeSet, sync::LazyLock};

/// Each built-in scenario, read once for all tests.
static EXPERIMENTS: LazyLock<Vec<ExperimentPlan>> =
    LazyLock::new(|| file::names().map(open).collect());

fn open(name: &str) -> ExperimentPlan {
    let experiment = ExperimentPlan::open(file::find(name).unwrap(), &Choices::default());
    experiment.unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

#[test]
fn scenarios_with_a_source_have_its_figures() {
    for experiment in EXPERIMENTS.iter() {
        let printed = experiment.cells.iter().any(|cell| {
            !claims::reference_of_cell(&experiment.scenario.reference, cell)
                .values
                .is_empty()
        });
        let mut words = experiment
            .scenario
            .notes
            .iter()
            .chain(&experiment.scenario.source);
        let none = words.any(|words| {
            words.contains("no printed numbers") || words.contains("prints no number")
        });
        assert!(
            experiment.scenario.source.is_none() || printed || none,
            "{}: it names a source, but neither has its figures ([[reference]]) nor says that it has \"no printed numbers\"",
            experiment.name
        );
    }
}

/// `make bench` runs them.
#[test]
fn scenarios_of_benchmarks_are_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench");
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let scenarios: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .map(|path| open(path.to_str().unwrap()))
        .collect();
    assert!(!scenarios.is_empty());
    for experiment in scenarios {
        let cells: Vec<result::Cell> = experiment.cells.iter().map(|_| one_run()).collect();
        let tables = view::tables(&experiment, &cells);
        assert_eq!(tables.len(), experiment.scenario.table.len());
    }
}

#[test]
fn every_cell_has_a_topology_diagram() {
    for experiment in EXPERIMENTS.iter() {
        for cell in &experiment.cells {
            let drawn = topology_diagram::testbed(&[&cell.scenario]);
            assert!(
                drawn.hosts.len() >= 2,
                "{}: {}",
                experiment.name,
                cell.name()
            );
            assert_eq!(
                drawn.links.len(),
                drawn.hosts.len() - 1,
                "{}: {}",
                experiment.name,
                cell.name()
            );
        }
    }
}

/// Regression: a note named `fast:base_rtt_window_s`, which is refused.
#[test]
fn parameters_in_scenario_texts_exist() {
    let texts: Vec<_> = file::names()
        .map(|name| file::find(name).unwrap().text)
        .collect();
    let words = texts
        .iter()
        .flat_map(|text| text.split(|c| !is_of_a_control(c)));
    let mut named = 0;
    for (word, settings) in words.filter_map(|word| Some((word, word.split_once(':')?.1))) {
        let Some(control) = longhaul_congestion::math::algorithm(word.split(':').next().unwrap())
        else {
            continue;
        };
        for setting in settings.split(':') {
            let parameter = setting.split('=').next().unwrap();
            let is_known = control.parameters().any(|one| one.name == parameter);
            assert!(is_known || setting.is_empty(), "{word}: {parameter:?}");
            named += 1;
        }
    }
    assert!(named > 2, "scenarios name some: {named}");
}

/// Whether a character can be part of `lh_bic:ack_shift=3`.
fn is_of_a_control(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '=')
}

/// A table or figure without any cell would be missing from the page without a message.
#[test]
fn every_table_and_figure_has_cells() {
    for experiment in EXPERIMENTS.iter() {
        let cells: Vec<result::Cell> = experiment.cells.iter().map(|_| one_run()).collect();
        let tables = view::tables(experiment, &cells);
        let figures = view::figures(experiment, &cells);
        assert_eq!(
            tables.len(),
            experiment.scenario.table.len(),
            "{}",
            experiment.name
        );
        assert_eq!(
            figures.len(),
            experiment.scenario.figure.len(),
            "{}",
            experiment.name
        );
        let panels = tables
            .iter()
            .flat_map(|table| &table.facets)
            .chain(figures.iter().flat_map(|figure| &figure.facets));
        for panel in panels {
            let shown = panel.cells.iter().flatten().flatten();
            assert!(
                shown.clone().count() > 0
                    && shown.clone().all(|index| *index < experiment.cells.len()),
                "{}",
                experiment.name
            );
        }
    }
}

fn one_run() -> result::Cell {
    let mut cell = result::Cell {
        runs: vec![Run {
            metrics: Metrics::from([("goodput_bps".to_owned(), 1e9)]),
            ..Run::default()
        }],
        ..result::Cell::default()
    };
    cell.summarise();
    cell
}

/// The recipe is README's text, but for the lab's own addresses.
#[test]
fn the_first_recipe_is_readmes() {
    let scenario: toml::Table = file::find("first-recipe").unwrap().text.parse().unwrap();
    let options = |host: &str| {
        let mut options = scenario["relays"][host].as_table().unwrap().clone();
        options.remove("enabled");
        let words = options.iter().flat_map(|(key, values)| {
            let flag = format!("--{}", key.replace('_', "-"));
            let values = values.as_array().unwrap().iter();
            values.flat_map(move |value| [flag.clone(), value.as_str().unwrap().to_owned()])
        });
        words.collect::<BTreeSet<String>>()
    };
    assert_eq!(
        options("server"),
        readme_words("server-side$ longhaul relay ")
    );
    assert_eq!(
        options("client"),
        readme_words("client-side$ longhaul relay ")
    );
    let proxy = scenario["overrides"]["way"]["recipe"]["proxy"].as_str();
    assert!(readme_words("client-side$ curl -x ").contains(proxy.unwrap()));
}

/// Returns the words of README's line behind `prompt`, with the lab's addresses.
fn readme_words(prompt: &str) -> BTreeSet<String> {
    let readme = include_str!("../../../../README.md");
    let line = readme.lines().find_map(|line| line.strip_prefix(prompt));
    let line = line.unwrap_or_else(|| panic!("README has no line {prompt:?}"));
    let line = line
        .replace("10.0.0.1", "10.9.0.1")
        .replace("10.0.0.2", "10.9.0.2");
    line.split_whitespace().map(str::to_owned).collect()
}
