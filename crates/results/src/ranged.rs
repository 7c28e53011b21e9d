// SPDX-License-Identifier: MIT OR Apache-2.0
//! A metric over the runs of a cell in words: the median, and the range unless all runs gave the same.

use crate::summary::Summary;
use longhaul_report::metric::Metric;
use maud::{Markup, html};

/// "937 Mbit/s [900 Mbit/s – 940 Mbit/s]".
pub(crate) fn text(metric: &Metric, found: &Summary) -> String {
    let median = metric.print(found.median);
    range(metric, found).map_or(median.clone(), |range| format!("{median} {range}"))
}

/// The same for a place of a table, one below the other.
pub(crate) fn markup(metric: &Metric, found: &Summary) -> Markup {
    html! {
        strong { (metric.print(found.median)) }
        @if let Some(range) = range(metric, found) { small { (range) } }
    }
}

fn range(metric: &Metric, found: &Summary) -> Option<String> {
    let [least, most] = [found.min, found.max].map(|end| metric.print(end));
    (found.min < found.max).then(|| format!("[{least} – {most}]"))
}
