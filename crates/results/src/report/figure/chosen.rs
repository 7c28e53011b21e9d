// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures for a result whose scenario asks for none: by what its cells vary. Two parameters that are
//! numbers make a heat map, one makes lines, words make bars.

use super::heat::ratio;
use crate::{
    result::{Cell, LabResult, Vary},
    view::{Axis, Entry, Figure, FigureKind, Panel},
};
use indexmap::{IndexMap, IndexSet};
use longhaul_report::metric::Metric;
use serde_json::Value;

/// Figures without being asked.
const FIGURES_MAX: usize = 4;
/// Values that a parameter needs to be worth an axis.
const AXIS_MIN: usize = 3;
/// Lines in one picture.
const LINES_MAX: usize = 12;
/// Cells whose figures a title names one by one.
const SAID_MAX: usize = 3;

/// A figure of the main metric, and of each other that the paper has.
pub(crate) fn figures(result: &LabResult) -> Vec<Figure> {
    let shape = Shape::of(&result.cells);
    let figures = metrics(result).into_iter().take(FIGURES_MAX);
    figures
        .map(|metric| figure(result, &shape, metric))
        .collect()
}

fn metrics(result: &LabResult) -> IndexSet<&str> {
    let measured = |name: &&str| {
        result
            .cells
            .iter()
            .any(|cell| cell.metrics.contains_key(*name))
    };
    let papers = result
        .cells
        .iter()
        .flat_map(|cell| cell.paper.keys().map(String::as_str));
    result
        .main_metric()
        .into_iter()
        .chain(papers)
        .filter(measured)
        .collect()
}

fn figure(result: &LabResult, shape: &Shape, metric: &str) -> Figure {
    Figure {
        name: format!("{}-chosen", metric.replace('_', "-")),
        kind: shape.kind,
        title: finding(result, metric),
        note: None,
        metrics: vec![metric.to_owned()],
        paper: true,
        panels: shape.panels.clone(),
        ..Figure::default()
    }
}

/// The figures themselves while they are few; else the least and the most, and where they stand beside
/// the paper's.
pub(crate) fn finding(result: &LabResult, name: &str) -> String {
    let metric = Metric::of(name);
    let mut found: Vec<(&Cell, f64)> = result
        .cells
        .iter()
        .filter_map(|cell| Some((cell, cell.metrics.get(name)?.median)))
        .collect();
    let said =
        |(cell, median): &(&Cell, f64)| format!("{} ({})", metric.print(*median), cell.name());
    if found.len() <= SAID_MAX {
        let figures: Vec<String> = found.iter().map(said).collect();
        return format!("{}: {}", metric.label, figures.join(", "));
    }
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (least, most) = (found[0].1, found[found.len() - 1].1);
    format!(
        "{}: {} to {}{}",
        metric.label,
        metric.print(least),
        metric.print(most),
        beside_paper(result, name)
    )
}

/// "; at least the paper's in 3 of 20 cells".
fn beside_paper(result: &LabResult, name: &str) -> String {
    let ratios: Vec<f64> = result
        .cells
        .iter()
        .filter_map(|cell| ratio(cell, name))
        .collect();
    let reached = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
    match ratios.len() {
        0 => String::new(),
        all => format!("; at least as good as the paper’s in {reached} of {all} cells"),
    }
}

/// The form that suits the cells.
#[derive(Debug, PartialEq)]
struct Shape {
    kind: FigureKind,
    panels: Vec<Panel>,
}

impl Shape {
    fn of(cells: &[Cell]) -> Self {
        let Some(varied) = Varied::of(cells) else {
            return one_by_one(cells);
        };
        match varied.axes().as_slice() {
            [across, down, ..] => varied.shape(FigureKind::Heatmap, &[down], across),
            [across] => match varied.rows(across) {
                rows if rows.is_empty() && varied.keys.len() > 1 => varied.bars(),
                rows => varied.shape(FigureKind::Series, &rows, across),
            },
            [] => varied.bars(),
        }
    }
}

/// Cells that have nothing in common stand below each other under their own names.
fn one_by_one(cells: &[Cell]) -> Shape {
    let entry = |cell: &Cell| Entry {
        values: Vec::new(),
        label: Some(cell.name()),
    };
    let axis = |entries| Axis {
        by: Vec::new(),
        entries,
    };
    let panel = Panel {
        of: Vary::new(),
        rows: axis(vec![Entry::default()]),
        columns: axis(cells.iter().map(entry).collect()),
        cells: vec![(0..cells.len()).map(Some).collect()],
    };
    Shape {
        kind: FigureKind::Bars,
        panels: vec![panel],
    }
}

/// The parameters that cells differ in, each with its values in order of appearance.
struct Varied<'a> {
    cells: &'a [Cell],
    keys: IndexMap<&'a str, Vec<&'a Value>>,
}

impl<'a> Varied<'a> {
    /// `None` if cells vary different parameters, so that most places of a grid would be empty, or none.
    fn of(cells: &'a [Cell]) -> Option<Self> {
        let first = cells.first()?;
        let alike = |cell: &Cell| cell.vary.keys().eq(first.vary.keys());
        let values = |key: &'a String| {
            let all = cells.iter().filter_map(|cell| cell.vary.get(key));
            let mut distinct: Vec<&Value> = Vec::new();
            all.for_each(|value| {
                if !distinct.contains(&value) {
                    distinct.push(value);
                }
            });
            (key.as_str(), distinct)
        };
        let keys: IndexMap<&str, Vec<&Value>> = first
            .vary
            .keys()
            .map(values)
            .filter(|(_, values)| values.len() > 1)
            .collect();
        (cells.iter().all(alike) && !keys.is_empty()).then_some(Self { cells, keys })
    }

    /// The two parameters with the most values that are all numbers, in the scenario's order.
    fn axes(&self) -> Vec<&'a str> {
        let number = |value: &&Value| {
            let entry = Entry {
                values: vec![(*value).clone()],
                label: None,
            };
            Axis::position(&entry).is_some()
        };
        let worth = |values: &[&Value]| values.len() >= AXIS_MIN && values.iter().all(number);
        let mut axes: Vec<&str> = self
            .keys
            .iter()
            .filter(|(_, values)| worth(values))
            .map(|(key, _)| *key)
            .collect();
        axes.sort_by_key(|key| std::cmp::Reverse(self.keys[key].len()));
        axes.truncate(2);
        axes.sort_by_key(|key| self.keys.get_index_of(key));
        axes
    }

    /// The parameters beside `across` that make lines while these are few, those with the most values
    /// first; the others make panels.
    fn rows(&self, across: &str) -> Vec<&'a str> {
        let mut others: Vec<&str> = self
            .keys
            .keys()
            .copied()
            .filter(|key| *key != across)
            .collect();
        others.sort_by_key(|key| std::cmp::Reverse(self.keys[key].len()));
        let mut lines = 1;
        let fits = |key: &&str| {
            lines *= self.keys[key].len();
            lines <= LINES_MAX
        };
        others.into_iter().take_while(fits).collect()
    }

    /// A group for each value of the first parameter; of one alone, a bar each.
    fn bars(&self) -> Shape {
        let keys: Vec<&str> = self.keys.keys().copied().collect();
        match keys.as_slice() {
            [first, rest @ ..] if !rest.is_empty() => self.shape(FigureKind::Bars, rest, first),
            _ => one_by_one(self.cells),
        }
    }

    fn shape(&self, kind: FigureKind, rows: &[&str], across: &str) -> Shape {
        let (rows, columns) = (self.axis(rows), self.axis(&[across]));
        let panel = |of: Vary| Panel {
            cells: self.places(&of, &rows, &columns),
            rows: rows.clone(),
            columns: columns.clone(),
            of,
        };
        let beside = |key: &&str| *key != across && rows.by.iter().all(|row| row != key);
        let rest: Vec<&str> = self.keys.keys().copied().filter(beside).collect();
        Shape {
            kind,
            panels: self.combinations(&rest).into_iter().map(panel).collect(),
        }
    }

    fn axis(&self, keys: &[&str]) -> Axis {
        let entry = |vary: Vary| Entry {
            values: vary.into_values().collect(),
            label: None,
        };
        Axis {
            by: keys.iter().map(|key| (*key).to_owned()).collect(),
            entries: self.combinations(keys).into_iter().map(entry).collect(),
        }
    }

    /// The values of `keys` that occur together, in order of appearance.
    fn combinations(&self, keys: &[&str]) -> Vec<Vary> {
        let of = |cell: &Cell| {
            keys.iter()
                .map(|key| ((*key).to_owned(), cell.vary[*key].clone()))
                .collect::<Vary>()
        };
        let mut found: Vec<Vary> = Vec::new();
        for combination in self.cells.iter().map(of) {
            if !found.contains(&combination) {
                found.push(combination);
            }
        }
        found
    }

    fn places(&self, of: &Vary, rows: &Axis, columns: &Axis) -> Vec<Vec<Option<usize>>> {
        let is = |cell: &Cell, axis: &Axis, entry: &Entry| {
            axis.by
                .iter()
                .zip(&entry.values)
                .all(|(key, value)| cell.vary.get(key) == Some(value))
        };
        let in_panel = |cell: &Cell| {
            of.iter()
                .all(|(key, value)| cell.vary.get(key) == Some(value))
        };
        let place = |row: &Entry, column: &Entry| {
            let here =
                |cell: &Cell| in_panel(cell) && is(cell, rows, row) && is(cell, columns, column);
            self.cells.iter().position(here)
        };
        let row = |row: &Entry| {
            columns
                .entries
                .iter()
                .map(|column| place(row, column))
                .collect()
        };
        rows.entries.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cells(varies: &[Value]) -> Vec<Cell> {
        let cell = |vary: &Value| Cell {
            vary: serde_json::from_value(vary.clone()).unwrap(),
            ..Cell::default()
        };
        varies.iter().map(cell).collect()
    }

    /// Kind, panels, rows and columns of what suits these cells.
    fn chosen(varies: &[Value]) -> (FigureKind, usize, usize, usize) {
        let shape = Shape::of(&cells(varies));
        let panel = &shape.panels[0];
        (
            shape.kind,
            shape.panels.len(),
            panel.rows.entries.len(),
            panel.columns.entries.len(),
        )
    }

    fn crossed(keys: &[(&str, &[Value])]) -> Vec<Value> {
        let mut all = vec![json!({})];
        for (key, values) in keys {
            let with = |one: &Value, value: &Value| {
                let mut one = one.clone();
                one[key] = value.clone();
                one
            };
            all = all
                .iter()
                .flat_map(|one| values.iter().map(move |value| with(one, value)))
                .collect();
        }
        all
    }

    #[test]
    fn two_numbers_make_a_heat_map_and_the_rest_its_panels() {
        let delay: Vec<Value> = ["0ms", "1ms", "2ms"].map(Value::from).to_vec();
        let loss: Vec<Value> = [0.0, 1e-5, 1e-4, 1e-3].map(Value::from).to_vec();
        let relays = [json!(false), json!(true)];
        let all = crossed(&[("relays", &relays), ("loss", &loss), ("delay", &delay)]);
        assert_eq!(chosen(&all), (FigureKind::Heatmap, 2, 4, 3));
    }

    #[test]
    fn one_number_makes_lines_as_many_as_can_be_told_apart() {
        let n: Vec<Value> = [1, 2, 3, 4].map(Value::from).to_vec();
        let way: Vec<Value> = ["a", "b", "c", "d", "e", "f", "g"]
            .map(Value::from)
            .to_vec();
        let switch = [json!(false), json!(true)];
        assert_eq!(
            chosen(&crossed(&[("way", &way), ("n", &n)])),
            (FigureKind::Series, 1, 7, 4)
        );
        let all = crossed(&[("switch", &switch), ("way", &way), ("n", &n)]);
        assert_eq!(chosen(&all), (FigureKind::Series, 2, 7, 4));
        assert_eq!(
            chosen(&crossed(&[("n", &n)])),
            (FigureKind::Series, 1, 1, 4)
        );
    }

    #[test]
    fn words_and_cells_of_their_own_make_bars() {
        let streams = [json!(16), json!(32)];
        let switch = [json!(false), json!(true)];
        assert_eq!(
            chosen(&crossed(&[("streams", &streams), ("on", &switch)])),
            (FigureKind::Bars, 1, 2, 2)
        );
        assert_eq!(
            chosen(&[json!({"a": 1}), json!({"b": 2})]),
            (FigureKind::Bars, 1, 1, 2)
        );
        assert_eq!(chosen(&[]), (FigureKind::Bars, 1, 1, 0));
    }

    #[test]
    fn a_place_without_a_cell_stays_empty() {
        let mut all = crossed(&[
            ("n", &[json!(1), json!(2), json!(3)]),
            ("way", &[json!("a"), json!("b")]),
        ]);
        all.remove(0);
        let shape = Shape::of(&cells(&all));
        let empty = shape.panels[0]
            .cells
            .iter()
            .flatten()
            .filter(|place| place.is_none())
            .count();
        assert_eq!(empty, 1);
    }
}
