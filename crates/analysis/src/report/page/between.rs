// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section of a connection that was captured at two points: one-way delays, losses between the points, and changes
//! of the spacing of ACKs.

use super::{
    charts::{self, Chart},
    histogram::{self, Histogram},
    quantity,
};
use crate::report::result::{Analysis, course::Drawn};
use longhaul_flow::record::{
    Clocks, DelayBin, DelaySeries, Flow, MissingPackets, OneWayMetrics, TwoPointComparison,
};
use longhaul_report::{metric::percent, table::table};
use maud::{Markup, html};

/// Maximum number of delay bins of each direction in `result.json` and on the page: 12 kB.
const BINS_MAX: usize = 512;

/// Connection on the page that was captured at two points.
pub(super) struct Between<'a> {
    pair: &'a TwoPointComparison,
    flow: &'a Flow,
    /// Names of the left and the right capture point.
    places: [&'a str; 2],
}

impl<'a> Between<'a> {
    /// Creates the section's data, if both flows are in the result.
    pub(super) fn of(analysis: &'a Analysis, pair: &'a TwoPointComparison) -> Option<Self> {
        let place = |number: u64| {
            let flow = analysis.flows.iter().find(|flow| flow.number == number)?;
            Some((
                flow,
                analysis.place(flow.capture_point).unwrap_or("one place"),
            ))
        };
        let ((flow, left), (_, right)) = (place(pair.left)?, place(pair.right)?);
        Some(Self {
            pair,
            flow,
            places: [left, right],
        })
    }

    pub(super) fn id(&self) -> String {
        format!("between-{}-{}", self.pair.left, self.pair.right)
    }

    /// Returns the title, for instance "10.0.0.1:40000 → 10.0.0.2:5201, between left and right".
    pub(super) fn name(&self) -> String {
        let [left, right] = self.places;
        let ends = super::direction::name(self.flow, true, None);
        format!("{ends}, between {left} and {right}")
    }

    /// Returns the chart data of both directions.
    pub(super) fn courses(&self) -> [Drawn; 2] {
        self.ways()
            .map(|(_, way)| drawn(self.pair.left, &way.time_series))
    }

    fn ways(&self) -> [(&'static str, &'a OneWayMetrics); 2] {
        [
            ("client to server", &self.pair.from_client),
            ("server to client", &self.pair.from_server),
        ]
    }
}

/// Merges neighbouring bins of both time series, so that each has at most [`BINS_MAX`].
pub(crate) fn thin(pair: &mut TwoPointComparison) {
    for way in [&mut pair.from_client, &mut pair.from_server] {
        let course = &mut way.time_series;
        let together = course.bins.len().div_ceil(BINS_MAX).max(1);
        course.bins = course.bins.chunks(together).map(merged).collect();
        course.width_ns *= together as u64;
    }
}

fn merged(bins: &[DelayBin]) -> DelayBin {
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

fn drawn(flow: u64, course: &DelaySeries) -> Drawn {
    let column = |value: fn(&DelayBin) -> u64| {
        let value = |bin: &DelayBin| (bin.count > 0).then(|| value(bin) as i64);
        course.bins.iter().map(value).collect()
    };
    let columns = [
        ("delay_min_ns", column(|bin| bin.min_ns)),
        ("delay_mean_ns", column(|bin| bin.mean_ns)),
        ("delay_max_ns", column(|bin| bin.max_ns)),
    ];
    Drawn {
        flow,
        direction: "between".to_owned(),
        from_ns: course.from_ns,
        width_ns: course.width_ns,
        bins: course.bins.len(),
        finest_ns: course.width_ns,
        columns: columns
            .map(|(name, values)| (name.to_owned(), values))
            .into(),
        excerpts: Vec::new(),
    }
}

/// Returns the section; the chart data of its directions have the numbers `first` and `first + 1`.
pub(super) fn section(between: &Between<'_>, first: usize) -> Markup {
    html! {
        section.direction id=(between.id()) data-name=(between.name()) {
            h2 { (between.name()) }
            p { (clocks(between.pair)) }
            p.view { output.in-view {} }
            div.charts {
                @for (n, (name, way)) in between.ways().iter().enumerate() {
                    @if !way.time_series.bins.is_empty() { (charts::place(&delay(name, way), first + n, name)) }
                }
                @for (name, way) in between.ways() {
                    @for one in histograms(name, way) { (histogram::figure(&one)) }
                }
            }
            (figures(between))
        }
    }
}

fn clocks(pair: &TwoPointComparison) -> String {
    match pair.clocks {
        Clocks::Same => "One clock saw both places: delays are true.".to_owned(),
        Clocks::Symmetric => format!(
            "Two clocks, {:.1} ppm apart: their offset is taken so that the least delays of both ways are equal.",
            pair.skew_ppm
        ),
        Clocks::Relative => {
            "Two clocks, and packets of one way only: delays are those above the least.".to_owned()
        }
    }
}

fn delay(name: &str, way: &OneWayMetrics) -> Chart {
    let found = &way.delay;
    let [least, half, most] = [found.min, found.p50, found.max].map(quantity::span);
    Chart {
        kind: "delay",
        title: format!("One-way delay, {name}: {least} at least, {half} for half, {most} at most"),
        caption: "Mean of each bin, and the range.".to_owned(),
        wide: true,
    }
}

fn histograms<'a>(name: &str, way: &'a OneWayMetrics) -> [Histogram<'a>; 2] {
    let spacing = &way.ack_spacing;
    let figure = |title: &str, caption, samples| Histogram {
        title: format!("{title}, {name}"),
        caption,
        samples,
        print: quantity::span,
    };
    [
        figure(
            "ACKs where they came from",
            "Time between two pure ACKs that follow each other.",
            &spacing.sent,
        ),
        figure(
            "ACKs where they arrived",
            "The same pairs behind the path: shorter is compression.",
            &spacing.arrived,
        ),
    ]
}

type Told = fn(&OneWayMetrics) -> String;

const FIGURES: [(&str, Told); 8] = [
    ("Seen at both", |way| {
        format!(
            "{}, {}",
            quantity::of(way.matched, "packet"),
            quantity::bytes(way.matched_bytes)
        )
    }),
    ("Delay for 99 %", |way| quantity::span(way.delay.p99)),
    ("Lost in between", |way| missing(way.lost)),
    ("Lost before", |way| {
        quantity::bytes(way.lost_upstream_bytes)
    }),
    ("Missed by the capture", |way| missing(way.uncaptured)),
    ("Overtaken", |way| quantity::of(way.reordered, "packet")),
    ("ACKs compressed to less than half", |way| {
        of_pairs(way, way.ack_spacing.compressed)
    }),
    ("ACKs stretched to more than twice", |way| {
        of_pairs(way, way.ack_spacing.stretched)
    }),
];

fn missing(missing: MissingPackets) -> String {
    match (missing.segments, missing.acks) {
        (0, 0) => "nothing".to_owned(),
        (segments, acks) => format!(
            "{} ({}), {} without data",
            quantity::of(segments, "segment"),
            quantity::bytes(missing.bytes),
            quantity::of(acks, "packet")
        ),
    }
}

fn of_pairs(way: &OneWayMetrics, pairs: u64) -> String {
    match way.ack_spacing.sent.count {
        0 => "–".to_owned(),
        all => percent(pairs as f64 / all as f64),
    }
}

fn figures(between: &Between<'_>) -> Markup {
    let [there, back] = between.ways();
    let row = |(name, told): (&str, Told)| {
        html! { tr { th scope="row" { (name) } @for (_, way) in [there, back] { td { (told(way)) } } } }
    };
    table(
        "Both ways",
        ["", there.0, back.0],
        FIGURES.into_iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn merged_bins_keep_extremes_and_means() {
        let bin = |count, min_ns, mean_ns, max_ns| DelayBin {
            count,
            min_ns,
            mean_ns,
            max_ns,
        };
        let all = [bin(1, 10, 10, 10), DelayBin::default(), bin(3, 20, 30, 50)];
        assert_eq!(merged(&all), bin(4, 10, 25, 50));
        let mut pair = made_up::pair();
        let before = pair.from_client.time_series.bins.len();
        thin(&mut pair);
        let course = &pair.from_client.time_series;
        assert!(
            before > BINS_MAX && course.bins.len() <= BINS_MAX,
            "{}",
            course.bins.len()
        );
        let ends = course.width_ns * course.bins.len() as u64;
        assert!(ends >= before as u64 * 1_000_000, "{ends}");
    }

    #[test]
    fn shows_losses_of_each_direction() {
        let finished = made_up::finished();
        let between = Between::of(&finished.analysis, &finished.analysis.both_ends[0]).unwrap();
        let page = section(&between, 2).into_string();
        for text in [
            "between left and right",
            "40 segments (57.9 kB), 0 packets without data",
            "One clock saw both places",
            "data-chart=\"delay\" data-course=\"3\"",
            "25 %",
        ] {
            assert!(page.contains(text), "no {text} in {page}");
        }
    }
}
