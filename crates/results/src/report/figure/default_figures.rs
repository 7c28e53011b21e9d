// SPDX-License-Identifier: MIT OR Apache-2.0
//! Default figures for a result whose scenario selects none, by its varied parameters. Two numeric parameters give a
//! heat map, one gives lines, others give bars.

use super::heat::ratio;
use crate::{
    result::{Cell, LabResult, Parameters},
    view::{Axis, Entry, Facet, Figure, FigureKind},
};
use indexmap::{IndexMap, IndexSet};
use longhaul_report::metric::Metric;
use serde_json::Value;

/// Maximum number of default figures.
const FIGURES_MAX: usize = 4;
/// Minimum number of values of a parameter for an axis.
const AXIS_MIN: usize = 3;
/// Maximum number of lines in a figure.
const LINES_MAX: usize = 12;
/// Maximum number of cells whose values a title lists.
const LISTED_CELLS_MAX: usize = 3;

/// Returns a figure of the main metric, and of each other metric with reference values.
pub(crate) fn figures(result: &LabResult) -> Vec<Figure> {
    let shape = Shape::choose(&result.cells);
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
    let with_reference = result
        .cells
        .iter()
        .flat_map(|cell| cell.reference.keys().map(String::as_str));
    result
        .main_metric()
        .into_iter()
        .chain(with_reference)
        .filter(measured)
        .collect()
}

fn figure(result: &LabResult, shape: &Shape, metric: &str) -> Figure {
    Figure {
        name: format!("{}-default", metric.replace('_', "-")),
        kind: shape.kind,
        title: title(result, metric),
        note: None,
        metrics: vec![metric.to_owned()],
        reference: true,
        facets: shape.facets.clone(),
        ..Figure::default()
    }
}

/// Returns a title: the values of all cells if they are few. Otherwise the minimum and the maximum, and a comparison
/// with the reference values.
pub(crate) fn title(result: &LabResult, name: &str) -> String {
    let metric = Metric::of(name);
    let mut found: Vec<(&Cell, f64)> = result
        .cells
        .iter()
        .filter_map(|cell| Some((cell, cell.metrics.get(name)?.median)))
        .collect();
    let describe =
        |(cell, median): &(&Cell, f64)| format!("{} ({})", metric.format(*median), cell.name());
    if found.len() <= LISTED_CELLS_MAX {
        let values: Vec<String> = found.iter().map(describe).collect();
        return format!("{}: {}", metric.label, values.join(", "));
    }
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (least, most) = (found[0].1, found[found.len() - 1].1);
    format!(
        "{}: {} to {}{}",
        metric.label,
        metric.format(least),
        metric.format(most),
        reference_comparison(result, name)
    )
}

/// Returns the comparison with the reference values: "; at least as good as the reference in 3 of 20 cells".
fn reference_comparison(result: &LabResult, name: &str) -> String {
    let ratios: Vec<f64> = result
        .cells
        .iter()
        .filter_map(|cell| ratio(cell, name))
        .collect();
    let at_least_reference = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
    match ratios.len() {
        0 => String::new(),
        all => {
            format!("; at least as good as the reference in {at_least_reference} of {all} cells")
        }
    }
}

/// Kind and facets of a figure that suit the cells.
#[derive(Debug, PartialEq)]
struct Shape {
    kind: FigureKind,
    facets: Vec<Facet>,
}

impl Shape {
    fn choose(cells: &[Cell]) -> Self {
        let Some(varied) = VariedParameters::new(cells) else {
            return one_by_one(cells);
        };
        match varied.axes().as_slice() {
            [across, down, ..] => varied.shape(FigureKind::Heatmap, &[down], across),
            [across] => match varied.rows(across) {
                rows if rows.is_empty() && varied.keys.len() > 1 => varied.bars(),
                rows => varied.shape(FigureKind::Line, &rows, across),
            },
            [] => varied.bars(),
        }
    }
}

/// Returns bars with the cells' own names, for cells without common parameters.
fn one_by_one(cells: &[Cell]) -> Shape {
    let entry = |cell: &Cell| Entry {
        values: Vec::new(),
        label: Some(cell.name()),
    };
    let axis = |entries| Axis {
        parameters: Vec::new(),
        entries,
    };
    let facet = Facet {
        shared_values: Parameters::new(),
        rows: axis(vec![Entry::default()]),
        columns: axis(cells.iter().map(entry).collect()),
        cells: vec![(0..cells.len()).map(Some).collect()],
    };
    Shape {
        kind: FigureKind::Bars,
        facets: vec![facet],
    }
}

/// Parameters in which cells differ, each with its values in order of appearance.
struct VariedParameters<'a> {
    cells: &'a [Cell],
    keys: IndexMap<&'a str, Vec<&'a Value>>,
}

impl<'a> VariedParameters<'a> {
    /// Collects the parameters. Returns `None` if cells have different parameters (most of a grid would be empty) or
    /// none.
    fn new(cells: &'a [Cell]) -> Option<Self> {
        let first = cells.first()?;
        let has_same_keys = |cell: &Cell| cell.parameters.keys().eq(first.parameters.keys());
        let values = |key: &'a String| {
            let all = cells.iter().filter_map(|cell| cell.parameters.get(key));
            let mut distinct: Vec<&Value> = Vec::new();
            all.for_each(|value| {
                if !distinct.contains(&value) {
                    distinct.push(value);
                }
            });
            (key.as_str(), distinct)
        };
        let keys: IndexMap<&str, Vec<&Value>> = first
            .parameters
            .keys()
            .map(values)
            .filter(|(_, values)| values.len() > 1)
            .collect();
        (cells.iter().all(has_same_keys) && !keys.is_empty()).then_some(Self { cells, keys })
    }

    /// Returns the two numeric parameters with the most values, in the order of the scenario.
    fn axes(&self) -> Vec<&'a str> {
        let number = |value: &&Value| {
            let entry = Entry {
                values: vec![(*value).clone()],
                label: None,
            };
            Axis::position(&entry).is_some()
        };
        let is_suitable = |values: &[&Value]| values.len() >= AXIS_MIN && values.iter().all(number);
        let mut axes: Vec<&str> = self
            .keys
            .iter()
            .filter(|(_, values)| is_suitable(values))
            .map(|(key, _)| *key)
            .collect();
        axes.sort_by_key(|key| std::cmp::Reverse(self.keys[key].len()));
        axes.truncate(2);
        axes.sort_by_key(|key| self.keys.get_index_of(key));
        axes
    }

    /// Returns the other parameters that give lines while these are few, those with the most values first. The rest
    /// give facets.
    fn rows(&self, across: &str) -> Vec<&'a str> {
        let mut other_keys: Vec<&str> = self
            .keys
            .keys()
            .copied()
            .filter(|key| *key != across)
            .collect();
        other_keys.sort_by_key(|key| std::cmp::Reverse(self.keys[key].len()));
        let mut lines = 1;
        let has_few_lines = |key: &&str| {
            lines *= self.keys[key].len();
            lines <= LINES_MAX
        };
        other_keys.into_iter().take_while(has_few_lines).collect()
    }

    /// Returns bars: a group for each value of the first parameter, or a bar for each value of a single one.
    fn bars(&self) -> Shape {
        let keys: Vec<&str> = self.keys.keys().copied().collect();
        match keys.as_slice() {
            [first, remaining @ ..] if !remaining.is_empty() => {
                self.shape(FigureKind::Bars, remaining, first)
            }
            _ => one_by_one(self.cells),
        }
    }

    fn shape(&self, kind: FigureKind, rows: &[&str], across: &str) -> Shape {
        let (rows, columns) = (self.axis(rows), self.axis(&[across]));
        let facet = |of: Parameters| Facet {
            cells: self.cell_indices(&of, &rows, &columns),
            rows: rows.clone(),
            columns: columns.clone(),
            shared_values: of,
        };
        let is_remaining =
            |key: &&str| *key != across && rows.parameters.iter().all(|row| row != key);
        let remaining: Vec<&str> = self.keys.keys().copied().filter(is_remaining).collect();
        Shape {
            kind,
            facets: self
                .combinations(&remaining)
                .into_iter()
                .map(facet)
                .collect(),
        }
    }

    fn axis(&self, keys: &[&str]) -> Axis {
        let entry = |parameters: Parameters| Entry {
            values: parameters.into_values().collect(),
            label: None,
        };
        Axis {
            parameters: keys.iter().map(|key| (*key).to_owned()).collect(),
            entries: self.combinations(keys).into_iter().map(entry).collect(),
        }
    }

    /// Returns the combinations of values of `keys` that occur, in order of appearance.
    fn combinations(&self, keys: &[&str]) -> Vec<Parameters> {
        let of = |cell: &Cell| {
            keys.iter()
                .map(|key| ((*key).to_owned(), cell.parameters[*key].clone()))
                .collect::<Parameters>()
        };
        let mut found: Vec<Parameters> = Vec::new();
        for combination in self.cells.iter().map(of) {
            if !found.contains(&combination) {
                found.push(combination);
            }
        }
        found
    }

    fn cell_indices(
        &self,
        of: &Parameters,
        rows: &Axis,
        columns: &Axis,
    ) -> Vec<Vec<Option<usize>>> {
        let is = |cell: &Cell, axis: &Axis, entry: &Entry| {
            axis.parameters
                .iter()
                .zip(&entry.values)
                .all(|(key, value)| cell.parameters.get(key) == Some(value))
        };
        let in_facet = |cell: &Cell| {
            of.iter()
                .all(|(key, value)| cell.parameters.get(key) == Some(value))
        };
        let index_of = |row: &Entry, column: &Entry| {
            let is_here =
                |cell: &Cell| in_facet(cell) && is(cell, rows, row) && is(cell, columns, column);
            self.cells.iter().position(is_here)
        };
        let row = |row: &Entry| {
            columns
                .entries
                .iter()
                .map(|column| index_of(row, column))
                .collect()
        };
        rows.entries.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cells(all: &[Value]) -> Vec<Cell> {
        let cell = |parameters: &Value| Cell {
            parameters: serde_json::from_value(parameters.clone()).unwrap(),
            ..Cell::default()
        };
        all.iter().map(cell).collect()
    }

    /// Returns kind, facets, rows and columns of the figure for these cells.
    fn shape_of(all: &[Value]) -> (FigureKind, usize, usize, usize) {
        let shape = Shape::choose(&cells(all));
        let facet = &shape.facets[0];
        (
            shape.kind,
            shape.facets.len(),
            facet.rows.entries.len(),
            facet.columns.entries.len(),
        )
    }

    fn combine(keys: &[(&str, &[Value])]) -> Vec<Value> {
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
    fn two_numeric_parameters_give_a_heat_map() {
        let delay: Vec<Value> = ["0ms", "1ms", "2ms"].map(Value::from).to_vec();
        let loss: Vec<Value> = [0.0, 1e-5, 1e-4, 1e-3].map(Value::from).to_vec();
        let relays = [json!(false), json!(true)];
        let all = combine(&[("relays", &relays), ("loss", &loss), ("delay", &delay)]);
        assert_eq!(shape_of(&all), (FigureKind::Heatmap, 2, 4, 3));
    }

    #[test]
    fn one_numeric_parameter_gives_a_limited_number_of_lines() {
        let n: Vec<Value> = [1, 2, 3, 4].map(Value::from).to_vec();
        let way: Vec<Value> = ["a", "b", "c", "d", "e", "f", "g"]
            .map(Value::from)
            .to_vec();
        let switch = [json!(false), json!(true)];
        assert_eq!(
            shape_of(&combine(&[("way", &way), ("n", &n)])),
            (FigureKind::Line, 1, 7, 4)
        );
        let all = combine(&[("switch", &switch), ("way", &way), ("n", &n)]);
        assert_eq!(shape_of(&all), (FigureKind::Line, 2, 7, 4));
        assert_eq!(
            shape_of(&combine(&[("n", &n)])),
            (FigureKind::Line, 1, 1, 4)
        );
    }

    #[test]
    fn other_parameters_give_bars() {
        let streams = [json!(16), json!(32)];
        let switch = [json!(false), json!(true)];
        assert_eq!(
            shape_of(&combine(&[("streams", &streams), ("on", &switch)])),
            (FigureKind::Bars, 1, 2, 2)
        );
        assert_eq!(
            shape_of(&[json!({"a": 1}), json!({"b": 2})]),
            (FigureKind::Bars, 1, 1, 2)
        );
        assert_eq!(shape_of(&[]), (FigureKind::Bars, 1, 1, 0));
    }

    #[test]
    fn leaves_positions_without_cell_empty() {
        let mut all = combine(&[
            ("n", &[json!(1), json!(2), json!(3)]),
            ("way", &[json!("a"), json!("b")]),
        ]);
        all.remove(0);
        let shape = Shape::choose(&cells(&all));
        let empty = shape.facets[0]
            .cells
            .iter()
            .flatten()
            .filter(|index| index.is_none())
            .count();
        assert_eq!(empty, 1);
    }
}
