// SPDX-License-Identifier: MIT OR Apache-2.0
//! How it was measured: the files, what was unsound in them, and what was left out.

use super::quantity;
use crate::report::result::{Analysis, CaptureFile};
use longhaul_report::table::table;
use maud::{Markup, html};

const COLUMNS: [&str; 8] = [
    "File",
    "Format",
    "Read",
    "Packets",
    "Began",
    "Lasted",
    "Dropped while capturing",
    "Left out",
];

pub(super) fn section(analysis: &Analysis) -> Markup {
    html! {
        section id="method" {
            h2 { "How it was measured" }
            (table("Files", COLUMNS, analysis.files.iter().map(row)))
            @for file in &analysis.files { (damages(file)) }
            (places(analysis))
            p.note { "Bins of " (widths(analysis)) "; by longhaul " (analysis.longhaul) "." }
        }
    }
}

fn row(file: &CaptureFile) -> Markup {
    let span = file.first_ns.zip(file.last_ns);
    html! {
        tr {
            th scope="row" { (file.name) }
            td { (file.format) }
            td.number { (quantity::bytes(file.bytes)) }
            td.number { (quantity::count(file.packets)) }
            td { (file.first_ns.map_or("–".to_owned(), moment)) }
            td.number { (span.map_or("–".to_owned(), |(first, last)| quantity::span(last.saturating_sub(first)))) }
            td.number { (file.kernel_drops.map_or("not said".to_owned(), quantity::count)) }
            td { (left_out(file)) }
        }
    }
}

/// "2023-11-14 22:13:20 UTC". Captures of a simulation begin at 0.
fn moment(ns: u64) -> String {
    let stamp = jiff::Timestamp::from_nanosecond(ns.into());
    stamp.map_or("–".to_owned(), |at| {
        at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    })
}

fn left_out(file: &CaptureFile) -> String {
    let reasons: Vec<String> = file
        .left_out
        .iter()
        .map(|(why, number)| format!("{} {why}", quantity::count(*number)))
        .collect();
    match reasons.is_empty() {
        true => "none".to_owned(),
        false => reasons.join(", "),
    }
}

fn damages(file: &CaptureFile) -> Markup {
    let all = file.damages.len() as u64 + file.damages_more;
    html! {
        @if all > 0 {
            details open[all < 4] {
                summary { (file.name) ": " (quantity::of(all, "damage")) ", and what is sound was analysed" }
                ul {
                    @for damage in &file.damages { li { "at byte " (damage.at_byte) ": " (damage.what) } }
                    @if file.damages_more > 0 { li { "and " (file.damages_more) " more" } }
                }
            }
        }
    }
}

fn places(analysis: &Analysis) -> Markup {
    html! {
        @if analysis.vantages.len() > 1 {
            p { "Seen from " (analysis.vantages.len()) " places: "
                @for (n, point) in analysis.vantages.iter().enumerate() {
                    @if n > 0 { ", " }
                    (point.name) " (" (quantity::of(point.packets, "packet")) ")"
                } "."
            }
        }
    }
}

fn widths(analysis: &Analysis) -> String {
    let widths: Vec<String> = analysis
        .bins_ns
        .iter()
        .map(|ns| quantity::span(*ns))
        .collect();
    widths.join(" and ")
}

/// Links to the files beside the page.
pub(super) fn raw(analysis: &Analysis) -> Markup {
    html! {
        h2 { "Raw data" }
        ul {
            li { a href="result.json" { "result.json" } ": what is on this page, but for the charts" }
            li { a href="courses.jsonl" { "courses.jsonl" } ": what the charts are made of" }
            @for name in &analysis.raw { li { a href={ "./" (name) } { (name) } } }
        }
    }
}
