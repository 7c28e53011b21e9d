// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section about the measurement: the files, their damages, and packets that were not analysed.

use super::units;
use crate::report::result::{Analysis, CaptureFile};
use longhaul_report::table::table;
use maud::{Markup, html};

const COLUMNS: [&str; 8] = [
    "File",
    "Format",
    "Bytes read",
    "Packets",
    "Start",
    "Duration",
    "Dropped by the kernel",
    "Skipped",
];

pub(super) fn section(analysis: &Analysis) -> Markup {
    html! {
        section id="method" {
            h2 { "Capture files" }
            (table("Files", COLUMNS, analysis.files.iter().map(row)))
            @for file in &analysis.files { (warnings(file)) (damages(file)) }
            (capture_points(analysis))
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
            td.number { (units::bytes(file.bytes)) }
            td.number { (units::count(file.packets)) }
            td { (file.first_ns.map_or("–".to_owned(), date_time)) }
            td.number { (span.map_or("–".to_owned(), |(first, last)| units::duration(last.saturating_sub(first)))) }
            td.number { (file.kernel_drops.map_or("unknown".to_owned(), units::count)) }
            td { (skipped(file)) }
        }
    }
}

/// Formats a time: "2023-11-14 22:13:20 UTC". Captures of a simulation begin at 0.
fn date_time(ns: u64) -> String {
    let stamp = jiff::Timestamp::from_nanosecond(ns.into());
    stamp.map_or("–".to_owned(), |at| {
        at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    })
}

fn skipped(file: &CaptureFile) -> String {
    let reasons: Vec<String> = file
        .skipped
        .iter()
        .map(|(why, number)| format!("{} {why}", units::count(*number)))
        .collect();
    if reasons.is_empty() {
        "none".to_owned()
    } else {
        reasons.join(", ")
    }
}

fn warnings(file: &CaptureFile) -> Markup {
    html! {
        @for warning in &file.warnings { p { (file.name) ": " (warning) "." } }
    }
}

fn damages(file: &CaptureFile) -> Markup {
    let all = file.damages.len() as u64 + file.unlisted_damages;
    html! {
        @if all > 0 {
            details open[all < 4] {
                summary { (file.name) ": " (units::counted(all, "damaged range")) "; all other packets were analysed" }
                ul {
                    @for damage in &file.damages { li { "at byte " (damage.at_byte) ": " (damage.description) } }
                    @if file.unlisted_damages > 0 { li { "and " (file.unlisted_damages) " more" } }
                }
            }
        }
    }
}

fn capture_points(analysis: &Analysis) -> Markup {
    html! {
        @if analysis.capture_points.len() > 1 {
            p { (analysis.capture_points.len()) " capture points: "
                @for (n, point) in analysis.capture_points.iter().enumerate() {
                    @if n > 0 { ", " }
                    (point.name) " (" (units::counted(point.packets, "packet")) ")"
                } "."
            }
        }
    }
}

fn widths(analysis: &Analysis) -> String {
    let widths: Vec<String> = analysis
        .bins_ns
        .iter()
        .map(|ns| units::duration(*ns))
        .collect();
    widths.join(" and ")
}

/// Returns links to the other files in the directory.
pub(super) fn other_files(analysis: &Analysis) -> Markup {
    html! {
        h2 { "Raw data" }
        ul {
            li { a href="result.json" { "result.json" } ": all figures of this page" }
            li { a href="time_series.jsonl" { "time_series.jsonl" } ": data of the charts" }
            @for name in &analysis.other_files { li { a href={ "./" (name) } { (name) } } }
        }
    }
}
