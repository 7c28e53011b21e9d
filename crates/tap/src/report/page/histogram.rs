// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histogram over a logarithmic axis. A table below it has the quantiles.

use longhaul_flow::record::Distribution;
use longhaul_report::{
    chart::{Axis, Chart, Charts, Line, LineStyle, Positions},
    metric::format_percent,
    unit::Unit,
};
use maud::{Markup, html};

/// Maximum number of bars. Each is a few pixels wide.
const BARS_MAX: i32 = 120;

/// Content of a histogram.
pub(super) struct Histogram<'a> {
    /// Title: the main finding.
    pub(super) title: String,
    /// Caption: the quantity counted.
    pub(super) caption: &'a str,
    /// Samples; times are in ns.
    pub(super) samples: &'a Distribution,
    /// Unit of the axis.
    pub(super) unit: Unit,
}

impl Histogram<'_> {
    /// Converts a sample to the unit of the axis.
    fn value(&self, sample: f64) -> f64 {
        match self.unit {
            Unit::Seconds => sample / 1e9,
            _ => sample,
        }
    }

    fn format(&self, sample: u64) -> String {
        self.unit.format(self.value(sample as f64))
    }
}

/// Returns the figure, or nothing without samples.
pub(super) fn figure(histogram: &Histogram<'_>, charts: &mut Charts) -> Markup {
    html! {
        @if let Some(bars) = Bars::new(histogram.samples) { (charts.add(chart(&bars, histogram))) }
    }
}

fn chart(bars: &Bars, histogram: &Histogram<'_>) -> Chart {
    let zero = match bars.zero {
        0.0 => String::new(),
        share => format!(" Not drawn: {} are 0.", format_percent(share)),
    };
    // The last bar ends where the next one would begin.
    let shares = bars.shares.iter().chain([&0.0]);
    let edges = (0..=bars.shares.len()).map(|n| histogram.value(bars.edge(n)));
    Chart {
        title: histogram.title.clone(),
        caption: format!("{}{zero}", histogram.caption),
        table: Some(("Quantiles", quantiles(histogram))),
        unit: "%",
        x_axis: Some(Axis {
            unit: histogram.unit.symbol(),
            log: true,
            ..Axis::default()
        }),
        lines: vec![Line {
            label: "samples".to_owned(),
            style: LineStyle::solid("--first"),
            thin: true,
            stepped: true,
            filled: true,
            x: Positions::At(edges.collect()),
            values: shares.map(|share| Some(share * 100.0)).collect(),
            ..Line::default()
        }],
        ..Chart::default()
    }
}

/// Shares of the samples: the zeros, and each step of the logarithmic axis.
struct Bars {
    zero: f64,
    /// Number of steps for each doubling of the value.
    steps_per_doubling: f64,
    first: i32,
    shares: Vec<f64>,
}

impl Bars {
    fn new(samples: &Distribution) -> Option<Self> {
        let all: u64 = samples.buckets.iter().map(|(_, count)| count).sum();
        let positive = || samples.buckets.iter().filter(|(edge, _)| *edge > 0);
        let share = |count: u64| count as f64 / all as f64;
        let (min, max) = (positive().next()?.0, positive().next_back()?.0);
        let steps = [4.0, 2.0, 1.0]
            .into_iter()
            .find(|steps| step_index(max, *steps) - step_index(min, *steps) < BARS_MAX);
        let steps = steps.unwrap_or(0.5);
        let first = step_index(min, steps);
        let mut shares = vec![0.0; (step_index(max, steps) - first + 1) as usize];
        for (edge, count) in positive() {
            shares[(step_index(*edge, steps) - first) as usize] += share(*count);
        }
        let zeros = samples.buckets.iter().filter(|(edge, _)| *edge == 0);
        Some(Self {
            zero: zeros.map(|(_, count)| share(*count)).sum(),
            steps_per_doubling: steps,
            first,
            shares,
        })
    }

    /// Returns the value at which bar `n` begins.
    fn edge(&self, n: usize) -> f64 {
        ((f64::from(self.first) + n as f64) / self.steps_per_doubling).exp2()
    }
}

fn step_index(value: u64, steps: f64) -> i32 {
    ((value as f64).log2() * steps).floor() as i32
}

fn quantiles(histogram: &Histogram<'_>) -> Markup {
    let Distribution {
        count,
        min,
        mean,
        p50,
        p90,
        p99,
        max,
        ..
    } = histogram.samples;
    let format = |sample| histogram.format(sample);
    let rows = [
        ("Minimum", format(*min)),
        ("Median", format(*p50)),
        ("Mean", format(mean.round() as u64)),
        ("90th percentile", format(*p90)),
        ("99th percentile", format(*p99)),
        ("Maximum", format(*max)),
        ("Samples", super::units::count(*count)),
    ];
    html! {
        table { tbody { @for (name, value) in rows {
            tr { th scope="row" { (name) } td.number { (value) } }
        } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(buckets: &[(u64, u64)]) -> Distribution {
        Distribution {
            buckets: buckets.to_vec(),
            ..Distribution::default()
        }
    }

    #[test]
    fn draws_each_doubling_equally_wide() {
        let bars = Bars::new(&samples(&[(1, 1), (2, 1), (1024, 2)])).unwrap();
        assert_eq!(bars.shares.len(), 41);
        assert_eq!(
            (bars.shares[0], bars.shares[4], bars.shares[40]),
            (0.25, 0.25, 0.5)
        );
        assert_eq!([0, 4, 40].map(|n| bars.edge(n)), [1.0, 2.0, 1024.0]);
    }

    #[test]
    fn names_the_share_of_zeros() {
        let samples = samples(&[(0, 3), (10, 1)]);
        let bars = Bars::new(&samples).unwrap();
        assert_eq!(
            (bars.zero, bars.shares.as_slice()),
            (0.75, [0.25].as_slice())
        );
        let histogram = Histogram {
            title: String::new(),
            caption: "Gaps.",
            samples: &samples,
            unit: Unit::Seconds,
        };
        let chart = chart(&bars, &histogram);
        assert_eq!(chart.caption, "Gaps. Not drawn: 75 % are 0.");
        assert_eq!(chart.lines[0].values, [Some(25.0), Some(0.0)]);
    }

    #[test]
    fn limits_the_number_of_bars() {
        let bars = Bars::new(&samples(&[(1, 1), (u64::MAX, 1)])).unwrap();
        assert!(
            bars.shares.len() <= BARS_MAX as usize,
            "{}",
            bars.shares.len()
        );
    }

    #[test]
    fn draws_nothing_without_samples() {
        assert!(Bars::new(&samples(&[])).is_none());
    }
}
