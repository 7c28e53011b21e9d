// SPDX-License-Identifier: MIT OR Apache-2.0
//! The main metric over two varied settings, as a heat map that is a real table. What else was
//! varied splits it into panels, all on one colour scale.

use crate::lab::{
    metric::Metric,
    result::{Cell, LabResult, Vary, setting, varied},
};
use indexmap::{IndexMap, IndexSet};
use maud::{Markup, html};

/// Steps of the colour scale; `longhaul.css` has as many classes `heat-0`, `heat-1`, ….
const STEPS: f64 = 9.0;

/// Which settings make columns, rows and panels.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    column: String,
    row: String,
    panels: Vec<Vary>,
}

impl Plan {
    /// The two settings with the most values become columns and rows, in the scenario's order.
    /// `None` if fewer than two were varied, or if cells were chosen one by one and differ in what
    /// they vary, so that most places of a grid would be empty: then bars say it better.
    pub(super) fn of(cells: &[Cell]) -> Option<Self> {
        let first = cells.first()?;
        if !cells
            .iter()
            .all(|cell| cell.vary.keys().eq(first.vary.keys()))
        {
            return None;
        }
        let mut keys: Vec<(String, usize)> = values_by_key(cells)
            .into_iter()
            .map(|(key, values)| (key.clone(), values.len()))
            .filter(|(_, values)| *values > 1)
            .collect();
        keys.sort_by_key(|(_, values)| std::cmp::Reverse(*values));
        let [(first, _), (second, _), ..] = keys.as_slice() else {
            return None;
        };
        let position = |key: &String| cells[0].vary.get_index_of(key);
        let (column, row) = match position(first) <= position(second) {
            true => (first, second),
            false => (second, first),
        };
        let rest = |cell: &Cell| {
            let others = cell
                .vary
                .iter()
                .filter(|(key, _)| *key != column && *key != row);
            others
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect::<Vary>()
        };
        let mut panels: Vec<Vary> = cells.iter().map(rest).collect();
        let mut seen: Vec<Vary> = Vec::new();
        panels.retain(|panel| {
            !seen.contains(panel) && {
                seen.push(panel.clone());
                true
            }
        });
        Some(Self {
            column: column.clone(),
            row: row.clone(),
            panels,
        })
    }
}

/// Each varied setting with its distinct values as text, in order of appearance.
fn values_by_key(cells: &[Cell]) -> IndexMap<&String, IndexSet<String>> {
    let mut values: IndexMap<&String, IndexSet<String>> = IndexMap::new();
    for (key, value) in cells.iter().flat_map(|cell| &cell.vary) {
        values.entry(key).or_default().insert(setting(key, value));
    }
    values
}

/// The panels, or nothing if no cell has the main metric.
pub(super) fn section(result: &LabResult, plan: &Plan) -> Markup {
    let Some(metric) = result.main_metric() else {
        return html! {};
    };
    let medians = result
        .cells
        .iter()
        .filter_map(|cell| Some(cell.metrics.get(metric)?.median));
    let scale = Scale::of(medians);
    html! {
        section.grid {
            h2 { (Metric::of(metric).label) " by " (plan.column) " and " (plan.row) }
            p { "Darker is more. Small: the paper’s figure; “?” marks one that looks misprinted." }
            @for panel in &plan.panels { (draw(result, plan, panel, metric, &scale)) }
        }
    }
}

fn draw(result: &LabResult, plan: &Plan, panel: &Vary, metric: &str, scale: &Scale) -> Markup {
    let values = values_by_key(&result.cells);
    let (columns, rows) = (&values[&plan.column], &values[&plan.row]);
    let title: Vec<String> = panel
        .iter()
        .map(|(key, value)| varied(key, value))
        .collect();
    let find = |column: &str, row: &str| {
        result.cells.iter().find(|cell| {
            let is =
                |key: &str, text: &str| cell.vary.get(key).is_some_and(|v| setting(key, v) == text);
            let in_panel = panel
                .iter()
                .all(|(key, value)| cell.vary.get(key) == Some(value));
            in_panel && is(&plan.column, column) && is(&plan.row, row)
        })
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Heat map " (title.join(", ")) } {
            table.heat {
                @if !title.is_empty() { caption { (title.join(", ")) } }
                thead {
                    tr {
                        th scope="col" { (plan.row) " \\ " (plan.column) }
                        @for column in columns { th scope="col" { (column) } }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (row) }
                            @for column in columns { (square(find(column, row), metric, scale)) }
                        }
                    }
                }
            }
        }
    }
}

fn square(cell: Option<&Cell>, name: &str, scale: &Scale) -> Markup {
    let Some((cell, ours)) = cell.and_then(|cell| Some((cell, cell.metrics.get(name)?))) else {
        return html! { td { "–" } };
    };
    let metric = Metric::of(name);
    html! {
        td class={ "heat-" (scale.step(ours.median)) } {
            (metric.print(ours.median))
            @if let Some(paper) = cell.paper.get(name) {
                small {
                    (metric.print(*paper))
                    @if cell.paper_figure(name).is_none() { "?" }
                }
            }
        }
    }
}

/// One colour scale for all panels; logarithmic, since throughput falls by decades with loss.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|x| *x > 0.0).map(f64::ln);
        let wider = |range: Self, x: f64| Self {
            low: range.low.min(x),
            high: range.high.max(x),
        };
        positive.fold(
            Self {
                low: f64::INFINITY,
                high: f64::NEG_INFINITY,
            },
            wider,
        )
    }

    /// The step of `value`, 0 (least) to 8.
    fn step(&self, value: f64) -> u32 {
        let width = (self.high - self.low).max(f64::MIN_POSITIVE);
        let share = ((value.ln() - self.low) / width).clamp(0.0, 1.0);
        (share * STEPS).min(STEPS - 1.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cells(varies: &[Value]) -> Vec<Cell> {
        let cell = |vary: &Value| Cell {
            vary: serde_json::from_value(vary.clone()).unwrap(),
            ..Cell::default()
        };
        varies.iter().map(cell).collect()
    }

    #[test]
    fn one_varied_setting_is_no_grid() {
        let one = cells(&[
            json!({"relays": false, "size": "1GB"}),
            json!({"relays": true, "size": "1GB"}),
        ]);
        assert_eq!(Plan::of(&one), None);
        assert_eq!(Plan::of(&[]), None);
    }

    #[test]
    fn cells_that_vary_different_settings_are_no_grid() {
        let chosen = cells(&[
            json!({"relays": false}),
            json!({"relays": true}),
            json!({"from": "server", "to": "relay"}),
            json!({"from": "relay", "to": "client"}),
        ]);
        assert_eq!(Plan::of(&chosen), None);
    }

    #[test]
    fn the_setting_with_fewest_values_splits_panels() {
        let mut varies = Vec::new();
        for relays in [false, true] {
            for (delay, loss) in [
                ("0ms", 0.0),
                ("1ms", 0.0),
                ("2ms", 0.0),
                ("0ms", 0.1),
                ("1ms", 0.2),
            ] {
                varies.push(json!({"relays": relays, "delay": delay, "loss": loss}));
            }
        }
        let plan = Plan::of(&cells(&varies)).unwrap();
        assert_eq!((plan.column.as_str(), plan.row.as_str()), ("delay", "loss"));
        assert_eq!(plan.panels.len(), 2);
    }

    #[test]
    fn steps_span_the_range_by_decades() {
        let scale = Scale::of([1e6, 1e9].into_iter());
        assert_eq!([1e6, 3.2e7, 1e9].map(|x| scale.step(x)), [0, 4, 8]);
        assert_eq!(scale.step(0.0), 0);
    }
}
