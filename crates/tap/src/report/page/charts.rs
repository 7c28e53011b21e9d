// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts over time of a direction, with their titles. `tap.js` draws them from the chart data.

use super::units::{self, TransferSummary};
use crate::report::result::chart_series::ChartSeries;
use longhaul_flow::record::Direction;
use longhaul_report::chart;
use maud::{Markup, html};

/// Chart on the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chart {
    /// Name of the chart in `tap.js`.
    pub(super) kind: &'static str,
    /// Title: the main finding.
    pub(super) title: String,
    /// Caption: the quantities drawn.
    pub(super) caption: String,
    /// True if it spans the page, false for half of it.
    pub(super) wide: bool,
}

impl Chart {
    fn wide(kind: &'static str, title: String, caption: String) -> Self {
        Self {
            kind,
            title,
            caption,
            wide: true,
        }
    }

    fn half(kind: &'static str, title: String, caption: &str) -> Self {
        Self {
            kind,
            title,
            caption: caption.to_owned(),
            wide: false,
        }
    }
}

/// Returns the charts of a direction, the paper's figures 3 and 4 first. A quantity without values has no chart.
pub(super) fn charts(direction: &Direction, series: &ChartSeries) -> Vec<Chart> {
    let some = [
        Some(rates(direction, series)),
        series.has_values("acks").then(|| acks(direction, series)),
        series
            .has_values("acked_bytes")
            .then(|| sequence(direction)),
        series
            .has_values("acked_bytes")
            .then(|| ack_diff(direction)),
        series
            .has_values("rtt_max_ns")
            .then(|| round_trip(direction)),
        series
            .has_values("ack_path_delay_ns")
            .then(|| ack_path_delay(series)),
        series
            .has_values("in_flight_max_bytes")
            .then(|| in_flight(direction, series)),
        retransmissions(direction, series),
        series.has_values("queue_max_bytes").then(|| queue(series)),
    ];
    some.into_iter().flatten().collect()
}

fn rates(direction: &Direction, series: &ChartSeries) -> Chart {
    let mean = TransferSummary::new(direction).rate;
    let [width, finest] = [series.width_ns, series.finest_ns].map(units::duration);
    let max = if series.finest_ns < series.width_ns {
        format!(", with the highest rate over {finest} in each")
    } else {
        String::new()
    };
    Chart::wide(
        "rates",
        format!("Data rate above, acknowledged rate below: {mean} on average"),
        format!(
            "Payload sent, and bytes newly acknowledged (AckDiff), in bins of {width}{max}. Thick lines are means. \
             Single bins far above the mean are clipped."
        ),
    )
}

fn acks(direction: &Direction, series: &ChartSeries) -> Chart {
    let acks = &direction.acks;
    let segments = direction.data.data_segments as f64 / acks.pure.max(1) as f64;
    let width = units::duration(series.width_ns);
    Chart::wide(
        "acks",
        format!(
            "{}, one per {} data segments",
            units::counted(acks.pure, "pure ACK"),
            units::ratio(segments)
        ),
        format!("Pure ACKs per second, counted in bins of {width}. The thick line is the mean."),
    )
}

fn sequence(direction: &Direction) -> Chart {
    Chart::wide(
        "sequence",
        format!(
            "Sequence numbers: {} in total",
            units::bytes(direction.data.unique_bytes)
        ),
        "Bytes sent, bytes acknowledged, and the end of the advertised window. The first two differ by the \
         bytes in flight. The packet windows below show each segment, ACK and SACK block."
            .to_owned(),
    )
}

fn ack_diff(direction: &Direction) -> Chart {
    let distribution = &direction.ack_diff;
    Chart::half(
        "ack-diff",
        format!(
            "Bytes acknowledged per ACK (AckDiff): {} median, {} max",
            units::bytes(distribution.p50),
            units::bytes(distribution.max)
        ),
        "Bytes newly acknowledged by one ACK: mean and maximum of each bin.",
    )
}

fn round_trip(direction: &Direction) -> Chart {
    let (by, distribution) = (round_trips_by(direction), direction.round_trips());
    Chart::half(
        "round-trip",
        format!(
            "Round-trip time: {} min, {} median, {} max",
            units::duration(distribution.min),
            units::duration(distribution.p50),
            units::duration(distribution.max)
        ),
        &format!("{by}: mean and range of each bin."),
    )
}

/// Returns the method by which [`Direction::round_trips`] were measured.
pub(super) fn round_trips_by(direction: &Direction) -> &'static str {
    if direction.rtt_by_acks.count >= direction.rtt_by_timestamps.count {
        "From data to the ACK that covers it"
    } else {
        "By TCP timestamps"
    }
}

fn ack_path_delay(series: &ChartSeries) -> Chart {
    let delays = || series.column("ack_path_delay_ns").iter().flatten();
    let difference = delays()
        .max()
        .zip(delays().min())
        .map_or(0, |(max, least)| max - least);
    Chart::half(
        "ack-path-delay",
        format!(
            "ACK path delay: {} of variation",
            units::duration(difference as u64)
        ),
        "Delay of the fastest ACK of each bin relative to the first ACK, by the receiver's TSval.",
    )
}

fn in_flight(direction: &Direction, series: &ChartSeries) -> Chart {
    let window = series.column("window_min_bytes").iter().flatten().min();
    let window = window.map_or(String::new(), |least| {
        format!("; advertised window: {} min", units::bytes(*least as u64))
    });
    let max = units::bytes(direction.in_flight_max_bytes);
    Chart::half(
        "in-flight",
        format!("Bytes in flight: {max} max{window}"),
        "Maximum bytes in flight and minimum advertised window of each bin. A window far above is not drawn.",
    )
}

/// Returns the chart of retransmissions, duplicate ACKs, drops and ECN marks, if there were any.
fn retransmissions(direction: &Direction, series: &ChartSeries) -> Option<Chart> {
    let data = &direction.data;
    let names = [
        "retransmissions",
        "duplicate_acks",
        "drops",
        "ce_segments",
        "reported_marks",
    ];
    let packets = direction.data.retransmissions;
    names.iter().any(|name| series.has_values(name)).then(|| {
        Chart::half(
            "retransmissions",
            match packets {
                0 => "No retransmissions".to_owned(),
                _ => format!(
                    "{} retransmitted: {}",
                    units::counted(packets, "packet"),
                    units::bytes(data.retransmitted_bytes)
                ),
            },
            "Retransmissions, duplicate ACKs, ECN marks (segments with CE, and what ACKs report) and, if the emulator \
             reports them, drops in each bin.",
        )
    })
}

fn queue(series: &ChartSeries) -> Chart {
    let max = units::bytes(series.max("queue_max_bytes") as u64);
    Chart::half(
        "queue",
        format!("Queue of the emulated link: {max} max"),
        "Longest queue that the emulated link reported in each bin.",
    )
}

/// Returns the element in which `tap.js` draws the chart from the chart data with this number.
pub(super) fn placeholder(chart: &Chart, series: usize, of: &str) -> Markup {
    html! {
        figure.chart.wide[chart.wide] data-chart=(chart.kind) data-series=(series) {
            (chart::content(&chart.title, &chart.caption, &format!("{}, {of}", chart.title), None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    fn kinds(flow: &longhaul_flow::record::Flow) -> Vec<&'static str> {
        let series = ChartSeries::new(flow.number, true, &flow.upload.time_series, 1_000_000, 4096);
        charts(&flow.upload, &series)
            .iter()
            .map(|chart| chart.kind)
            .collect()
    }

    #[test]
    fn omits_charts_without_values() {
        let all = [
            "rates",
            "acks",
            "sequence",
            "ack-diff",
            "round-trip",
            "ack-path-delay",
            "in-flight",
            "retransmissions",
            "queue",
        ];
        assert_eq!(kinds(&fixtures::long_flow(0)), all);
        assert_eq!(kinds(&fixtures::short_flow(0)), all[..4]);
    }
}
