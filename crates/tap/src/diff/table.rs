// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison as plain text in aligned columns, for a terminal.

use super::compare::Figure;
use super::comparison::Comparison;
use longhaul_report::columns::{self, align};
use longhaul_report::metric::{Metric, format_factor, format_percent};

/// Mark of a figure that differs significantly.
const SIGNIFICANT_MARK: &str = "*";

/// Returns the text: the names of A and B, their figures, and both verdicts.
pub(super) fn format_table(comparison: &Comparison) -> String {
    let Comparison { a, b, figures, .. } = comparison;
    let heading = ["", "A", "B", "B/A"].map(str::to_owned).to_vec();
    let marked = |figure: &Figure| {
        let marker = if comparison.is_significant(figure) {
            SIGNIFICANT_MARK
        } else {
            ""
        };
        format_figure(figure)
            .into_iter()
            .chain([marker.to_owned()])
            .collect()
    };
    let rows: Vec<Vec<String>> = [heading]
        .into_iter()
        .chain(figures.iter().map(marked))
        .collect();
    let mut lines = vec![
        format!("A  {}", a.name),
        format!("B  {}", b.name),
        String::new(),
    ];
    lines.extend(align(&rows));
    if !comparison.significant.is_empty() {
        lines.push(format!("{SIGNIFICANT_MARK} significant difference"));
    }
    lines.push(String::new());
    for (side, named) in [("A", a), ("B", b)] {
        if !named.verdict.is_empty() {
            lines.push(format!("{side}  {}", named.verdict));
        }
    }
    columns::join_lines(&lines)
}

/// Returns name, both values and their ratio as texts.
pub(super) fn format_figure(figure: &Figure) -> [String; 4] {
    let metric = Metric::of(figure.name);
    let is_share = figure.name.starts_with("limited_by");
    let format = |value: Option<f64>| match value {
        // A share of the time.
        Some(share) if is_share => format_percent(share),
        Some(value) => metric.format(value),
        None => "–".to_owned(),
    };
    let ratio = figure.ratio.filter(|_| !is_share);
    [
        metric.label.clone(),
        format(figure.a),
        format(figure.b),
        ratio.map_or(String::new(), format_factor),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(name: &'static str, a: Option<f64>, b: Option<f64>) -> [String; 4] {
        format_figure(&Figure {
            name,
            a,
            b,
            difference: None,
            ratio: a.zip(b).map(|(a, b)| b / a),
            weight: 0.0,
        })
    }

    #[test]
    fn prints_figures_with_units() {
        let goodput = formatted("goodput_bps", Some(1e9), Some(2.5e9));
        assert_eq!(goodput, ["Goodput", "1 Gbit/s", "2.5 Gbit/s", "2.5×"]);
        let rtt = formatted("rtt_median_s", Some(0.2), None);
        assert_eq!(rtt, ["RTT median", "200 ms", "–", ""]);
    }

    #[test]
    fn prints_shares_as_percent_without_ratio() {
        let share = formatted(
            "limited_by_bottleneck_bandwidth_ratio",
            Some(0.5),
            Some(0.25),
        );
        assert_eq!(
            share,
            ["Limited by bottleneck bandwidth", "50 %", "25 %", ""]
        );
    }
}
