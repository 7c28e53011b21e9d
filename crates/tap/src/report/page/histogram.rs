// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histogram as SVG: bars over a logarithmic axis. A table below it has the quantiles.

use longhaul_flow::record::Distribution;
use longhaul_report::{figure::caption, metric::format_percent};
use maud::{Markup, html};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 150.0;
/// Height of the axis below the bars.
const AXIS_HEIGHT: f64 = 22.0;
/// Width of the part for samples of zero, left of the logarithmic axis.
const ZERO_WIDTH: f64 = 30.0;
const TOP_MARGIN: f64 = 20.0;
/// Maximum number of bars. Each is one or two pixels wide.
const BARS_MAX: i32 = 120;
/// Maximum number of labels on the axis.
const TICKS_MAX: usize = 7;

/// Content of a histogram.
pub(super) struct Histogram<'a> {
    /// Title: the main finding.
    pub(super) title: String,
    /// Caption: the quantity counted.
    pub(super) caption: &'a str,
    pub(super) samples: &'a Distribution,
    /// Formats a value with its unit.
    pub(super) format: fn(u64) -> String,
}

/// Returns the figure, or nothing without samples.
pub(super) fn figure(histogram: &Histogram<'_>) -> Markup {
    html! {
        @if let Some(bars) = Bars::new(histogram.samples) {
            figure.chart.histogram {
                (caption(&histogram.title, histogram.caption))
                (svg(&bars, histogram))
                details { summary { "Quantiles" } (quantiles(histogram)) }
            }
        }
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

    fn max_share(&self) -> f64 {
        self.shares.iter().copied().fold(self.zero, f64::max)
    }

    /// Returns the distance between bars.
    fn bar_distance(&self) -> f64 {
        ((WIDTH - ZERO_WIDTH) / self.shares.len() as f64).min(40.0)
    }

    fn x_of(&self, value: f64) -> f64 {
        ZERO_WIDTH
            + (value.log2() * self.steps_per_doubling - f64::from(self.first)) * self.bar_distance()
    }

    fn right(&self) -> f64 {
        ZERO_WIDTH + self.bar_distance() * self.shares.len() as f64
    }
}

fn step_index(value: u64, steps: f64) -> i32 {
    ((value as f64).log2() * steps).floor() as i32
}

fn svg(bars: &Bars, histogram: &Histogram<'_>) -> Markup {
    let height = HEIGHT + AXIS_HEIGHT;
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(histogram.title) {
            path.bars d=(bars_path(bars)) {}
            line.axis x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
            @if bars.zero > 0.0 { text.small x="0" y=(height - 4.0) { "0" } }
            @for value in ticks(bars) { (tick(bars, value, histogram.format)) }
            text.small x=(WIDTH) y="12" text-anchor="end" {
                "highest bar " (format_percent(bars.max_share()))
            }
        }
    }
}

/// Returns the path of all bars: a rectangle each.
fn bars_path(bars: &Bars) -> String {
    let scale = (HEIGHT - TOP_MARGIN) / bars.max_share();
    let bar = |x: f64, width: f64, share: f64| {
        let (height, width) = (share * scale, (width - 1.0).max(1.0));
        format!("M{x:.1} {HEIGHT}v-{height:.1}h{width:.1}v{height:.1}z")
    };
    let zero = (bars.zero > 0.0).then(|| bar(0.0, ZERO_WIDTH - 14.0, bars.zero));
    let x_of_bar = |n: usize| ZERO_WIDTH + n as f64 * bars.bar_distance();
    let positive = bars.shares.iter().enumerate();
    let positive = positive.filter(|(_, share)| **share > 0.0);
    let positive = positive.map(|(n, share)| bar(x_of_bar(n), bars.bar_distance(), *share));
    zero.into_iter().chain(positive).collect()
}

/// Returns the round values to label: powers of ten, with 2 and 5 between them if there are not too many.
fn ticks(bars: &Bars) -> Vec<u64> {
    let in_view = |value: &u64| (ZERO_WIDTH..=bars.right()).contains(&bars.x_of(*value as f64));
    let round = |factors: &'static [u64]| {
        let powers = (0..19).map(|exponent| 10u64.pow(exponent));
        let values = powers.flat_map(|power| factors.iter().map(move |factor| power * factor));
        values.filter(in_view).collect::<Vec<u64>>()
    };
    let fine = round(&[1, 2, 5]);
    if fine.len() <= TICKS_MAX {
        return fine;
    }
    let coarse = round(&[1]);
    let every = coarse.len().div_ceil(TICKS_MAX).max(1);
    coarse.into_iter().step_by(every).collect()
}

fn tick(bars: &Bars, value: u64, format: fn(u64) -> String) -> Markup {
    let x = format!("{:.1}", bars.x_of(value as f64));
    html! {
        line.axis x1=(x) x2=(x) y1=(HEIGHT) y2=(HEIGHT + 5.0) {}
        text.small x=(x) y=(HEIGHT + AXIS_HEIGHT - 4.0) text-anchor="middle" { (format(value)) }
    }
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
    let format = histogram.format;
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
        let width = |from: f64, to: f64| bars.x_of(to) - bars.x_of(from);
        assert!((width(1.0, 2.0) - width(512.0, 1024.0)).abs() < 1e-9);
    }

    #[test]
    fn draws_zeros_as_a_separate_bar() {
        let bars = Bars::new(&samples(&[(0, 3), (10, 1)])).unwrap();
        assert_eq!(
            (bars.zero, bars.shares.as_slice()),
            (0.75, [0.25].as_slice())
        );
    }

    #[test]
    fn limits_the_number_of_bars() {
        let bars = Bars::new(&samples(&[(1, 1), (u64::MAX, 1)])).unwrap();
        assert!(
            bars.shares.len() <= BARS_MAX as usize,
            "{}",
            bars.shares.len()
        );
        assert!(ticks(&bars).len() <= TICKS_MAX);
    }

    #[test]
    fn draws_nothing_without_samples() {
        assert!(Bars::new(&samples(&[])).is_none());
    }
}
