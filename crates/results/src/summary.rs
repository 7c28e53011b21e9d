// SPDX-License-Identifier: MIT OR Apache-2.0
//! What repeated runs of one cell say together, and the same in words.

use longhaul_report::metric::Metric;
use longhaul_stats::sample;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// Median and range of one metric over the runs of a cell, in the metric's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Summary {
    /// Of `values` in any order. `None` if none of them is finite; others are left out, since a
    /// run that gave no figure must not move the median.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sample::sorted(values);
        Some(Self {
            median: sample::median(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// "937 Mbit/s [900 Mbit/s – 940 Mbit/s]"; no range if all runs gave the same.
    pub(crate) fn text(&self, metric: &Metric) -> String {
        let median = metric.print(self.median);
        match self.range(metric) {
            Some(range) => format!("{median} {range}"),
            None => median,
        }
    }

    /// The same for a place of a table, one below the other.
    pub(crate) fn markup(&self, metric: &Metric) -> Markup {
        html! {
            strong { (metric.print(self.median)) }
            @if let Some(range) = self.range(metric) { small { (range) } }
        }
    }

    fn range(&self, metric: &Metric) -> Option<String> {
        let [least, most] = [self.min, self.max].map(|end| metric.print(end));
        (self.min < self.max).then(|| format!("[{least} – {most}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_median_and_the_range() {
        let summary = Summary::of([16.2, 15.9, 17.4]).unwrap();
        assert_eq!(
            (summary.min, summary.median, summary.max),
            (15.9, 16.2, 17.4)
        );
    }

    #[test]
    fn runs_without_a_figure_do_not_count() {
        assert_eq!(
            Summary::of([f64::NAN, 2.0, f64::INFINITY]).unwrap().median,
            2.0
        );
        assert_eq!(Summary::of([f64::NAN]), None);
        assert_eq!(Summary::of([]), None);
    }
}
