// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every file under `scenarios/`.

use crate::{
    source::{self, Book, Choices, inherit, library},
    verdict::{drawing, paper, view},
};
use longhaul_results::result::{self, Metrics, Run};
use std::sync::LazyLock;

/// Each built-in scenario, read once for all tests.
static BOOKS: LazyLock<Vec<Book>> = LazyLock::new(|| library::names().map(open).collect());

fn open(name: &str) -> Book {
    let book = Book::open(&library::find(name).unwrap(), &Choices::default());
    book.unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

#[test]
fn built_in_scenarios_are_valid_with_their_bases() {
    for name in library::names() {
        let source = library::find(name).unwrap();
        let family = inherit::Family::gather(&source).unwrap();
        let resolved = family.resolved().unwrap();
        // The merged text must be the same scenario without its bases.
        let alone = source::Source {
            name: name.to_owned(),
            origin: format!("{name}, resolved"),
            text: resolved,
            path: None,
        };
        let stands_alone = source.text.lines().all(|line| !line.starts_with("base ="));
        // A scenario without a base is its own merged text.
        if !stands_alone {
            let alone =
                Book::open(&alone, &Choices::default()).unwrap_or_else(|error| panic!("{error:#}"));
            let family = BOOKS.iter().find(|book| book.name == name).unwrap();
            let names = |book: &Book| -> Vec<String> {
                book.cells.iter().map(crate::source::Cell::name).collect()
            };
            assert_eq!(names(family), names(&alone), "{name}");
        }
    }
}

#[test]
fn scenarios_with_a_source_have_its_figures() {
    for book in BOOKS.iter() {
        let printed = book
            .cells
            .iter()
            .any(|cell| !paper::printed(&book.base.paper, cell).figures.is_empty());
        let mut words = book.base.notes.iter().chain(&book.base.source);
        let none = words.any(|words| {
            words.contains("no printed numbers") || words.contains("prints no number")
        });
        assert!(
            book.base.source.is_none() || printed || none,
            "{}: it names a source, but neither has its figures ([[paper]]) nor says that it has \"no printed numbers\"",
            book.name
        );
    }
}

#[test]
fn every_cell_has_a_topology_diagram() {
    for book in BOOKS.iter() {
        for cell in &book.cells {
            let drawn = drawing::testbed(&[&cell.scenario]);
            assert!(drawn.hosts.len() >= 2, "{}: {}", book.name, cell.name());
            assert_eq!(
                drawn.links.len(),
                drawn.hosts.len() - 1,
                "{}: {}",
                book.name,
                cell.name()
            );
        }
    }
}

/// Regression: a note named `fast:base_rtt_window_s`, which is refused.
#[test]
fn parameters_in_scenario_texts_exist() {
    let texts: Vec<_> = library::names()
        .map(|name| library::find(name).unwrap().text)
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
    for book in BOOKS.iter() {
        let cells: Vec<result::Cell> = book.cells.iter().map(|_| one_run()).collect();
        let tables = view::tables(book, &cells);
        let figures = view::figures(book, &cells);
        assert_eq!(tables.len(), book.base.table.len(), "{}", book.name);
        assert_eq!(figures.len(), book.base.figure.len(), "{}", book.name);
        let panels = tables
            .iter()
            .flat_map(|table| &table.panels)
            .chain(figures.iter().flat_map(|figure| &figure.panels));
        for panel in panels {
            let shown = panel.cells.iter().flatten().flatten();
            assert!(
                shown.clone().count() > 0 && shown.clone().all(|index| *index < book.cells.len()),
                "{}",
                book.name
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
