// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of all flows in the result. `tap.js` sorts it by `data-value`.

use super::{
    direction::{describe_termination, section_id},
    timeline::dominant_limit,
    units::{self, TransferSummary},
};
use crate::report::result::Analysis;
use longhaul_flow::record::Flow;
use longhaul_report::table::Table;
use maud::{Markup, html};

const TABLE: Table<'_> = Table {
    label: "Flows",
    class: "sortable",
    caption: "",
};
const NAMES: [&str; 11] = [
    "From",
    "To",
    "Capture point",
    "Start",
    "Data",
    "Duration",
    "Rate",
    "Round-trip time",
    "Retransmissions",
    "Main limit",
    "Termination",
];

/// Returns the table, with a row for each direction with data; `is_drawn` returns whether a section has this id.
pub(super) fn section(analysis: &Analysis, is_drawn: impl Fn(&str) -> bool) -> Markup {
    let begin_ns = analysis
        .flows
        .iter()
        .map(|flow| flow.first_ns)
        .min()
        .unwrap_or(0);
    let flows = analysis.flows.iter();
    let rows = flows.flat_map(|flow| rows(analysis, flow, begin_ns));
    html! {
        section id="flows" {
            h2 { (title(analysis)) }
            @if analysis.flows.is_empty() { p { "The capture has no TCP connection." } }
            @else { (TABLE.render(NAMES, rows.map(|row| row.render(&is_drawn)))) }
            (remainder(analysis))
        }
    }
}

/// Returns the number of flows as text: "5 flows".
pub(super) fn title(analysis: &Analysis) -> String {
    let all = analysis.flows.len() as u64 + analysis.remainder.flows;
    units::counted(all, "flow")
}

fn remainder(analysis: &Analysis) -> Markup {
    let remainder = &analysis.remainder;
    html! {
        @if remainder.flows > 0 {
            p.note {
                (units::counted(remainder.flows, "more flow")) " with " (units::bytes(remainder.unique_bytes))
                " in " (units::counted(remainder.packets, "packet"))
                @if analysis.other_files.iter().any(|name| name == "flows.jsonl") {
                    ": a line each in " a href="flows.jsonl" { "flows.jsonl" }
                } "."
            }
        }
    }
}

struct Row<'a> {
    flow: &'a Flow,
    upload: bool,
    capture_point: Option<&'a str>,
    start_ns: u64,
}

/// Returns a row for each direction with data, or one row for a flow without data.
fn rows<'a>(analysis: &'a Analysis, flow: &'a Flow, begin_ns: u64) -> Vec<Row<'a>> {
    let row = |upload| Row {
        flow,
        upload,
        capture_point: analysis.capture_point_name(flow.capture_point),
        start_ns: flow.first_ns.saturating_sub(begin_ns),
    };
    let [up, down] = [&flow.upload, &flow.download].map(|one| one.data.unique_bytes);
    let mut rows = vec![row(up >= down)];
    if up.min(down) > 0 {
        rows.push(row(up < down));
    }
    rows
}

impl Row<'_> {
    fn render(&self, is_drawn: impl Fn(&str) -> bool) -> Markup {
        let Flow {
            last_ns, first_ns, ..
        } = self.flow;
        let direction = self.flow.direction(self.upload);
        let (from, to) = self.flow.ends(self.upload);
        let id = section_id(
            self.flow.number,
            crate::series::column::direction(self.upload),
        );
        let amount = TransferSummary::new(direction);
        let lasted = last_ns.saturating_sub(*first_ns);
        let rtt = direction.round_trips();
        let retransmissions = direction.data.retransmissions;
        let limit = dominant_limit(direction);
        html! {
            tr {
                th scope="row" {
                    @if is_drawn(&id) { a href={ "#" (id) } { (from) } }
                    @else { (from) }
                }
                td { (to) }
                td { (self.capture_point.unwrap_or("–")) }
                td.number data-value=(self.start_ns) { (units::duration(self.start_ns)) }
                td.number data-value=(direction.data.unique_bytes) { (amount.payload) }
                td.number data-value=(lasted) { (units::duration(lasted)) }
                td.number data-value=(amount.rate_bps) { (amount.rate) }
                td.number data-value=(rtt.p50) {
                    @if rtt.count > 0 { (units::duration(rtt.p50)) } @else { "–" }
                }
                td.number data-value=(retransmissions) { (units::count(retransmissions)) }
                td { @match limit {
                    Some((by, share)) => { (by) " " small { (format!("{:.0} %", share * 100.0)) } }
                    None => { "–" }
                } }
                td { (describe_termination(self.flow.termination)) }
            }
        }
    }
}
