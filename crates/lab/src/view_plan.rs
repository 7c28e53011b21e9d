// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[table]]` and `[[figure]]`: what the report shall show. Here they are read and checked, and the cells are put
//! where they belong; `view.rs` is what comes of them.

use crate::{
    book::{Book, Cell},
    known::Known,
    measure::{Flows, statistic::named_flow},
    network::Topology,
    scenario::{
        expression::Expression,
        fault::{Checked, at, each, ensure},
        finding,
        view::{FigurePlan, LimitPlan, Listed, Names, TablePlan, Values, listed},
    },
    validate::one_cell,
    verdict,
};
use indexmap::{IndexMap, IndexSet};
use longhaul_report::metric::Metric;
use longhaul_results::{
    result,
    view::{Axis, Entry, Figure, FigureKind, Panel, Table},
};
use longhaul_units::Time;
use serde_json::Value;

/// In place of a parameter: the cell itself, by its name.
const CELL: &str = "cell";

/// Checks all views; `known` has the metrics.
pub(crate) fn check(book: &Book, known: &Known) -> Checked {
    let mut names = IndexSet::new();
    let tables = each(&book.base.table, |plan| {
        at("name", named(&plan.name, &mut names))?;
        plan.check(book, known)
    });
    at("table", tables)?;
    let figures = each(&book.base.figure, |plan| {
        at("name", named(&plan.name, &mut names))?;
        plan.check(book, known)
    });
    at("figure", figures)
}

fn named<'a>(name: &'a String, seen: &mut IndexSet<&'a String>) -> Checked {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let good = (1..=64).contains(&name.len()) && name.chars().all(clean);
    ensure(good, || {
        format!("{name:?}: a name is 1 to 64 letters, digits, '-' and '_'")
    })?;
    ensure(seen.insert(name), || {
        format!("two tables or figures are called {name:?}")
    })
}

/// The tables of a result.
pub(crate) fn tables(book: &Book, cells: &[result::Cell]) -> Vec<Table> {
    let plans = book.base.table.iter();
    plans.filter_map(|plan| plan.resolve(book, cells)).collect()
}

/// The figures of a result.
pub(crate) fn figures(book: &Book, cells: &[result::Cell]) -> Vec<Figure> {
    let plans = book.base.figure.iter();
    plans.filter_map(|plan| plan.resolve(book, cells)).collect()
}

/// Which cells a view shows, and where.
struct Layout<'a> {
    rows: (&'static str, &'a Listed),
    columns: (&'static str, &'a Listed),
    panels: &'a Listed,
    only: Option<&'a IndexMap<String, Values>>,
}

impl Layout<'_> {
    fn check(&self, book: &Book) -> Checked {
        for (key, names) in [self.rows, self.columns, ("panels", self.panels)] {
            let mut all = listed(names).iter();
            at(key, all.try_for_each(|name| varied(book, name)))?;
        }
        let mut only = self.only.into_iter().flatten();
        let only = only.try_for_each(|(name, values)| at(name, some_has(book, name, values)));
        at("only", only)?;
        ensure(
            !self.resolve(book)?.is_empty(),
            || "no cell has all of these parameters",
        )
    }

    /// The panels with their cells; none if no cell of the book is meant.
    fn resolve(&self, book: &Book) -> Result<Vec<Panel>, String> {
        let (rows, columns, panels) = (
            listed(self.rows.1),
            listed(self.columns.1),
            listed(self.panels),
        );
        let named = [rows, columns, panels].concat();
        let meant = |index: &usize| self.means(&book.cells[*index], &named);
        let all: Vec<usize> = (0..book.cells.len()).filter(meant).collect();
        let (down, across) = (axis(book, &all, rows), axis(book, &all, columns));
        let each = axis(book, &all, panels).entries.into_iter();
        each.map(|panel| {
            let inside = all.iter().copied();
            let inside = inside.filter(|index| values(&book.cells[*index], panels) == panel.values);
            let cells = places(book, inside, [&down, &across])?;
            let of = panels.iter().cloned().zip(panel.values).collect();
            Ok(Panel {
                of,
                rows: down.clone(),
                columns: across.clone(),
                cells,
            })
        })
        .filter(|panel| {
            panel
                .as_ref()
                .is_ok_and(|panel| panel.cells.iter().flatten().any(Option::is_some))
                || panel.is_err()
        })
        .collect()
    }

    fn means(&self, cell: &Cell, named: &[String]) -> bool {
        let there = named
            .iter()
            .all(|name| name == CELL || cell.vary.contains_key(name));
        let mut wanted = self.only.into_iter().flatten();
        there
            && wanted
                .all(|(name, values)| cell.vary.get(name).is_some_and(|value| values.has(value)))
    }
}

fn varied(book: &Book, name: &String) -> Result<(), String> {
    let mut names: IndexSet<&str> = book
        .cells
        .iter()
        .flat_map(|cell| cell.vary.keys().map(String::as_str))
        .collect();
    names.insert(CELL);
    match names.contains(name.as_str()) {
        true => Ok(()),
        false => {
            let known: Vec<&str> = names.into_iter().collect();
            Err(format!(
                "no cell varies {name:?} (there are: {})",
                known.join(", ")
            ))
        }
    }
}

fn some_has(book: &Book, name: &String, values: &Values) -> Result<(), String> {
    varied(book, name)?;
    let has = |cell: &Cell| cell.vary.get(name).is_some_and(|value| values.has(value));
    match book.cells.iter().any(has) {
        true => Ok(()),
        false => Err(format!("no cell has such a {name}")),
    }
}

/// What a cell has for each of these names.
fn values(cell: &Cell, by: &[String]) -> Vec<Value> {
    let value = |name: &String| match cell.vary.get(name) {
        Some(value) => serde_json::to_value(value).unwrap_or_default(),
        None => Value::from(cell.name()),
    };
    by.iter().map(value).collect()
}

fn axis(book: &Book, cells: &[usize], by: &[String]) -> Axis {
    let all = || cells.iter().map(|index| &book.cells[*index]);
    let mut entries: Vec<Entry> = Vec::new();
    for values in all().map(|cell| values(cell, by)) {
        if entries.iter().all(|entry| entry.values != values) {
            entries.push(Entry {
                values,
                label: None,
            });
        }
    }
    let labels: IndexSet<_> = all().map(|cell| cell.label.as_ref()).collect();
    if let ([], [entry], 1) = (by, &mut entries[..], labels.len()) {
        entry.label = labels[0].cloned();
    }
    Axis {
        by: by.to_vec(),
        entries,
    }
}

/// The index of the cell at each place.
fn places(
    book: &Book,
    cells: impl Iterator<Item = usize>,
    [rows, columns]: [&Axis; 2],
) -> Result<Vec<Vec<Option<usize>>>, String> {
    let mut places = vec![vec![None; columns.entries.len()]; rows.entries.len()];
    for index in cells {
        let at = |axis: &Axis| {
            let own = values(&book.cells[index], &axis.by);
            axis.entries.iter().position(|entry| entry.values == own)
        };
        let (Some(row), Some(column)) = (at(rows), at(columns)) else {
            continue;
        };
        if let Some(other) = places[row][column].replace(index) {
            let [one, other] = [other, index].map(|index: usize| book.cells[index].name());
            return Err(format!(
                "{one:?} and {other:?} fall into one place; name what tells them apart, or leave one out by only"
            ));
        }
    }
    Ok(places)
}

fn check_metrics(metrics: &Names, known: &Known) -> Checked {
    let mut all = metrics.all().iter();
    ensure(all.len() > 0, || "at least one metric")?;
    Ok(all.try_for_each(|name| known.check(name))?)
}

/// The numbers that a title names are of cells and metrics that there are.
fn check_title(title: &str, book: &Book, known: &Known) -> Checked {
    let sound = |expression: &Expression| {
        known.check_all(expression)?;
        let one = |name: &str, wanted: &[(String, String)]| {
            let index = one_cell(book, wanted)?;
            known.check_in(index, name).map(|()| 1.0)
        };
        expression.value(&one).map(drop)
    };
    Ok(finding::check(title, sound)?)
}

/// What was found; of cells that do not tell, what it is about.
fn title(title: &str, of: &str, book: &Book, cells: &[result::Cell]) -> String {
    let number = |expression: &Expression| verdict::number(expression, book, cells);
    let about = || format!("{} of the cells that were run", Metric::of(of).label);
    finding::fill_in(title, number).unwrap_or_else(about)
}

impl TablePlan {
    fn layout(&self) -> Layout<'_> {
        Layout {
            rows: ("rows", &self.rows),
            columns: ("columns", &self.columns),
            panels: &self.panels,
            only: self.only.as_ref(),
        }
    }

    fn check(&self, book: &Book, known: &Known) -> Checked {
        at("metric", check_metrics(&self.metric, known))?;
        at("title", check_title(&self.title, book, known))?;
        self.layout().check(book)
    }

    fn resolve(&self, book: &Book, cells: &[result::Cell]) -> Option<Table> {
        let panels = self.layout().resolve(book).ok()?;
        (!panels.is_empty()).then(|| Table {
            name: self.name.clone(),
            title: title(&self.title, &self.metric.all()[0], book, cells),
            note: self.note.clone(),
            metrics: self.metric.all().to_vec(),
            paper: self.paper,
            panels,
        })
    }
}

impl FigurePlan {
    fn layout(&self) -> Layout<'_> {
        let (rows, columns) = match self.is_grid() {
            true => (("rows", &self.rows), ("columns", &self.columns)),
            false => (("by", &self.by), ("over", &self.over)),
        };
        Layout {
            rows,
            columns,
            panels: &self.panels,
            only: self.only.as_ref(),
        }
    }

    fn check(&self, book: &Book, known: &Known) -> Checked {
        self.check_source()?;
        self.check_axes()?;
        self.check_kind()?;
        at("log", self.check_log())?;
        if let Some(metrics) = &self.metric {
            at("metric", check_metrics(metrics, known))?;
        }
        at("flow", self.check_flows(book))?;
        at(
            "limits",
            each(&self.limits, |limit| at("value", limit.check())),
        )?;
        at("title", check_title(&self.title, book, known))?;
        self.layout().check(book)
    }

    /// A metric, or what goes over time with the keys that belong to it.
    fn check_source(&self) -> Checked {
        let over_time = self.of.is_some();
        let one = ensure(
            over_time != self.metric.is_some(),
            || "a figure draws either a metric or, over time, what of names",
        );
        at("of", one)?;
        let spread = matches!(self.kind, FigureKind::Series | FigureKind::Cdf);
        let drawn = ensure(
            !over_time || spread,
            || "only series and cdf draw what of names",
        );
        at("kind", drawn)?;
        let of_time = [
            ("flow", self.flow.is_some()),
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("bin", self.bin.is_some()),
        ];
        if let Some((key, _)) = of_time.into_iter().find(|(_, given)| *given && !over_time) {
            return at(key, Err("flow, from, to and bin belong to of"));
        }
        let onward = self.to.is_none_or(|to| to > self.from.unwrap_or_default());
        at("to", ensure(onward, || "to must be later than from"))
    }

    /// Each kind has the axes that mean something to it.
    fn check_axes(&self) -> Checked {
        let (others, problem) = match self.is_grid() {
            true => (
                [("over", &self.over), ("by", &self.by)],
                "a heat map or matrix has rows and columns, not over and by",
            ),
            false => (
                [("rows", &self.rows), ("columns", &self.columns)],
                "series, bars and cdf have over and by, not rows and columns",
            ),
        };
        match others.into_iter().find(|(_, names)| names.is_some()) {
            None => Ok(()),
            Some((key, _)) => at(key, Err(problem)),
        }
    }

    fn check_kind(&self) -> Checked {
        let metrics = listed(&self.metric).len();
        let grid = [&self.rows, &self.columns];
        match self.kind {
            FigureKind::Series if self.of.is_some() => {
                let bare = ensure(
                    self.over.is_none(),
                    || "what of names is drawn over time; leave over out",
                );
                at("over", bare)
            }
            FigureKind::Series => {
                let one = ensure(
                    listed(&self.over).len() == 1,
                    || "a series of a metric goes over one parameter",
                );
                at("over", one)
            }
            FigureKind::Bars => Ok(()),
            FigureKind::Cdf => at(
                "over",
                ensure(self.over.is_none(), || "a cdf has by, not over"),
            ),
            FigureKind::Heatmap => ensure(
                metrics == 1 && grid.iter().all(|names| names.is_some()),
                || "a heat map has one metric, rows and columns",
            ),
            FigureKind::Matrix => ensure(
                (1..=2).contains(&metrics) && grid.iter().all(|names| listed(names).len() == 1),
                || "a matrix has one or two metrics, and one parameter each for rows and columns",
            ),
        }
    }

    fn check_log(&self) -> Checked {
        let log = self.log.as_deref();
        ensure(
            log.is_none_or(|log| ["x", "y", "xy"].contains(&log)),
            || "log is \"x\", \"y\" or \"xy\"",
        )
    }

    fn check_flows(&self, book: &Book) -> Checked {
        let Some(of) = &self.of else {
            return Ok(());
        };
        for scenario in book.cells.iter().map(|cell| &cell.scenario) {
            let flows = Flows::of(scenario, &Topology::of(scenario));
            for name in listed(&self.flow) {
                let mut all = of.all().iter();
                all.try_for_each(|quantity| named_flow(scenario, &flows, name, *quantity))?;
            }
        }
        Ok(())
    }

    fn resolve(&self, book: &Book, cells: &[result::Cell]) -> Option<Figure> {
        let panels = self.layout().resolve(book).ok()?;
        let log = self.log.as_deref().unwrap_or_default();
        let seconds = |time: Option<Time>| time.map(Time::as_secs_f64);
        let span = (self.from.is_some() || self.to.is_some()).then(|| {
            [
                seconds(self.from).unwrap_or(0.0),
                seconds(self.to).unwrap_or(self.end_s(book)),
            ]
        });
        (!panels.is_empty()).then(|| Figure {
            name: self.name.clone(),
            kind: self.kind,
            title: title(&self.title, self.about(), book, cells),
            note: self.note.clone(),
            metrics: listed(&self.metric).to_vec(),
            courses: self.courses().into_iter().map(|(_, name)| name).collect(),
            span_s: span,
            log_x: log.contains('x'),
            log_y: log.contains('y'),
            paper: self.paper,
            limits: self.limits.iter().filter_map(LimitPlan::limit).collect(),
            panels,
        })
    }

    /// What it shows first.
    fn about(&self) -> &str {
        let of = self.of.as_ref().and_then(|of| of.all().first());
        let metric = listed(&self.metric).first().map(String::as_str);
        metric.or(of.map(|of| of.name())).unwrap_or_default()
    }

    /// No run is longer.
    fn end_s(&self, book: &Book) -> f64 {
        book.base.limit.as_secs_f64()
    }
}

impl LimitPlan {
    fn check(&self) -> Checked {
        ensure(
            self.limit().is_some(),
            || "a limit is a number or a quantity",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{book::Choices, library::Source};

    const TEXT: &str = r#"title = "t"
question = "q"
[vary]
loss = [0.0, 0.1]
relays = [false, true]
[[cells]]
label = "alone"
vary = { from = "b" }
[parameters]
from = "a"
[[links]]
name = "wan"
kind = "veth"
between = ["a", "b"]
[[links]]
name = "lan"
kind = "veth"
between = ["b", "c"]
[[flows]]
name = "get"
program = "curl"
from = "${from}"
to = "c"
size = "1MB"
"#;

    fn book(views: &str, only: &[(&str, &str)]) -> Book {
        let own = |text: &&str| (*text).to_owned();
        let source = Source {
            name: "t".to_owned(),
            origin: "t.toml".to_owned(),
            text: format!("{TEXT}{views}"),
            path: None,
        };
        let choices = Choices {
            only: only
                .iter()
                .map(|(key, value)| (own(key), own(value)))
                .collect(),
            ..Choices::default()
        };
        Book::open(&source, &choices).unwrap()
    }

    fn cells(book: &Book) -> Vec<result::Cell> {
        let cell = |n: usize| {
            let run = result::Run {
                metrics: result::Metrics::from([("goodput_bps".to_owned(), (n + 1) as f64 * 1e8)]),
                ..result::Run::default()
            };
            let mut cell = result::Cell {
                runs: vec![run],
                ..result::Cell::default()
            };
            cell.summarise();
            cell
        };
        (0..book.cells.len()).map(cell).collect()
    }

    const GRID: &str = "[[table]]\nname = \"grid\"\nmetric = \"goodput_bps\"\nrows = \"loss\"\n\
        title = \"{goodput_bps{loss=0,relays=true} / goodput_bps{loss=0,relays=false} :x}\"\n";

    #[test]
    fn cells_stand_where_their_values_put_them() {
        let book = book(&format!("{GRID}columns = \"relays\"\n"), &[]);
        let tables = tables(&book, &cells(&book));
        assert_eq!(tables[0].title, "2×");
        let [panel] = &tables[0].panels[..] else {
            panic!("one panel")
        };
        assert_eq!(panel.cells, [[Some(0), Some(1)], [Some(2), Some(3)]]);
        assert_eq!(panel.columns.heading(&panel.columns.entries[1]), "relays");
        assert_eq!(panel.rows.entries[1].values, [Value::from(0.1)]);
    }

    #[test]
    fn panels_split_what_rows_and_columns_leave() {
        let book = book(&format!("{GRID}panels = \"relays\"\n"), &[]);
        let tables = tables(&book, &cells(&book));
        let places: Vec<_> = tables[0]
            .panels
            .iter()
            .map(|panel| panel.cells.clone())
            .collect();
        assert_eq!(places, [[[Some(0)], [Some(2)]], [[Some(1)], [Some(3)]]]);
        assert_eq!(tables[0].panels[1].of["relays"], Value::from(true));
    }

    #[test]
    fn cells_themselves_are_rows_and_some_are_left_out() {
        let every = book(
            "[[table]]\nname = \"all\"\ntitle = \"t\"\nmetric = \"goodput_bps\"\nrows = \"cell\"\n",
            &[],
        );
        let tables = tables(&every, &cells(&every));
        let last = tables[0].panels[0].rows.entries.last().unwrap();
        assert_eq!(last.values, [Value::from("alone")]);
        let some = book(
            &format!("{GRID}only = {{ relays = true, loss = [0, 0.5] }}\n"),
            &[],
        );
        let tables = super::tables(&some, &cells(&some));
        assert_eq!(tables[0].panels[0].cells, [[Some(1)]]);
    }

    #[test]
    fn a_part_of_the_cells_makes_a_part_of_the_table() {
        let part = book(
            &format!("{GRID}columns = \"relays\"\n"),
            &[("relays", "true")],
        );
        let tables = tables(&part, &cells(&part));
        assert_eq!(tables[0].panels[0].cells, [[Some(0)], [Some(1)]]);
        assert_eq!(
            tables[0].title, "Goodput of the cells that were run",
            "the cell that it compares with was not run"
        );
        let none = book(&format!("{GRID}columns = \"relays\"\n"), &[("from", "b")]);
        assert!(super::tables(&none, &cells(&none)).is_empty());
    }

    #[test]
    fn a_figure_over_time_names_its_courses() {
        let figure = "[[figure]]\nname = \"f\"\nkind = \"series\"\ntitle = \"t\"\nof = [\"goodput_bps\", \"cwnd_bytes\"]\n\
            flow = \"get\"\nby = [\"loss\", \"relays\"]\nfrom = \"2s\"\nto = \"4s\"\nlog = \"y\"\n\
            limits = [{ value = \"1gbit\", label = \"line\" }]\n";
        let book = book(figure, &[]);
        let figures = figures(&book, &cells(&book));
        let courses: Vec<_> = figures[0]
            .courses
            .iter()
            .map(|course| (course.of.as_str(), course.flow.as_deref()))
            .collect();
        assert_eq!(
            courses,
            [("goodput_bps", Some("get")), ("cwnd_bytes", Some("get"))]
        );
        assert_eq!(
            (figures[0].span_s, figures[0].log_y),
            (Some([2.0, 4.0]), true)
        );
        assert_eq!(figures[0].limits[0].value, 1e9);
        assert_eq!(figures[0].panels[0].cells.len(), 4);
    }
}
