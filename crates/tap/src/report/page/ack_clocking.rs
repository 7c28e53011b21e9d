// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of ACK clocking: a row for each class of AckDiff, shaded by the length of the bursts after its ACKs.

use super::units;
use longhaul_flow::record::{AckClocking, AckDiffClass};
use longhaul_report::{
    chart::caption,
    metric::format_percent,
    table::{Table, heat_class},
};
use maud::{Markup, html};

const TABLE: Table<'_> = Table {
    label: "Bursts after ACKs",
    class: "heat",
    caption: "",
};
/// Column titles. After the first two come the classes of bursts, in segments, in the order of
/// [`AckDiffClass::bursts`].
const COLUMNS: [&str; 11] = [
    "Acknowledged",
    "ACKs",
    "0",
    "1",
    "2",
    "3–4",
    "5–8",
    "9–16",
    "17–32",
    "33–64",
    "65–",
];

/// Returns the figure, or nothing without ACKs.
pub(super) fn figure_of(clocking: &AckClocking) -> Markup {
    html! {
        @if !clocking.by_ack_diff.is_empty() {
            figure.chart.wide {
                (caption(&title(clocking), &caption_text(clocking)))
                (TABLE.render(COLUMNS, clocking.by_ack_diff.iter().map(row)))
            }
        }
    }
}

fn title(clocking: &AckClocking) -> String {
    let share = clocking.clocked_bytes as f64 / clocking.sent_bytes.max(1) as f64;
    format!(
        "ACK clocking: {} of the data follow an ACK",
        format_percent(share)
    )
}

fn caption_text(clocking: &AckClocking) -> String {
    format!(
        "Data sent within {} of an ACK, or of the packet before in such a burst; up to {} by chance. \
         A row has the ACKs for so many segments, and a column the share of them before a burst of so many segments.",
        units::duration(clocking.burst_gap_ns),
        format_percent(clocking.chance_share)
    )
}

fn row(class: &AckDiffClass) -> Markup {
    let share = |count: u64| count as f64 / class.acks.max(1) as f64;
    html! {
        tr {
            th scope="row" { (class_label(class)) }
            th.number { (units::count(class.acks)) }
            @for &count in &class.bursts { @match count {
                0 => { td { "" } }
                _ => { td class=(heat_class(share(count))) { (format_percent(share(count))) } }
            } }
        }
    }
}

/// Formats a class of AckDiff: "3–4 segments", or "none (duplicate)" for duplicate ACKs.
fn class_label(class: &AckDiffClass) -> String {
    match class.segments {
        (0, _) => "none (duplicate)".to_owned(),
        (least, None) => format!("{least} or more"),
        (least, Some(most)) if least == most => units::counted(least, "segment"),
        (least, Some(most)) => format!("{least}–{most} segments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_share_of_bursts_per_class() {
        let clocking = AckClocking {
            burst_gap_ns: 100_000,
            clocked_bytes: 970,
            sent_bytes: 1_000,
            chance_share: 0.1,
            by_ack_diff: vec![AckDiffClass {
                segments: (3, Some(4)),
                acks: 8,
                bursts: [2, 0, 0, 6, 0, 0, 0, 0, 0],
            }],
        };
        let page = figure_of(&clocking).into_string();
        for expected in [
            "ACK clocking: 97 % of the data",
            "10 %",
            "3–4 segments",
            "heat-6\">75 %",
            "heat-2\">25 %",
        ] {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert_eq!(figure_of(&AckClocking::default()).into_string(), "");
    }
}
