// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section of the page for one direction of a flow: verdict, timelines, charts, histograms and figures.

use super::{
    ack_clocking,
    charts::{self, round_trips_by},
    histogram::{self, Histogram},
    timeline::{self, Axis, phase_labels},
    units::{self, TransferSummary},
};
use crate::report::result::{Analysis, chart_series::ChartSeries};
use longhaul_flow::ecn::negotiation::EcnNegotiation;
use longhaul_flow::record::{
    Acks, CaptureLocation, CapturePosition, Data, Direction, Flow, Phase, SynOptions, Termination,
};
use longhaul_report::{chart::Charts, table::table, unit::Unit};
use maud::{Markup, html};

/// Direction with chart data.
#[derive(Clone, Copy)]
pub(crate) struct DirectionView<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) series: &'a ChartSeries,
    /// Name of the capture point, if there are several.
    pub(crate) capture_point: Option<&'a str>,
}

impl<'a> DirectionView<'a> {
    /// Finds the direction of this chart data. `None` if its flow is not in the result.
    pub(crate) fn find(analysis: &'a Analysis, series: &'a ChartSeries) -> Option<Self> {
        let flow = analysis
            .flows
            .iter()
            .find(|flow| flow.number == series.flow)?;
        Some(Self {
            flow,
            series,
            capture_point: analysis.capture_point_name(flow.capture_point),
        })
    }

    fn is_upload(&self) -> bool {
        self.series.direction == "upload"
    }

    pub(crate) fn direction(&self) -> &'a Direction {
        self.flow.direction(self.is_upload())
    }

    /// Returns the section's id, unique on the page.
    pub(super) fn id(&self) -> String {
        section_id(self.flow.number, &self.series.direction)
    }

    pub(crate) fn name(&self) -> String {
        direction_name(self.flow, self.is_upload(), self.capture_point)
    }

    pub(super) fn axis(&self) -> Axis {
        Axis {
            from_ns: self.series.from_ns,
            length_ns: self.series.width_ns * self.series.bins as u64,
        }
    }

    /// Returns payload, duration and mean rate as texts.
    pub(super) fn summary(&self) -> TransferSummary {
        TransferSummary::new(self.direction())
    }
}

/// Returns the name of a direction, for instance "10.0.0.1:40000 → 10.0.0.2:5201, at left".
pub(crate) fn direction_name(flow: &Flow, upload: bool, capture_point: Option<&str>) -> String {
    let (from, to) = flow.ends(upload);
    let capture_point = capture_point.map_or(String::new(), |capture_point| {
        format!(", at {capture_point}")
    });
    format!("{from} → {to}{capture_point}")
}

/// Returns the id of a direction's section.
pub(super) fn section_id(flow: u64, direction: &str) -> String {
    format!("flow-{flow}-{direction}")
}

/// Returns the section of a direction. `number` is the number of its chart data on the page. Adds its histograms to
/// `charts`.
pub(super) fn section(view: DirectionView<'_>, number: usize, charts: &mut Charts) -> Markup {
    let direction = view.direction();
    let TransferSummary {
        payload,
        duration,
        rate,
        ..
    } = view.summary();
    html! {
        section.direction id=(view.id()) data-name=(view.name()) {
            h2 { (view.name()) }
            p { (payload) " in " (duration) ": " strong { (rate) } ". " (direction.verdict) " " (direction.remedy) }
            @if let Some(control) = &direction.congestion_control {
                p { (control.describe()) }
            }
            p.view { output.in-view {} }
            (timeline::timelines(direction, view.axis()))
            div.charts {
                @for chart in charts::charts(direction, view.series) {
                    (charts::placeholder(&chart, number, &view.name()))
                }
                @for histogram in histograms(direction) { (histogram::figure(&histogram, charts)) }
                (ack_clocking::figure_of(&direction.ack_clocking))
            }
            (phase_table(direction, view.axis()))
            (figure_table(view.flow, direction))
        }
    }
}

/// Returns the histograms of AckDiff, inter-packet gaps and bursts.
pub(super) fn histograms(direction: &Direction) -> [Histogram<'_>; 3] {
    let Direction {
        ack_diff,
        inter_packet_gaps: gaps,
        bursts,
        ..
    } = direction;
    [
        Histogram {
            title: format!(
                "Bytes acknowledged per ACK (AckDiff): {} on average",
                units::bytes(ack_diff.mean as u64)
            ),
            caption: "Bytes newly acknowledged by each advancing ACK.",
            samples: ack_diff,
            unit: Unit::Bytes,
        },
        Histogram {
            title: format!(
                "Inter-packet gaps: {} median, {} p99",
                units::duration(gaps.p50),
                units::duration(gaps.p99)
            ),
            caption: "From one data segment to the next; 0 within a super-packet.",
            samples: gaps,
            unit: Unit::Seconds,
        },
        Histogram {
            title: format!(
                "Bursts: {} median, {} max",
                units::counted(bursts.p50, "segment"),
                units::count(bursts.max)
            ),
            caption: "Consecutive data segments with short gaps.",
            samples: bursts,
            unit: Unit::Count,
        },
    ]
}

fn phase_table(direction: &Direction, axis: Axis) -> Markup {
    let names = [
        "Phase",
        "Start",
        "Duration",
        "Data",
        "Acknowledged",
        "ACKs per second",
        "Segments per ACK",
    ];
    let rows = direction.phases.iter().map(|one| phase_row(one, axis));
    html! { @if !direction.phases.is_empty() { (table("Phases", names, rows)) } }
}

fn phase_row(phase: &Phase, axis: Axis) -> Markup {
    html! {
        tr {
            th scope="row" { (phase_labels(phase.kind).1) }
            td.number { (units::duration(phase.from_ns.saturating_sub(axis.from_ns))) }
            td.number { (units::duration(phase.duration_ns())) }
            td.number { (units::bit_rate(phase.data_bps)) }
            td.number { (units::bit_rate(phase.acked_bps)) }
            td.number { (units::count(phase.acks_per_s.round() as u64)) }
            td.number { (units::ratio(phase.packets_per_ack)) }
        }
    }
}

fn figure_table(flow: &Flow, direction: &Direction) -> Markup {
    let Direction {
        data,
        acks,
        syn_options: options,
        ..
    } = direction;
    html! {
        dl {
            dt { "Data" } dd { (describe_data(data)) }
            dt { "Retransmitted" } dd { (describe_retransmissions(direction)) }
            @if data.acked_unseen_bytes > 0 {
                dt { "ACKed but not captured" }
                dd.fail { (units::bytes(data.acked_unseen_bytes)) ": the capture lost packets" }
            }
            dt { "ACKs" } dd { (describe_acks(acks)) }
            dt { "ECN" } dd { (describe_ecn(flow.handshake.ecn, direction)) }
            dt { "Advertised window" } dd { (describe_window(acks)) }
            @if direction.round_trips().count > 0 {
                dt { "Round-trip time" } dd { (describe_round_trips(direction)) }
            }
            dt { "Capture position" } dd { (describe_tap_position(direction.tap_position)) }
            dt { "SYN options" } dd { (describe_syn_options(*options)) }
            dt { "Handshake" } dd { (describe_handshake(flow)) }
            dt { "Termination" } dd { (describe_termination(flow.termination)) }
        }
    }
}

fn describe_data(data: &Data) -> String {
    let probes = match data.window_probes_and_keep_alives {
        0 => String::new(),
        probes => format!("; {}", units::counted(probes, "window probe or keep-alive")),
    };
    format!(
        "{} in {} of at most {}{probes}",
        units::bytes(data.payload_bytes),
        units::counted(data.data_segments, "segment"),
        units::bytes(data.segment_max_bytes.into())
    )
}

/// Describes the retransmissions by kind. Kinds that did not occur are left out.
fn describe_retransmissions(direction: &Direction) -> String {
    let data = &direction.data;
    let kinds = [
        (data.fast_retransmissions, "fast"),
        (data.timeout_retransmissions, "after a timeout"),
        (data.spurious_retransmissions, "spurious"),
        (data.other_retransmissions, "of unknown cause"),
    ];
    let occurred = kinds.iter().filter(|(number, _)| *number > 0);
    let kinds: Vec<String> = occurred
        .map(|(n, kind)| format!("{} {kind}", units::count(*n)))
        .collect();
    let reordered = match data.reordered {
        0 => String::new(),
        reordered => format!("; {} reordered", units::counted(reordered, "packet")),
    };
    match direction.data.retransmissions {
        0 => format!("none{reordered}"),
        packets => format!(
            "{}, {}: {}{reordered}",
            units::counted(packets, "packet"),
            units::bytes(data.retransmitted_bytes),
            kinds.join(", ")
        ),
    }
}

fn describe_acks(acks: &Acks) -> String {
    let kinds = [
        (acks.duplicates, "duplicates"),
        (acks.with_sack, "with SACK"),
        (acks.dsacks, "with D-SACK"),
        (acks.window_updates, "window updates"),
        (acks.out_of_order, "out of order"),
    ];
    let occurred = kinds.iter().filter(|(number, _)| *number > 0);
    let kinds: String = occurred
        .map(|(n, kind)| format!(", {} {kind}", units::count(*n)))
        .collect();
    format!("{} pure{kinds}", units::count(acks.pure))
}

fn describe_ecn(negotiated: EcnNegotiation, direction: &Direction) -> String {
    let ecn = &direction.ecn;
    let kind = match negotiated {
        EcnNegotiation::Unknown => "unknown, handshake not captured",
        EcnNegotiation::Inferred => "used, handshake not captured",
        EcnNegotiation::NotNegotiated => "not negotiated",
        EcnNegotiation::Classic => "classic",
        EcnNegotiation::Accurate => "accurate (AccECN)",
    };
    let share = 100.0 * ecn.ce_data_segments as f64 / direction.data.data_segments.max(1) as f64;
    let counts = [
        (ecn.ect0_segments, "segments with ECT(0)".to_owned()),
        (ecn.ect1_segments, "with ECT(1)".to_owned()),
        (
            ecn.ce_data_segments,
            format!("with data and CE ({share:.2} %)"),
        ),
        (ecn.reported_ce_packets, "reported with CE".to_owned()),
        (ecn.ece_acks, "ACKs with ECE".to_owned()),
        (ecn.cwr_packets, "packets with CWR".to_owned()),
    ];
    let occurred = counts.iter().filter(|(number, _)| *number > 0);
    let counts: String = occurred
        .map(|(number, kind)| format!(", {} {kind}", units::count(*number)))
        .collect();
    format!("{kind}{counts}")
}

fn describe_window(acks: &Acks) -> String {
    let zero = match acks.zero_windows {
        0 => "never zero".to_owned(),
        times => format!("zero in {}", units::counted(times, "ACK")),
    };
    let scale = match acks.window_scale {
        Some(_) => "",
        None => "; window scale not captured",
    };
    format!(
        "{} to {}, {zero}{scale}",
        units::bytes(acks.window_min_bytes),
        units::bytes(acks.window_max_bytes)
    )
}

fn describe_round_trips(direction: &Direction) -> String {
    let (by, found) = (round_trips_by(direction), direction.round_trips());
    format!(
        "{} min, {} median, {} p99, {} max ({}, {})",
        units::duration(found.min),
        units::duration(found.p50),
        units::duration(found.p99),
        units::duration(found.max),
        by,
        units::counted(found.count, "sample")
    )
}

fn describe_tap_position(position: CapturePosition) -> String {
    let location = match position.location {
        CaptureLocation::NearSender => "near the sender",
        CaptureLocation::Middle => "in the middle of the path",
        CaptureLocation::NearReceiver => "near the receiver",
        CaptureLocation::Unknown => "unknown",
    };
    let round_trip = |ns: Option<u64>| ns.map_or_else(|| "unknown".to_owned(), units::duration);
    format!(
        "{location}: round trip of {} to the sender, {} to the receiver",
        round_trip(position.to_sender_ns),
        round_trip(position.to_receiver_ns)
    )
}

fn describe_syn_options(options: SynOptions) -> String {
    let mss = options.mss.map(|mss| format!("MSS {mss}"));
    let scale = options
        .window_scale
        .map(|shift| format!("window scale {shift}"));
    let sack = options.sack.then(|| "SACK".to_owned());
    let stamps = options.timestamps.then(|| "timestamps".to_owned());
    let cut = options
        .options_truncated
        .then(|| "the rest truncated".to_owned());
    let all: Vec<String> = [mss, scale, sack, stamps, cut]
        .into_iter()
        .flatten()
        .collect();
    if all.is_empty() {
        "not captured".to_owned()
    } else {
        all.join(", ")
    }
}

fn describe_handshake(flow: &Flow) -> String {
    let handshake = &flow.handshake;
    let count = handshake.syn_retransmissions + handshake.syn_ack_retransmissions;
    let count = match count {
        0 => String::new(),
        1 => "; retransmitted once".to_owned(),
        times => format!("; retransmitted {times} times"),
    };
    match (handshake.syn_to_syn_ack_ns, handshake.syn_ack_to_ack_ns) {
        (Some(there), Some(back)) => {
            format!(
                "SYN/ACK after {}, ACK after {} more{count}",
                units::duration(there),
                units::duration(back)
            )
        }
        (Some(there), None) => format!("SYN/ACK after {}{count}", units::duration(there)),
        _ => format!("not captured{count}"),
    }
}

pub(super) fn describe_termination(termination: Termination) -> &'static str {
    match termination {
        Termination::Finished => "FIN from both ends",
        Termination::HalfClosed => "FIN from one end",
        Termination::ResetByClient => "reset by the client",
        Termination::ResetByServer => "reset by the server",
        Termination::Open => "open at the end of the capture",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_flow::ecn::EcnCounts;

    #[test]
    fn describes_ecn_by_negotiation_and_counts() {
        let mut direction = Direction::default();
        let no = describe_ecn(EcnNegotiation::NotNegotiated, &direction);
        assert_eq!(no, "not negotiated");
        direction.data.data_segments = 1_000;
        direction.ecn = EcnCounts {
            ect0_segments: 970,
            ce_segments: 31,
            ce_data_segments: 31,
            ece_acks: 40,
            cwr_packets: 3,
            ..EcnCounts::default()
        };
        assert_eq!(
            describe_ecn(EcnNegotiation::Classic, &direction),
            "classic, 970 segments with ECT(0), 31 with data and CE (3.10 %), 40 ACKs with ECE, 3 packets with CWR"
        );
    }
}
