// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of the largest UDP flows. `tap.js` sorts it by `data-value`.

use super::units;
use crate::report::result::Analysis;
use longhaul_flow::{
    segment::Endpoint,
    udp::{SpinBit, UdpDirection, UdpFlow},
};
use longhaul_report::table::Table;
use maud::{Markup, html};

/// Maximum number of flows in the table.
const FLOWS_MAX: usize = 100;

const TABLE: Table<'_> = Table {
    label: "UDP flows",
    class: "sortable",
    caption: "",
};
const NAMES: [&str; 10] = [
    "From",
    "To",
    "Capture point",
    "Protocol",
    "Packets",
    "Data",
    "Duration",
    "Rate",
    "Round-trip time of the handshake",
    "Round-trip time by the spin bit",
];

/// Returns the table, with a row for each direction with packets; nothing if the capture has no UDP.
pub(super) fn section(analysis: &Analysis) -> Markup {
    let (all, _) = analysis.udp_flow_counts();
    let more = all
        .saturating_sub(FLOWS_MAX as u64)
        .max(analysis.udp_remainder.flows);
    let flows = analysis.udp_flows.iter().take(FLOWS_MAX);
    let rows = flows.flat_map(|flow| rows(analysis, flow));
    html! {
        @if all > 0 {
            section id="udp-flows" {
                h2 { (title(all)) }
                (TABLE.render(NAMES, rows))
                @if more > 0 { p.note { (units::counted(more, "more UDP flow")) "." } }
            }
        }
    }
}

/// Returns the number of flows as text: "5 UDP flows".
pub(super) fn title(flows: u64) -> String {
    units::counted(flows, "UDP flow")
}

fn rows(analysis: &Analysis, flow: &UdpFlow) -> Vec<Markup> {
    let (client, server) = (&flow.client, &flow.server);
    let directions = [
        (client, server, &flow.upload),
        (server, client, &flow.download),
    ];
    let with_packets = directions
        .into_iter()
        .filter(|direction| direction.2.packets > 0);
    let row = |(from, to, direction)| row(analysis, flow, [from, to], direction);
    with_packets.map(row).collect()
}

fn row(
    analysis: &Analysis,
    flow: &UdpFlow,
    ends: [&Endpoint; 2],
    direction: &UdpDirection,
) -> Markup {
    let duration_ns = direction.duration_ns().unwrap_or(0);
    let rate_bps = match duration_ns {
        0 => 0.0,
        ns => direction.payload_bytes as f64 * 8e9 / ns as f64,
    };
    let quic = flow.quic.as_ref();
    let handshake_ns = quic.and_then(|quic| quic.handshake_rtt_ns);
    html! {
        tr {
            th scope="row" { (ends[0]) }
            td { (ends[1]) }
            td { (analysis.capture_point_name(flow.capture_point).unwrap_or("–")) }
            td { @match quic { Some(quic) => { "QUIC " (quic.version) } None => { "UDP" } } }
            td.number data-value=(direction.packets) { (units::count(direction.packets)) }
            td.number data-value=(direction.payload_bytes) { (units::bytes(direction.payload_bytes)) }
            td.number data-value=(duration_ns) { (units::duration(duration_ns)) }
            td.number data-value=(rate_bps) { (units::bit_rate(rate_bps)) }
            td.number data-value=(handshake_ns.unwrap_or(0)) { (handshake_ns.map_or("–".to_owned(), units::duration)) }
            td.number data-value=(quic.map_or(0, |quic| quic.spin_rtt.p50)) { (spin_rtt(flow)) }
        }
    }
}

/// Returns the median round trip by the spin bit, or why there is none.
fn spin_rtt(flow: &UdpFlow) -> String {
    let Some(quic) = &flow.quic else {
        return "–".to_owned();
    };
    match quic.spin_bit {
        SpinBit::Spins if quic.spin_rtt.count > 0 => units::duration(quic.spin_rtt.p50),
        SpinBit::Spins | SpinBit::Unknown => "–".to_owned(),
        SpinBit::Constant => "does not spin".to_owned(),
        SpinBit::Random => "random".to_owned(),
    }
}
