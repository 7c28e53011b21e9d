// SPDX-License-Identifier: MIT OR Apache-2.0
//! Topology diagram of the emulated network: hosts from left to right in the direction of the data, each link with its
//! rate, RTT and loss. Paths of other flows are below, then the TCP connections of each cell. A narrow screen shows a
//! list from top to bottom instead.

use super::topology_layout::{self, HostPosition, LinkPosition};
use crate::result::{Cell, Testbed, TestbedHost, TestbedLink};
use longhaul_report::metric::{Metric, format_percent};
use maud::{Markup, html};
use std::collections::BTreeSet;

const HOST_PX: u32 = 104;
const HOST_HEIGHT_PX: u32 = 52;
const LINK_PX: u32 = 152;
/// Height above the first row for the labels of its links.
const TOP_MARGIN_PX: u32 = 52;
const ROW_PX: u32 = 122;
/// Height below the last row's links.
const BOTTOM_MARGIN_PX: u32 = 38;
const CONNECTION_ROW_PX: u32 = 44;
/// Maximum number of characters of a note in a host's box.
const NOTE_MAX: usize = 15;

pub(super) fn section(testbed: &Testbed, cells: &[Cell]) -> Markup {
    html! {
        @if testbed.hosts.len() == testbed.links.len() + 1 {
            section {
                h2 { "Testbed" }
                figure.testbed {
                    (wide_diagram(testbed, &Connections::group(testbed, cells)))
                    (narrow_list(testbed))
                    figcaption {
                        p { (caption(testbed)) }
                        (note_paragraphs(testbed))
                    }
                }
            }
        }
    }
}

/// TCP connections of the cells with the same relays.
struct Connections {
    /// Name: "two relays", or the number of cells.
    name: String,
    /// Indices of the hosts at which connections begin or end, both ends of the path included.
    endpoints: Vec<usize>,
}

impl Connections {
    fn group(testbed: &Testbed, cells: &[Cell]) -> Vec<Self> {
        let mut groups: indexmap::IndexMap<Vec<usize>, Vec<&Cell>> = indexmap::IndexMap::new();
        for cell in cells {
            groups
                .entry(connection_endpoints(testbed, cell))
                .or_default()
                .push(cell);
        }
        let named = |(stops, cells): (Vec<usize>, Vec<&Cell>)| Self {
            name: match cells.as_slice() {
                [cell] => cell.name(),
                many => format!("{} cells", many.len()),
            },
            endpoints: stops,
        };
        groups.into_iter().map(named).collect()
    }
}

fn connection_endpoints(testbed: &Testbed, cell: &Cell) -> Vec<usize> {
    let last = testbed.hosts.len() - 1;
    let relays = |n: usize| cell.relays.contains(&testbed.hosts[n].name);
    (0..=last)
        .filter(|n| *n == 0 || *n == last || relays(*n))
        .collect()
}

fn host_x(column: usize) -> u32 {
    column as u32 * (HOST_PX + LINK_PX)
}

fn middle_of_host(column: usize) -> u32 {
    host_x(column) + HOST_PX / 2
}

/// Returns the top of a row's boxes, pixels.
fn row_y(row: usize) -> u32 {
    TOP_MARGIN_PX + row as u32 * ROW_PX
}

fn wide_diagram(testbed: &Testbed, connections: &[Connections]) -> Markup {
    let layout = topology_layout::arrange(testbed);
    let columns = layout
        .hosts
        .iter()
        .map(|position| position.column)
        .max()
        .unwrap_or(0);
    let rows = layout
        .hosts
        .iter()
        .map(|position| position.row)
        .max()
        .unwrap_or(0);
    let width = host_x(columns) + HOST_PX;
    let connections_top = row_y(rows) + HOST_HEIGHT_PX + BOTTOM_MARGIN_PX;
    let height = connections_top + connections.len() as u32 * CONNECTION_ROW_PX;
    let first = layout.hosts.first().map_or(0, |position| position.column);
    html! {
        svg.wide width=(width + 4) viewBox={ "-2 -2 " (width + 4) " " (height) } role="img" aria-label=(caption(testbed)) {
            @for position in &layout.links { (draw_link(position, link_mark(testbed, position.link))) }
            @for position in &layout.hosts { (host_box(position)) }
            @for (n, kind) in connections.iter().enumerate() {
                (draw_connections(kind, first, connections_top + n as u32 * CONNECTION_ROW_PX))
            }
        }
    }
}

fn host_box(position: &HostPosition<'_>) -> Markup {
    let (x, y, host) = (host_x(position.column), row_y(position.row), position.host);
    let middle = middle_of_host(position.column);
    html! {
        rect.host x=(x) y=(y) width=(HOST_PX) height=(HOST_HEIGHT_PX) rx="6" {}
        @match host.note.as_deref().filter(|note| note.chars().count() <= NOTE_MAX) {
            Some(note) => {
                text.name x=(middle) y=(y + 22) { (host.name) }
                text.small x=(middle) y=(y + 41) { (note) }
            }
            None => { text.name x=(middle) y=(y + 31) { (host.name) } }
        }
    }
}

fn draw_link(position: &LinkPosition<'_>, marker: Option<&str>) -> Markup {
    let [(left, left_row), (right, right_row)] = position.ends;
    let (from, to) = (host_x(left) + HOST_PX, host_x(right));
    let (from_y, to_y) = (
        row_y(left_row) + HOST_HEIGHT_PX / 2,
        row_y(right_row) + HOST_HEIGHT_PX / 2,
    );
    // The labels are beside the end that is not in the first row.
    let label_y = row_y(left_row.max(right_row)) + HOST_HEIGHT_PX / 2;
    let middle = from.midpoint(to);
    html! {
        line.link.bottleneck[marker.is_some()] x1=(from) y1=(from_y) x2=(to - 9) y2=(to_y) {}
        path.arrow.bottleneck[marker.is_some()] d={ "M" (to) " " (to_y) "l-10 -5v10z" } {}
        text.name x=(middle) y=(label_y - 50) { (position.link.name) }
        text.small x=(middle) y=(label_y - 30) { (rate(position.link)) }
        text.small x=(middle) y=(label_y - 12) { (rtt(position.link)) }
        text.small x=(middle) y=(label_y + 20) { (loss(position.link)) }
        @if let Some(marker) = marker { text.mark x=(middle) y=(label_y + 39) { "▲ " (marker) } }
    }
}

/// Draws a line for each TCP connection, from the host where it begins to the host where it ends. The first path
/// begins in the column `first`.
fn draw_connections(kind: &Connections, first: usize, y: u32) -> Markup {
    let middle = |stop: usize| middle_of_host(first + stop);
    html! {
        text.small.left x="0" y=(y + 6) { (kind.name) ": " (connection_count_text(kind.endpoints.len() - 1)) }
        @for pair in kind.endpoints.windows(2) {
            line.segment x1=(middle(pair[0]) + 7) x2=(middle(pair[1]) - 7) y1=(y + 22) y2=(y + 22) {}
        }
        @for stop in &kind.endpoints { circle.segment cx=(middle(*stop)) cy=(y + 22) r="5" {} }
    }
}

fn connection_count_text(n: usize) -> String {
    match n {
        1 => "1 TCP connection, end to end".to_owned(),
        n => format!("{n} TCP connections"),
    }
}

/// Returns a list for each path, from top to bottom, which is readable at any width and text size.
fn narrow_list(testbed: &Testbed) -> Markup {
    html! {
        @for path in std::iter::once(testbed).chain(&testbed.other_paths) {
            ol.narrow {
                @for (n, host) in path.hosts.iter().enumerate() {
                    li.host { strong { (host.name) } @if let Some(note) = &host.note { " " small { (note) } } }
                    @if let Some(link) = path.links.get(n) {
                        li.link.bottleneck[link_mark(testbed, link).is_some()] {
                            "↓ " (link.name) ": " (rate(link)) ", " (rtt(link)) ", " (loss(link))
                            @if let Some(marker) = link_mark(testbed, link) { strong { " – " (marker) } }
                        }
                    }
                }
            }
        }
    }
}

fn caption(testbed: &Testbed) -> String {
    let all = |of: fn(&TestbedLink) -> f64| testbed.links.iter().map(of).sum::<f64>();
    let least = all(|link| link.rtt_us);
    let most = all(|link| link.rtt_us_max.unwrap_or(link.rtt_us));
    let hosts: Vec<&str> = testbed
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    format!(
        "Data path: {}; total RTT {}.",
        hosts.join(" → "),
        range_text("x_us", least, most)
    )
}

/// Returns the notes that are too long for the hosts' boxes.
fn note_paragraphs(testbed: &Testbed) -> Markup {
    let hosts = std::iter::once(testbed)
        .chain(&testbed.other_paths)
        .flat_map(|path| &path.hosts);
    let long = |host: &&TestbedHost| {
        host.note
            .as_ref()
            .is_some_and(|note| note.chars().count() > NOTE_MAX)
    };
    let long_notes: BTreeSet<(&str, &str)> = hosts
        .filter(long)
        .filter_map(|host| Some((host.name.as_str(), host.note.as_deref()?)))
        .collect();
    html! { @for (name, note) in long_notes { p { (name) ": " (note) "." } } }
}

/// Returns the mark of a link: "bottleneck" for the single slowest link of the first path. If several links are
/// equally slow, the one that needs the largest window has "largest BDP".
fn link_mark(testbed: &Testbed, link: &TestbedLink) -> Option<&'static str> {
    let (slowest, rate) = testbed.bottleneck()?;
    let as_slow = testbed
        .links
        .iter()
        .filter(|link| link.rate_bps == Some(rate))
        .count();
    (testbed.links.get(slowest)?.name == link.name).then_some(match as_slow {
        1 => "bottleneck",
        _ => "largest BDP",
    })
}

fn rate(link: &TestbedLink) -> String {
    link.rate_bps.map_or("no rate limit".to_owned(), |rate| {
        range_text("rate_bps", rate, link.rate_bps_max.unwrap_or(rate))
    })
}

fn rtt(link: &TestbedLink) -> String {
    let most = link.rtt_us_max.unwrap_or(link.rtt_us);
    if most > 0.0 {
        format!("RTT {}", range_text("rtt_us", link.rtt_us, most))
    } else {
        "no delay".to_owned()
    }
}

fn loss(link: &TestbedLink) -> String {
    match (link.loss, link.loss_max) {
        (least, Some(most)) => format!("loss {} – {}", format_percent(least), format_percent(most)),
        (0.0, None) => "no loss".to_owned(),
        (loss, None) => format!("loss {}", format_percent(loss)),
    }
}

/// Formats a range: "2 ms – 20 ms", or a single value.
fn range_text(metric: &str, least: f64, most: f64) -> String {
    let print = |value| Metric::of(metric).format(value);
    if least < most {
        format!("{} – {}", print(least), print(most))
    } else {
        print(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_only_the_single_slowest_link_as_bottleneck() {
        let named = |name: &str, link: &TestbedLink| TestbedLink {
            name: name.to_owned(),
            ..link.clone()
        };
        let link = |rate_bps, rtt_us| TestbedLink {
            rate_bps,
            rtt_us,
            ..TestbedLink::default()
        };
        let markers = |links: &[TestbedLink]| {
            let testbed = Testbed {
                links: vec![named("a", &links[0]), named("b", &links[1])],
                ..Testbed::default()
            };
            [0, 1].map(|n| link_mark(&testbed, &testbed.links[n]))
        };
        let (slow, fast) = (link(Some(1e9), 26e3), link(Some(1e10), 2e2));
        assert_eq!(markers(&[fast.clone(), slow]), [None, Some("bottleneck")]);
        assert_eq!(
            markers(&[link(Some(1e10), 26e3), fast]),
            [Some("largest BDP"), None]
        );
        assert_eq!(markers(&[link(None, 1.0), link(None, 1.0)]), [None, None]);
    }

    #[test]
    fn connections_end_at_relays() {
        let host = |name: &str| TestbedHost {
            name: name.to_owned(),
            note: None,
        };
        let testbed = Testbed {
            hosts: ["server", "relay2", "relay1", "client"].map(host).to_vec(),
            links: vec![TestbedLink::default(); 3],
            other_paths: Vec::new(),
        };
        let direct = Cell::default();
        let relayed = Cell {
            relays: vec!["relay1".to_owned()],
            ..Cell::default()
        };
        let kinds = Connections::group(&testbed, &[direct.clone(), relayed, direct]);
        let stops: Vec<&[usize]> = kinds.iter().map(|kind| kind.endpoints.as_slice()).collect();
        assert_eq!(stops, [&[0, 3][..], &[0, 2, 3]]);
        assert_eq!(kinds[0].name, "2 cells");
    }
}
