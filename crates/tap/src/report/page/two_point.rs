// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section of a connection that was captured at two points: one-way delays, losses between the points, and changes
//! of the spacing of ACKs.

use super::{
    charts::{self, Chart},
    histogram::{self, Histogram},
    units,
};
use crate::report::result::{Analysis, chart_series::ChartSeries};
use longhaul_flow::record::{
    Clocks, DelayBin, DelaySeries, Flow, MissingPackets, OneWayMetrics, TwoPointComparison,
};
use longhaul_report::{chart::Charts, metric::format_percent, table::table, unit::Unit};
use maud::{Markup, html};

/// Maximum number of delay bins of each direction in `result.json` and on the page: 12 kB.
const BINS_MAX: usize = 512;

/// Connection that was captured at two points, as the page shows it.
pub(super) struct TwoPointSection<'a> {
    pair: &'a TwoPointComparison,
    flow: &'a Flow,
    /// Names of the left and the right capture point.
    capture_points: [&'a str; 2],
}

impl<'a> TwoPointSection<'a> {
    /// Creates the section's data, if both flows are in the result.
    pub(super) fn new(analysis: &'a Analysis, pair: &'a TwoPointComparison) -> Option<Self> {
        let flow_and_point = |number: u64| {
            let flow = analysis.flows.iter().find(|flow| flow.number == number)?;
            Some((
                flow,
                analysis
                    .capture_point_name(flow.capture_point)
                    .unwrap_or("one capture point"),
            ))
        };
        let ((flow, left), (_, right)) = (flow_and_point(pair.left)?, flow_and_point(pair.right)?);
        Some(Self {
            pair,
            flow,
            capture_points: [left, right],
        })
    }

    pub(super) fn id(&self) -> String {
        format!("between-{}-{}", self.pair.left, self.pair.right)
    }

    /// Returns the title, for instance "10.0.0.1:40000 → 10.0.0.2:5201, between left and right".
    pub(super) fn name(&self) -> String {
        let [left, right] = self.capture_points;
        let endpoints = super::direction::direction_name(self.flow, true, None);
        format!("{endpoints}, between {left} and {right}")
    }

    /// Returns the chart data of both directions.
    pub(super) fn chart_series(&self) -> [ChartSeries; 2] {
        self.directions()
            .map(|(_, metrics)| delay_series(self.pair.left, &metrics.time_series))
    }

    fn directions(&self) -> [(&'static str, &'a OneWayMetrics); 2] {
        [
            ("client to server", &self.pair.from_client),
            ("server to client", &self.pair.from_server),
        ]
    }
}

/// Merges neighbouring bins of both time series, so that each has at most [`BINS_MAX`].
pub(crate) fn merge_delay_bins(pair: &mut TwoPointComparison) {
    for metrics in [&mut pair.from_client, &mut pair.from_server] {
        let delays = &mut metrics.time_series;
        let bins_per_merged = delays.bins.len().div_ceil(BINS_MAX).max(1);
        delays.bins = delays
            .bins
            .chunks(bins_per_merged)
            .map(merge_bins)
            .collect();
        delays.width_ns *= bins_per_merged as u64;
    }
}

fn merge_bins(bins: &[DelayBin]) -> DelayBin {
    let filled = || bins.iter().filter(|bin| bin.count > 0);
    let count: u64 = filled().map(|bin| bin.count).sum();
    let sum: u128 = filled()
        .map(|bin| u128::from(bin.mean_ns) * u128::from(bin.count))
        .sum();
    DelayBin {
        count,
        min_ns: filled().map(|bin| bin.min_ns).min().unwrap_or(0),
        mean_ns: (sum / u128::from(count.max(1))) as u64,
        max_ns: filled().map(|bin| bin.max_ns).max().unwrap_or(0),
    }
}

fn delay_series(flow: u64, delays: &DelaySeries) -> ChartSeries {
    let column = |value: fn(&DelayBin) -> u64| {
        let value = |bin: &DelayBin| (bin.count > 0).then(|| value(bin) as i64);
        delays.bins.iter().map(value).collect()
    };
    let columns = [
        ("delay_min_ns", column(|bin| bin.min_ns)),
        ("delay_mean_ns", column(|bin| bin.mean_ns)),
        ("delay_max_ns", column(|bin| bin.max_ns)),
    ];
    ChartSeries {
        flow,
        direction: "between".to_owned(),
        from_ns: delays.from_ns,
        width_ns: delays.width_ns,
        bins: delays.bins.len(),
        finest_ns: delays.width_ns,
        columns: columns
            .map(|(name, values)| (name.to_owned(), values))
            .into(),
        packet_windows: Vec::new(),
    }
}

/// Returns the section; the chart data of its directions have the numbers `first` and `first + 1`. Adds its histograms
/// to `charts`.
pub(super) fn section(section: &TwoPointSection<'_>, first: usize, charts: &mut Charts) -> Markup {
    html! {
        section.direction id=(section.id()) data-name=(section.name()) {
            h2 { (section.name()) }
            p { (clocks(section.pair)) }
            p.view { output.in-view {} }
            div.charts {
                @for (n, (name, metrics)) in section.directions().iter().enumerate() {
                    @if !metrics.time_series.bins.is_empty() { (charts::placeholder(&delay_chart(name, metrics), first + n, name)) }
                }
                @for (name, metrics) in section.directions() {
                    @for one in histograms(name, metrics) { (histogram::figure(&one, charts)) }
                }
            }
            (figures(section))
        }
    }
}

fn clocks(pair: &TwoPointComparison) -> String {
    match pair.clocks {
        Clocks::Same => "Both capture points use one clock: delays are exact.".to_owned(),
        Clocks::Symmetric => format!(
            "Two clocks with a skew of {:.1} ppm: the offset assumes equal minimum delays in both directions.",
            pair.skew_ppm
        ),
        Clocks::Relative => {
            "Two clocks, and packets of one direction only: delays are relative to the minimum."
                .to_owned()
        }
    }
}

fn delay_chart(name: &str, metrics: &OneWayMetrics) -> Chart {
    let found = &metrics.one_way_delay;
    let [min, median, max] = [found.min, found.p50, found.max].map(units::duration);
    Chart {
        kind: "delay",
        title: format!("One-way delay, {name}: {min} min, {median} median, {max} max"),
        caption: "Mean and range of each bin.".to_owned(),
        wide: true,
    }
}

fn histograms<'a>(name: &str, metrics: &'a OneWayMetrics) -> [Histogram<'a>; 2] {
    let spacing = &metrics.ack_spacing;
    let figure = |title: &str, caption, samples| Histogram {
        title: format!("{title}, {name}"),
        caption,
        samples,
        unit: Unit::Seconds,
    };
    [
        figure(
            "ACK spacing at the first point",
            "Time between two consecutive pure ACKs.",
            &spacing.sent,
        ),
        figure(
            "ACK spacing at the second point",
            "The same pairs after the path: a shorter time is ACK compression.",
            &spacing.arrived,
        ),
    ]
}

type FormatMetric = fn(&OneWayMetrics) -> String;

const FIGURES: [(&str, FormatMetric); 8] = [
    ("Matched at both points", |metrics| {
        format!(
            "{}, {}",
            units::counted(metrics.matched, "packet"),
            units::bytes(metrics.matched_bytes)
        )
    }),
    ("One-way delay, p99", |metrics| {
        units::duration(metrics.one_way_delay.p99)
    }),
    ("Lost between the points", |metrics| {
        describe_missing(metrics.lost)
    }),
    ("Lost before the first point", |metrics| {
        units::bytes(metrics.lost_upstream_bytes)
    }),
    ("Not captured at the first point", |metrics| {
        describe_missing(metrics.uncaptured)
    }),
    ("Reordered", |metrics| {
        units::counted(metrics.reordered, "packet")
    }),
    ("ACKs compressed to less than half", |metrics| {
        share_of_pairs(metrics, metrics.ack_spacing.compressed)
    }),
    ("ACKs stretched to more than twice", |metrics| {
        share_of_pairs(metrics, metrics.ack_spacing.stretched)
    }),
];

fn describe_missing(missing: MissingPackets) -> String {
    match (missing.segments, missing.acks) {
        (0, 0) => "none".to_owned(),
        (segments, acks) => format!(
            "{} ({}), {} without data",
            units::counted(segments, "segment"),
            units::bytes(missing.bytes),
            units::counted(acks, "packet")
        ),
    }
}

fn share_of_pairs(metrics: &OneWayMetrics, pairs: u64) -> String {
    match metrics.ack_spacing.sent.count {
        0 => "–".to_owned(),
        all => format_percent(pairs as f64 / all as f64),
    }
}

fn figures(section: &TwoPointSection<'_>) -> Markup {
    let [forward, backward] = section.directions();
    let row = |(name, format): (&str, FormatMetric)| {
        html! { tr { th scope="row" { (name) } @for (_, metrics) in [forward, backward] { td { (format(metrics)) } } } }
    };
    table(
        "Both directions",
        ["", forward.0, backward.0],
        FIGURES.into_iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn merged_bins_keep_extremes_and_means() {
        let bin = |count, min_ns, mean_ns, max_ns| DelayBin {
            count,
            min_ns,
            mean_ns,
            max_ns,
        };
        let all = [bin(1, 10, 10, 10), DelayBin::default(), bin(3, 20, 30, 50)];
        assert_eq!(merge_bins(&all), bin(4, 10, 25, 50));
        let mut pair = fixtures::two_point_comparison();
        let before = pair.from_client.time_series.bins.len();
        merge_delay_bins(&mut pair);
        let delays = &pair.from_client.time_series;
        assert!(
            before > BINS_MAX && delays.bins.len() <= BINS_MAX,
            "{}",
            delays.bins.len()
        );
        let covered_ns = delays.width_ns * delays.bins.len() as u64;
        assert!(covered_ns >= before as u64 * 1_000_000, "{covered_ns}");
    }

    #[test]
    fn shows_losses_of_each_direction() {
        let finished = fixtures::report();
        let pair = TwoPointSection::new(
            &finished.analysis,
            &finished.analysis.two_point_comparisons[0],
        )
        .unwrap();
        let page = section(&pair, 2, &mut Charts::default()).into_string();
        for text in [
            "between left and right",
            "40 segments (57.9 kB), 0 packets without data",
            "Both capture points use one clock",
            "data-chart=\"delay\" data-series=\"3\"",
            "25 %",
        ] {
            assert!(page.contains(text), "no {text} in {page}");
        }
    }
}
