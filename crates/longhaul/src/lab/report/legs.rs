// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion window and round-trip time of each leg, from the run nearest to the median of its
//! cell. Logarithmic, since a short and a long leg differ by a factor of a hundred; the same scale
//! for all cells.

use super::{
    over_time,
    script::{Chart, Line, line_style},
};
use crate::lab::{
    metric::Metric,
    result::{Cell, LabResult, LegSeries, Run},
};

/// What of a leg is drawn.
struct Quantity {
    title: &'static str,
    caption: &'static str,
    unit: &'static str,
    /// Values in `unit`.
    values: fn(&LegSeries) -> Vec<f64>,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        title: "congestion window",
        caption: "Congestion window of each sender (TCP_INFO), one run.",
        unit: "B",
        values: |leg| leg.cwnd_bytes.clone(),
    },
    Quantity {
        title: "round trip",
        caption: "Smoothed RTT that each sender saw (TCP_INFO), one run.",
        unit: "s",
        values: |leg| leg.rtt_us.iter().map(|us| us / 1e6).collect(),
    },
];

/// Two charts a cell, or none if no run sampled its legs.
pub(super) fn charts(result: &LabResult) -> Vec<Chart> {
    let runs: Vec<(&Cell, &Run)> = over_time::shown(result)
        .into_iter()
        .filter_map(|n| {
            Some((
                &result.cells[n],
                typical(&result.cells[n], result.main_metric())?,
            ))
        })
        .collect();
    QUANTITIES
        .iter()
        .flat_map(|quantity| row(quantity, &runs))
        .collect()
}

/// One quantity of all cells, on one scale.
fn row(quantity: &Quantity, runs: &[(&Cell, &Run)]) -> Vec<Chart> {
    let all = runs
        .iter()
        .flat_map(|(_, run)| legs(run))
        .flat_map(quantity.values);
    let positive: Vec<f64> = all.filter(|x| *x > 0.0).collect();
    let low = positive.iter().copied().fold(f64::INFINITY, f64::min) / 1.5;
    let high = positive.iter().copied().fold(0.0, f64::max) * 1.5;
    let draw = |(cell, run): &(&Cell, &Run)| Chart {
        range: Some([low, high]),
        ..chart(quantity, cell, run)
    };
    match positive.is_empty() {
        true => Vec::new(),
        false => runs.iter().map(draw).collect(),
    }
}

/// The run with legs whose main metric is nearest to the median.
fn typical<'a>(cell: &'a Cell, metric: Option<&str>) -> Option<&'a Run> {
    let distance = |run: &&Run| {
        let found = metric.and_then(|name| Some((run.metrics.get(name)?, cell.metrics.get(name)?)));
        found.map_or(0.0, |(value, summary)| (value - summary.median).abs())
    };
    let sampled = cell
        .runs
        .iter()
        .filter(|run| run.failed.is_none() && !legs(run).is_empty());
    sampled.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

fn legs(run: &Run) -> &[LegSeries] {
    run.series.as_ref().map_or(&[], |series| &series.legs)
}

fn chart(quantity: &Quantity, cell: &Cell, run: &Run) -> Chart {
    let mut x: Vec<f64> = legs(run).iter().flat_map(|leg| leg.at_s.clone()).collect();
    x.sort_by(f64::total_cmp);
    x.dedup();
    let lines = legs(run)
        .iter()
        .enumerate()
        .map(|(n, leg)| line(quantity, leg, n, &x))
        .collect();
    Chart {
        title: format!("{}: {}", cell.name(), finding(quantity, legs(run))),
        caption: quantity.caption.to_owned(),
        unit: quantity.unit,
        log: true,
        x,
        lines,
        ..Chart::default()
    }
}

/// The leg's values at the moments `x`, null where it has none.
fn line(quantity: &Quantity, leg: &LegSeries, n: usize, x: &[f64]) -> Line {
    let mut samples = leg.at_s.iter().zip((quantity.values)(leg)).peekable();
    let values = x
        .iter()
        .map(|moment| {
            samples
                .next_if(|(at, _)| *at <= moment)
                .map(|(_, value)| value)
        })
        .map(|value| value.filter(|v| *v > 0.0))
        .collect();
    let (colour, dash) = line_style(n);
    Line {
        label: leg.name.clone(),
        colour,
        dash,
        values,
        ..Line::default()
    }
}

/// "round trip at most 31 ms, on relay2–relay1".
fn finding(quantity: &Quantity, legs: &[LegSeries]) -> String {
    let peak = |leg: &LegSeries| (quantity.values)(leg).into_iter().fold(0.0, f64::max);
    let Some(top) = legs.iter().max_by(|a, b| peak(a).total_cmp(&peak(b))) else {
        return quantity.title.to_owned();
    };
    let metric = Metric::of(if quantity.unit == "B" {
        "x_bytes"
    } else {
        "x_s"
    });
    format!(
        "{} at most {}, on {}",
        quantity.title,
        metric.print(peak(top)),
        top.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(at_s: &[f64], rtt_us: &[f64]) -> LegSeries {
        LegSeries {
            at_s: at_s.to_vec(),
            rtt_us: rtt_us.to_vec(),
            ..LegSeries::default()
        }
    }

    #[test]
    fn legs_sampled_at_different_moments_share_one_axis() {
        let line = line(
            &QUANTITIES[1],
            &leg(&[0.1, 0.3], &[200.0, 300.0]),
            0,
            &[0.1, 0.2, 0.3],
        );
        assert_eq!(line.values, [Some(0.0002), None, Some(0.0003)]);
    }

    #[test]
    fn zero_has_no_place_on_a_logarithmic_axis() {
        let line = line(&QUANTITIES[1], &leg(&[0.1], &[0.0]), 0, &[0.1]);
        assert_eq!(line.values, [None]);
    }
}
