// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heat map as an HTML table: the measured value in each field, the reference value and the ratio below. The colour shows
//! the ratio if there are reference values, else the value, on one scale for all facets.

use super::grid::{Grid, grids, heading};
use crate::{
    result::{Cell, LabResult},
    view::Figure,
};
use longhaul_report::{
    metric::{Metric, format_factor},
    table::{HEAT_STEPS, heat_class},
};
use maud::{Markup, html};

/// Upper limits of the ratio for each colour but the last; classes `ratio-0`, `ratio-1`, ….
const RATIO_LIMITS: [f64; 8] = [0.33, 0.6, 0.85, 0.97, 1.03, 1.18, 1.67, 3.0];

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let Some(name) = figure.metrics.first() else {
        return html! {};
    };
    let grids = grids(result, &figure.facets);
    let colour_scale = ColourScale::new(&grids, name, figure.reference);
    html! {
        figure.heatmap {
            (heading(figure))
            @for grid in &grids { (grid.table("heat", &figure.title, "", |cell| field(cell, name, &colour_scale))) }
            (colour_scale.legend(&Metric::of(name)))
        }
    }
}

/// Quantity that the colour shows.
#[derive(Debug)]
enum ColourScale {
    /// Ratio of the measured to the reference value.
    Ratio,
    /// Value.
    Value(Range),
}

impl ColourScale {
    fn new(grids: &[Grid<'_>], name: &str, reference: bool) -> Self {
        let all = || grids.iter().flat_map(Grid::all);
        if reference && all().any(|cell| ratio(cell, name).is_some()) {
            Self::Ratio
        } else {
            Self::Value(Range::new(
                all().filter_map(|cell| Some(cell.metrics.get(name)?.median)),
            ))
        }
    }

    fn class(&self, cell: &Cell, name: &str) -> Option<String> {
        match self {
            Self::Ratio => ratio(cell, name).map(ratio_class),
            Self::Value(range) => {
                let median = cell.metrics.get(name)?.median;
                Some(heat_class(range.position(median)))
            }
        }
    }

    fn legend(&self, metric: &Metric) -> Markup {
        match self {
            Self::Ratio => ratio_legend(
                "Colour: measured against reference value",
                ["worse by 3× or more", "equal", "better by 3× or more"],
            ),
            Self::Value(range) => range.legend(metric),
        }
    }
}

/// Returns the factor by which the measured value is better than the reference; `None` if they cannot be compared.
pub(crate) fn ratio(cell: &Cell, name: &str) -> Option<f64> {
    let measured = cell.metrics.get(name)?.median;
    Metric::of(name).factor(measured, cell.reference_value(name)?)
}

/// Returns the CSS class of a ratio: orange below one, blue above.
pub(super) fn ratio_class(ratio: f64) -> String {
    format!(
        "ratio-{}",
        RATIO_LIMITS.iter().filter(|bound| ratio > **bound).count()
    )
}

/// Returns the legend: all colours, with labels for both ends and the middle.
pub(super) fn ratio_legend(of: &str, [worse, same, better]: [&str; 3]) -> Markup {
    html! {
        p.heat.ramp {
            (of) ": " (worse) " "
            @for step in 0..=RATIO_LIMITS.len() {
                @if step == RATIO_LIMITS.len() / 2 { span.swatch.wide.{ "ratio-" (step) } { (same) } }
                @else { span.swatch.{ "ratio-" (step) } {} }
            }
            " " (better)
        }
    }
}

fn field(cell: &Cell, name: &str, colour_scale: &ColourScale) -> Markup {
    let Some(summary) = cell.metrics.get(name) else {
        return html! { td { "–" } };
    };
    let metric = Metric::of(name);
    html! {
        td class=[colour_scale.class(cell, name)] {
            (metric.format(summary.median))
            @if let Some(reference) = cell.reference.get(name) {
                small { "reference " (metric.format(*reference)) }
                small { @match ratio(cell, name) {
                    Some(ratio) => { (format_factor(ratio)) }
                    None => { "excluded" }
                } }
            }
        }
    }
}

/// Logarithmic range of values, because throughput falls by orders of magnitude with loss.
#[derive(Debug)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn new(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|x| *x > 0.0).map(f64::ln);
        let extend = |range: Self, x: f64| Self {
            low: range.low.min(x),
            high: range.high.max(x),
        };
        let empty = Self {
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
        };
        positive.fold(empty, extend)
    }

    /// Returns the legend from the minimum to the maximum.
    fn legend(&self, metric: &Metric) -> Markup {
        let print = |end: f64| metric.format(end.exp());
        html! {
            p.heat.ramp {
                "Colour: " (print(self.low)) " "
                @for step in 0..HEAT_STEPS { span.swatch.{ "heat-" (step) } {} }
                " " (print(self.high))
            }
        }
    }

    /// Returns the position of `value` between the minimum (0) and the maximum (1).
    fn position(&self, value: f64) -> f64 {
        let width = (self.high - self.low).max(f64::MIN_POSITIVE);
        (value.ln() - self.low) / width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    #[test]
    fn colour_steps_are_logarithmic() {
        let range = Range::new([1e6, 1e9].into_iter());
        let class = |x| heat_class(range.position(x));
        assert_eq!([1e6, 3.2e7, 1e9].map(class), ["heat-0", "heat-4", "heat-8"]);
        assert_eq!(class(0.0), "heat-0");
    }

    #[test]
    fn colours_of_ratios_are_symmetric_around_one() {
        let class = |ratio: f64| ratio_class(ratio);
        assert_eq!(class(1.0), "ratio-4");
        for factor in [1.1, 1.5, 2.0, 4.0] {
            let (above, below) = (class(factor), class(1.0 / factor));
            let step = |class: &str| class.trim_start_matches("ratio-").parse::<i32>().unwrap();
            assert_eq!(step(&above) - 4, 4 - step(&below), "{factor}");
        }
    }

    #[test]
    fn excluded_references_have_no_ratio_and_less_time_is_better() {
        let mut cell = Cell::default();
        cell.metrics
            .insert("download_s".to_owned(), Summary::of([10.0]).unwrap());
        cell.reference.insert("download_s".to_owned(), 20.0);
        assert_eq!(ratio(&cell, "download_s"), Some(2.0));
        cell.reference_excluded.push("download_s".to_owned());
        assert_eq!(ratio(&cell, "download_s"), None);
    }
}
