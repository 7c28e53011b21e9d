// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of repeated runs of one cell, and its text.

use longhaul_report::metric::Metric;
use longhaul_stats::sample;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// Median and range of one metric over the runs of a cell, in the metric's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Summarises `values`, in any order. Values that are not finite are ignored: a run without a value does not
    /// change the median. Returns `None` if no value is finite.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sample::sorted(values);
        Some(Self {
            median: sample::median(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// Formats the summary: "937 Mbit/s [900 Mbit/s – 940 Mbit/s]"; without a range if all values are equal.
    pub(crate) fn text(&self, metric: &Metric) -> String {
        let median = metric.format(self.median);
        match self.range(metric) {
            Some(range) => format!("{median} {range}"),
            None => median,
        }
    }

    /// Returns the summary as HTML for a table cell: the range is below the median.
    pub(crate) fn markup(&self, metric: &Metric) -> Markup {
        html! {
            strong { (metric.format(self.median)) }
            @if let Some(range) = self.range(metric) { small { (range) } }
        }
    }

    fn range(&self, metric: &Metric) -> Option<String> {
        let [least, most] = [self.min, self.max].map(|end| metric.format(end));
        (self.min < self.max).then(|| format!("[{least} – {most}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_median_and_range() {
        let summary = Summary::of([16.2, 15.9, 17.4]).unwrap();
        assert_eq!(
            (summary.min, summary.median, summary.max),
            (15.9, 16.2, 17.4)
        );
    }

    #[test]
    fn ignores_values_that_are_not_finite() {
        assert_eq!(
            Summary::of([f64::NAN, 2.0, f64::INFINITY]).unwrap().median,
            2.0
        );
        assert_eq!(Summary::of([f64::NAN]), None);
        assert_eq!(Summary::of([]), None);
    }
}
