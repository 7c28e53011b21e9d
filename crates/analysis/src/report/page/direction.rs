// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section of one direction of a flow: verdict, timelines, charts, histograms and figures.

use super::{
    charts::{self, round_trips_by},
    histogram::{self, Histogram},
    quantity::{self, Amount},
    releases,
    strip::{self, Axis, phase_words},
};
use crate::report::result::{Analysis, course::Drawn};
use longhaul_flow::record::{
    Acks, Data, Direction, Flow, Phase, SynOptions, TapLocation, TapPosition, Termination,
};
use longhaul_report::table::table;
use maud::{Markup, html};

/// Direction with chart data.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) course: &'a Drawn,
    /// Name of the capture point, if there are several.
    pub(crate) place: Option<&'a str>,
}

impl<'a> Shown<'a> {
    /// Returns the direction of this chart data, if its flow is in the result.
    pub(crate) fn of(analysis: &'a Analysis, course: &'a Drawn) -> Option<Self> {
        let flow = analysis
            .flows
            .iter()
            .find(|flow| flow.number == course.flow)?;
        Some(Self {
            flow,
            course,
            place: analysis.place(flow.capture_point),
        })
    }

    fn is_upload(&self) -> bool {
        self.course.direction == "upload"
    }

    pub(crate) fn direction(&self) -> &'a Direction {
        self.flow.direction(self.is_upload())
    }

    /// Returns the section's id, unique on the page.
    pub(super) fn id(&self) -> String {
        id(self.flow.number, &self.course.direction)
    }

    pub(crate) fn name(&self) -> String {
        name(self.flow, self.is_upload(), self.place)
    }

    pub(super) fn axis(&self) -> Axis {
        Axis {
            from_ns: self.course.from_ns,
            length_ns: self.course.width_ns * self.course.bins as u64,
        }
    }

    /// Returns payload, duration and mean rate as texts.
    pub(super) fn amount(&self) -> Amount {
        Amount::of(&self.direction().data)
    }
}

/// Returns the name of a direction, for instance "10.0.0.1:40000 → 10.0.0.2:5201, at left".
pub(crate) fn name(flow: &Flow, upload: bool, place: Option<&str>) -> String {
    let (from, to) = flow.ends(upload);
    let place = place.map_or(String::new(), |place| format!(", at {place}"));
    format!("{from} → {to}{place}")
}

/// Returns the id of a direction's section.
pub(super) fn id(flow: u64, direction: &str) -> String {
    format!("flow-{flow}-{direction}")
}

/// Returns the section of a direction; `number` is that of its chart data on the page.
pub(super) fn section(shown: Shown<'_>, number: usize) -> Markup {
    let direction = shown.direction();
    let Amount {
        payload,
        lasted,
        rate,
        ..
    } = shown.amount();
    html! {
        section.direction id=(shown.id()) data-name=(shown.name()) {
            h2 { (shown.name()) }
            p { (payload) " in " (lasted) ": " strong { (rate) } ". " (direction.verdict) }
            p.view { output.in-view {} }
            (strip::strips(direction, shown.axis()))
            div.charts {
                @for chart in charts::charts(direction, shown.course) {
                    (charts::place(&chart, number, &shown.name()))
                }
                @for histogram in histograms(direction) { (histogram::figure(&histogram)) }
                (releases::of(&direction.ack_clocking))
            }
            (phases(direction, shown.axis()))
            (figures(shown.flow, direction))
        }
    }
}

/// Returns the histograms of AckDiff, inter-packet gaps and bursts.
pub(super) fn histograms(direction: &Direction) -> [Histogram<'_>; 3] {
    let Direction {
        ack_diff,
        gaps,
        bursts,
        ..
    } = direction;
    [
        Histogram {
            title: format!(
                "AckDiff: {} on average",
                quantity::bytes(ack_diff.mean as u64)
            ),
            caption: "Bytes newly acknowledged by each ACK that moved.",
            samples: ack_diff,
            print: quantity::bytes,
        },
        Histogram {
            title: format!(
                "Gaps: half are at most {}, 1 % above {}",
                quantity::span(gaps.p50),
                quantity::span(gaps.p99)
            ),
            caption: "From one data segment to the next; 0 inside a super-packet.",
            samples: gaps,
            print: quantity::span,
        },
        Histogram {
            title: format!(
                "Bursts: half are at most {}, the longest {}",
                quantity::of(bursts.p50, "segment"),
                quantity::count(bursts.max)
            ),
            caption: "Data segments in a row with short gaps.",
            samples: bursts,
            print: quantity::count,
        },
    ]
}

fn phases(direction: &Direction, axis: Axis) -> Markup {
    let names = [
        "Phase",
        "From",
        "For",
        "Data",
        "Acknowledged",
        "ACKs a second",
        "Segments an ACK",
    ];
    let rows = direction.phases.iter().map(|one| phase(one, axis));
    html! { @if !direction.phases.is_empty() { (table("Phases", names, rows)) } }
}

fn phase(phase: &Phase, axis: Axis) -> Markup {
    html! {
        tr {
            th scope="row" { (phase_words(phase.kind).1) }
            td.number { (quantity::span(phase.from_ns.saturating_sub(axis.from_ns))) }
            td.number { (quantity::span(phase.duration_ns())) }
            td.number { (quantity::bits_a_second(phase.data_bps)) }
            td.number { (quantity::bits_a_second(phase.acked_bps)) }
            td.number { (quantity::count(phase.acks_per_s.round() as u64)) }
            td.number { (quantity::ratio(phase.packets_per_ack)) }
        }
    }
}

fn figures(flow: &Flow, direction: &Direction) -> Markup {
    let Direction {
        data,
        acks,
        syn_options: offer,
        ..
    } = direction;
    html! {
        dl {
            dt { "Data" } dd { (sent(data)) }
            dt { "Sent again" } dd { (sent_again(direction)) }
            @if data.acked_unseen_bytes > 0 {
                dt { "Not captured" }
                dd.fail { (quantity::bytes(data.acked_unseen_bytes)) " that were acknowledged: the capture lost packets" }
            }
            dt { "ACKs" } dd { (acknowledged(acks)) }
            dt { "Window" } dd { (window(acks)) }
            @if direction.round_trips().count > 0 {
                dt { "Round trip" } dd { (round_trip(direction)) }
            }
            dt { "Seen from" } dd { (standing(direction.tap_position)) }
            dt { "Offered" } dd { (offered(*offer)) }
            dt { "Handshake" } dd { (handshake(flow)) }
            dt { "End" } dd { (closing(flow.termination)) }
        }
    }
}

fn sent(data: &Data) -> String {
    let probes = match data.probes {
        0 => String::new(),
        probes => format!("; {}", quantity::of(probes, "window probe or keep-alive")),
    };
    format!(
        "{} in {} of at most {}{probes}",
        quantity::bytes(data.payload_bytes),
        quantity::of(data.data_segments, "segment"),
        quantity::bytes(data.segment_max_bytes.into())
    )
}

/// Describes the retransmissions by kind; kinds without any are left out.
fn sent_again(direction: &Direction) -> String {
    let data = &direction.data;
    let kinds = [
        (data.fast_retransmissions, "fast"),
        (data.timeout_retransmissions, "after a time-out"),
        (data.spurious_retransmissions, "for nothing"),
        (data.other_retransmissions, "for no visible reason"),
    ];
    let happened = kinds.iter().filter(|(number, _)| *number > 0);
    let kinds: Vec<String> = happened
        .map(|(n, kind)| format!("{} {kind}", quantity::count(*n)))
        .collect();
    let late = match data.reordered {
        0 => String::new(),
        late => format!("; {} out of order", quantity::of(late, "packet")),
    };
    match direction.data.retransmissions {
        0 => format!("nothing{late}"),
        packets => format!(
            "{}, {}: {}{late}",
            quantity::of(packets, "packet"),
            quantity::bytes(data.retransmitted_bytes),
            kinds.join(", ")
        ),
    }
}

fn acknowledged(acks: &Acks) -> String {
    let kinds = [
        (acks.duplicates, "duplicates"),
        (acks.with_sack, "with SACK"),
        (acks.dsacks, "with D-SACK"),
        (acks.window_updates, "window updates"),
        (acks.out_of_order, "out of order"),
    ];
    let happened = kinds.iter().filter(|(number, _)| *number > 0);
    let kinds: String = happened
        .map(|(n, kind)| format!(", {} {kind}", quantity::count(*n)))
        .collect();
    format!("{} pure{kinds}", quantity::count(acks.pure))
}

fn window(acks: &Acks) -> String {
    let zero = match acks.zero_windows {
        0 => "never zero".to_owned(),
        times => format!("zero in {}", quantity::of(times, "ACK")),
    };
    let scale = match acks.window_scale {
        Some(_) => "",
        None => "; its scale was not captured",
    };
    format!(
        "{} to {}, {zero}{scale}",
        quantity::bytes(acks.window_min_bytes),
        quantity::bytes(acks.window_max_bytes)
    )
}

fn round_trip(direction: &Direction) -> String {
    let (by, found) = (round_trips_by(direction), direction.round_trips());
    format!(
        "{} at least, {} for half, {} for 99 %, {} at most ({}, {})",
        quantity::span(found.min),
        quantity::span(found.p50),
        quantity::span(found.p99),
        quantity::span(found.max),
        by.to_lowercase(),
        quantity::of(found.count, "sample")
    )
}

fn standing(standing: TapPosition) -> String {
    let place = match standing.location {
        TapLocation::NearSender => "near the sender",
        TapLocation::Middle => "the middle",
        TapLocation::NearReceiver => "near the receiver",
        TapLocation::Unknown => "an unknown place",
    };
    let far = |ns: Option<u64>| ns.map_or_else(|| "unknown".to_owned(), quantity::span);
    format!(
        "{place}: {} to the sender and back, {} to the receiver and back",
        far(standing.to_sender_ns),
        far(standing.to_receiver_ns)
    )
}

fn offered(offer: SynOptions) -> String {
    let mss = offer.mss.map(|mss| format!("MSS {mss}"));
    let scale = offer
        .window_scale
        .map(|shift| format!("window scale {shift}"));
    let sack = offer.sack.then(|| "SACK".to_owned());
    let stamps = offer.timestamps.then(|| "time stamps".to_owned());
    let cut = offer.options_cut.then(|| "the rest was cut off".to_owned());
    let all: Vec<String> = [mss, scale, sack, stamps, cut]
        .into_iter()
        .flatten()
        .collect();
    match all.is_empty() {
        true => "not captured".to_owned(),
        false => all.join(", "),
    }
}

fn handshake(flow: &Flow) -> String {
    let opening = &flow.handshake;
    let again = opening.syn_retransmissions + opening.syn_ack_retransmissions;
    let again = match again {
        0 => String::new(),
        times => format!("; sent again {times} times"),
    };
    match (opening.syn_to_syn_ack_ns, opening.syn_ack_to_ack_ns) {
        (Some(there), Some(back)) => {
            format!(
                "SYN/ACK after {}, ACK after {} more{again}",
                quantity::span(there),
                quantity::span(back)
            )
        }
        (Some(there), None) => format!("SYN/ACK after {}{again}", quantity::span(there)),
        _ => format!("not captured{again}"),
    }
}

pub(super) fn closing(closing: Termination) -> &'static str {
    match closing {
        Termination::Finished => "FIN from both ends",
        Termination::HalfClosed => "FIN from one end",
        Termination::ResetByClient => "reset by the client",
        Termination::ResetByServer => "reset by the server",
        Termination::Open => "the capture ends before it",
    }
}
