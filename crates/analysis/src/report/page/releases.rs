// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ACKs released: a row for each class of AckDiff, shaded by how its bursts were.

use super::quantity;
use crate::flow::record::{ReleasedBy, Releases};
use maud::{Markup, html};

/// Classes of bursts, as [`ReleasedBy::bursts`] has them.
const BURSTS: [&str; 9] = ["0", "1", "2", "3–4", "5–8", "9–16", "17–32", "33–64", "65–"];
/// Steps of the heat map's colours.
const SHADES: f64 = 9.0;

/// The figure, or nothing without ACKs.
pub(super) fn figure(releases: &Releases) -> Markup {
    html! {
        @if !releases.by_ack_diff.is_empty() {
            figure.chart.wide {
                figcaption { h3 { (title(releases)) } p { (caption(releases)) } }
                div.scroll tabindex="0" role="region" aria-label="Bursts after ACKs" {
                    table.heat { (heading()) tbody {
                        @for by in &releases.by_ack_diff { (row(by)) }
                    } }
                }
            }
        }
    }
}

fn title(releases: &Releases) -> String {
    let share = releases.bytes as f64 / releases.of_bytes.max(1) as f64;
    format!("ACKs released {} of the data", percent(share))
}

fn caption(releases: &Releases) -> String {
    format!(
        "Sent within {} of an ACK, or of the packet before in a burst that did; up to {} would be by chance. \
         Below, for ACKs by the segments that they acknowledged, the share that released so many segments.",
        quantity::span(releases.within_ns),
        percent(releases.by_chance)
    )
}

fn percent(share: f64) -> String {
    longhaul_report::metric::percent(share)
}

fn heading() -> Markup {
    html! {
        thead { tr {
            th scope="col" { "Acknowledged" } th scope="col" { "ACKs" }
            @for burst in BURSTS { th scope="col" { (burst) } }
        } }
    }
}

fn row(by: &ReleasedBy) -> Markup {
    let share = |count: u64| count as f64 / by.acks.max(1) as f64;
    html! {
        tr {
            th scope="row" { (segments(by)) }
            th.number { (quantity::count(by.acks)) }
            @for &count in &by.bursts { @match count {
                0 => { td { "" } }
                _ => { td class=(shade(share(count))) { (percent(share(count))) } }
            } }
        }
    }
}

fn shade(share: f64) -> String {
    format!("heat-{}", (share * SHADES).floor().clamp(0.0, SHADES - 1.0))
}

/// "3–4", and what no class of AckDiff but 0 is: an ACK that repeats.
fn segments(by: &ReleasedBy) -> String {
    match by.segments {
        (0, _) => "nothing new".to_owned(),
        (least, None) => format!("{least} or more"),
        (least, Some(most)) if least == most => quantity::of(least, "segment"),
        (least, Some(most)) => format!("{least}–{most} segments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_acks_released() {
        let releases = Releases {
            within_ns: 100_000,
            bytes: 970,
            of_bytes: 1_000,
            by_chance: 0.1,
            by_ack_diff: vec![ReleasedBy {
                segments: (3, Some(4)),
                acks: 8,
                bursts: [2, 0, 0, 6, 0, 0, 0, 0, 0],
            }],
        };
        let page = figure(&releases).into_string();
        for said in [
            "ACKs released 97 % of the data",
            "10 %",
            "3–4 segments",
            "heat-6\">75 %",
            "heat-2\">25 %",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
        assert_eq!(figure(&Releases::default()).into_string(), "");
    }
}
