// SPDX-License-Identifier: MIT OR Apache-2.0
//! A heat map that is a real table: our value in each place, the paper's and the ratio beneath. The
//! colour is the ratio where the paper has figures, else the value, on one scale for all panels.

use super::cells::{Grid, grids, heading};
use crate::{
    result::{Cell, LabResult},
    view::Figure,
};
use longhaul_report::{
    figure::{HEATS, heat},
    metric::{Metric, times},
};
use maud::{Markup, html};

/// Upper bounds of the colours of a ratio, but for the last; classes `ratio-0`, `ratio-1`, ….
const RATIOS: [f64; 8] = [0.33, 0.6, 0.85, 0.97, 1.03, 1.18, 1.67, 3.0];

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let Some(name) = figure.metrics.first() else {
        return html! {};
    };
    let grids = grids(result, &figure.panels);
    let shade = Shade::of(&grids, name, figure.paper);
    html! {
        figure.heatmap {
            (heading(figure))
            @for grid in &grids { (grid.table("heat", &figure.title, "", |cell| square(cell, name, &shade))) }
            (shade.legend(&Metric::of(name)))
        }
    }
}

/// What the colour of a place says.
#[derive(Debug)]
enum Shade {
    /// Ours over the paper's.
    Ratio,
    /// The value itself.
    Value(Range),
}

impl Shade {
    fn of(grids: &[Grid<'_>], name: &str, paper: bool) -> Self {
        let all = || grids.iter().flat_map(Grid::all);
        match paper && all().any(|cell| ratio(cell, name).is_some()) {
            true => Self::Ratio,
            false => Self::Value(Range::of(
                all().filter_map(|cell| Some(cell.metrics.get(name)?.median)),
            )),
        }
    }

    fn class(&self, cell: &Cell, name: &str) -> Option<String> {
        match self {
            Self::Ratio => ratio(cell, name).map(ratio_class),
            Self::Value(range) => {
                let median = cell.metrics.get(name)?.median;
                Some(heat(range.share(median)))
            }
        }
    }

    fn legend(&self, metric: &Metric) -> Markup {
        match self {
            Self::Ratio => ratio_legend(
                "Colour: ours against the paper’s",
                ["a third or less", "the same", "three times or more"],
            ),
            Self::Value(range) => range.legend(metric),
        }
    }
}

/// By what factor ours is better than the paper's; `None` where they are not to be compared.
pub(crate) fn ratio(cell: &Cell, name: &str) -> Option<f64> {
    let ours = cell.metrics.get(name)?.median;
    Metric::of(name).factor(ours, cell.paper_figure(name)?)
}

/// The class of a ratio: orange below one, blue above.
pub(super) fn ratio_class(ratio: f64) -> String {
    format!(
        "ratio-{}",
        RATIOS.iter().filter(|bound| ratio > **bound).count()
    )
}

/// A strip of the colours with the words for its ends and its middle.
pub(super) fn ratio_legend(of: &str, [worse, same, better]: [&str; 3]) -> Markup {
    html! {
        p.heat.ramp {
            (of) ": " (worse) " "
            @for step in 0..=RATIOS.len() {
                @if step == RATIOS.len() / 2 { span.swatch.wide.{ "ratio-" (step) } { (same) } }
                @else { span.swatch.{ "ratio-" (step) } {} }
            }
            " " (better)
        }
    }
}

fn square(cell: &Cell, name: &str, shade: &Shade) -> Markup {
    let Some(ours) = cell.metrics.get(name) else {
        return html! { td { "–" } };
    };
    let metric = Metric::of(name);
    html! {
        td class=[shade.class(cell, name)] {
            (metric.print(ours.median))
            @if let Some(paper) = cell.paper.get(name) {
                small { "paper " (metric.print(*paper)) }
                small { @match ratio(cell, name) {
                    Some(ratio) => { (times(ratio)) }
                    None => { "misprint?" }
                } }
            }
        }
    }
}

/// Logarithmic, since throughput falls by decades with loss.
#[derive(Debug)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|x| *x > 0.0).map(f64::ln);
        let wider = |range: Self, x: f64| Self {
            low: range.low.min(x),
            high: range.high.max(x),
        };
        let none = Self {
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
        };
        positive.fold(none, wider)
    }

    /// From the least to the most, as far apart as they may be.
    fn legend(&self, metric: &Metric) -> Markup {
        let print = |end: f64| metric.print(end.exp());
        html! {
            p.heat.ramp {
                "Colour: " (print(self.low)) " "
                @for step in 0..HEATS { span.swatch.{ "heat-" (step) } {} }
                " " (print(self.high))
            }
        }
    }

    /// How far `value` is on the way from the least to the most.
    fn share(&self, value: f64) -> f64 {
        let width = (self.high - self.low).max(f64::MIN_POSITIVE);
        (value.ln() - self.low) / width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    #[test]
    fn steps_span_the_range_by_decades() {
        let range = Range::of([1e6, 1e9].into_iter());
        let class = |x| heat(range.share(x));
        assert_eq!([1e6, 3.2e7, 1e9].map(class), ["heat-0", "heat-4", "heat-8"]);
        assert_eq!(class(0.0), "heat-0");
    }

    #[test]
    fn colours_of_ratios_are_even_about_one() {
        let class = |ratio: f64| ratio_class(ratio);
        assert_eq!(class(1.0), "ratio-4");
        for factor in [1.1, 1.5, 2.0, 4.0] {
            let (above, below) = (class(factor), class(1.0 / factor));
            let step = |class: &str| class.trim_start_matches("ratio-").parse::<i32>().unwrap();
            assert_eq!(step(&above) - 4, 4 - step(&below), "{factor}");
        }
    }

    #[test]
    fn a_suspicious_figure_has_no_ratio_and_less_time_is_better() {
        let mut cell = Cell::default();
        cell.metrics
            .insert("download_s".to_owned(), Summary::of([10.0]).unwrap());
        cell.paper.insert("download_s".to_owned(), 20.0);
        assert_eq!(ratio(&cell, "download_s"), Some(2.0));
        cell.paper_suspect.push("download_s".to_owned());
        assert_eq!(ratio(&cell, "download_s"), None);
    }
}
