// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated network as a drawing: hosts from left to right as the data flows, each link with
//! its rate, RTT and loss, and below it the TCP connections of each cell. A narrow screen gets the
//! same from top to bottom.

use crate::lab::{
    metric::{Metric, percent},
    result::{Cell, Testbed, TestbedHost, TestbedLink},
};
use maud::{Markup, html};

const HOST_PX: u32 = 104;
const LINK_PX: u32 = 152;
const LEGS_TOP_PX: u32 = 142;
const LEGS_ROW_PX: u32 = 44;

pub(super) fn section(testbed: &Testbed, cells: &[Cell]) -> Markup {
    html! {
        @if testbed.hosts.len() == testbed.links.len() + 1 {
            section {
                h2 { "The testbed" }
                figure.testbed {
                    (wide(testbed, &Connections::of(testbed, cells)))
                    (narrow(testbed))
                    figcaption { (caption(testbed)) }
                }
            }
        }
    }
}

/// The TCP connections of the cells that relay alike.
struct Connections {
    /// "two relays", or how many cells are alike.
    name: String,
    /// Hosts at which a connection ends and another begins, both ends of the path included.
    stops: Vec<usize>,
}

impl Connections {
    fn of(testbed: &Testbed, cells: &[Cell]) -> Vec<Self> {
        let mut kinds: indexmap::IndexMap<Vec<usize>, Vec<&Cell>> = indexmap::IndexMap::new();
        for cell in cells {
            kinds.entry(stops(testbed, cell)).or_default().push(cell);
        }
        let named = |(stops, cells): (Vec<usize>, Vec<&Cell>)| Self {
            name: match cells.as_slice() {
                [cell] => cell.name(),
                many => format!("{} cells", many.len()),
            },
            stops,
        };
        kinds.into_iter().map(named).collect()
    }
}

fn stops(testbed: &Testbed, cell: &Cell) -> Vec<usize> {
    let last = testbed.hosts.len() - 1;
    let relays = |n: usize| cell.relays.contains(&testbed.hosts[n].name);
    (0..=last)
        .filter(|n| *n == 0 || *n == last || relays(*n))
        .collect()
}

fn host_x(n: usize) -> u32 {
    n as u32 * (HOST_PX + LINK_PX)
}

fn middle_of_host(n: usize) -> u32 {
    host_x(n) + HOST_PX / 2
}

fn wide(testbed: &Testbed, connections: &[Connections]) -> Markup {
    let width = host_x(testbed.links.len()) + HOST_PX;
    let height = LEGS_TOP_PX + connections.len() as u32 * LEGS_ROW_PX;
    html! {
        svg.wide width=(width + 4) viewBox={ "-2 -2 " (width + 4) " " (height) } role="img" aria-label=(caption(testbed)) {
            @for (n, host) in testbed.hosts.iter().enumerate() { (host_box(host, n)) }
            @for (n, link) in testbed.links.iter().enumerate() {
                (wire(link, n, mark(testbed, n)))
            }
            @for (n, kind) in connections.iter().enumerate() {
                (legs(kind, LEGS_TOP_PX + n as u32 * LEGS_ROW_PX))
            }
        }
    }
}

fn host_box(host: &TestbedHost, n: usize) -> Markup {
    html! {
        rect.host x=(host_x(n)) y="52" width=(HOST_PX) height="52" rx="6" {}
        @match &host.note {
            Some(note) => {
                text.name x=(middle_of_host(n)) y="74" { (host.name) }
                text.small x=(middle_of_host(n)) y="93" { (note) }
            }
            None => { text.name x=(middle_of_host(n)) y="83" { (host.name) } }
        }
    }
}

fn wire(link: &TestbedLink, n: usize, mark: Option<&str>) -> Markup {
    let (from, to) = (host_x(n) + HOST_PX, host_x(n + 1));
    let middle = from.midpoint(to);
    html! {
        line.wire.bottleneck[mark.is_some()] x1=(from) y1="78" x2=(to - 9) y2="78" {}
        path.arrow.bottleneck[mark.is_some()] d={ "M" (to) " 78l-10 -5v10z" } {}
        text.name x=(middle) y="28" { (link.name) }
        text.small x=(middle) y="48" { (rate(link)) }
        text.small x=(middle) y="66" { "RTT " (rtt(link)) }
        text.small x=(middle) y="98" { (loss(link)) }
        @if let Some(mark) = mark { text.mark x=(middle) y="117" { "▲ " (mark) } }
    }
}

/// One line a TCP connection, from the host where it begins to the host where it ends.
fn legs(kind: &Connections, y: u32) -> Markup {
    html! {
        text.small.left x="0" y=(y + 6) { (kind.name) ": " (tcp_connections(kind.stops.len() - 1)) }
        @for pair in kind.stops.windows(2) {
            line.leg x1=(middle_of_host(pair[0]) + 7) x2=(middle_of_host(pair[1]) - 7)
                y1=(y + 22) y2=(y + 22) {}
        }
        @for stop in &kind.stops { circle.leg cx=(middle_of_host(*stop)) cy=(y + 22) r="5" {} }
    }
}

fn tcp_connections(n: usize) -> String {
    match n {
        1 => "one TCP connection".to_owned(),
        n => format!("{n} TCP connections"),
    }
}

/// From top to bottom, as a list: it reads well at any width and at any text size.
fn narrow(testbed: &Testbed) -> Markup {
    html! {
        ol.narrow {
            @for (n, host) in testbed.hosts.iter().enumerate() {
                li.host { strong { (host.name) } @if let Some(note) = &host.note { " " small { (note) } } }
                @if let Some(link) = testbed.links.get(n) {
                    li.link.bottleneck[mark(testbed, n).is_some()] {
                        "↓ " (link.name) ": " (rate(link)) ", RTT " (rtt(link)) ", " (loss(link))
                        @if let Some(mark) = mark(testbed, n) { strong { " – " (mark) } }
                    }
                }
            }
        }
    }
}

fn caption(testbed: &Testbed) -> String {
    let rtt_us: f64 = testbed.links.iter().map(|link| link.rtt_us).sum();
    let hosts: Vec<&str> = testbed
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    format!(
        "Data flows {}; RTT {} in all.",
        hosts.join(" → "),
        Metric::of("x_us").print(rtt_us)
    )
}

/// What makes link `n` the one to watch: it alone is the slowest, or of equally slow ones it needs
/// the largest window.
fn mark(testbed: &Testbed, n: usize) -> Option<&'static str> {
    let (slowest, rate) = testbed.bottleneck()?;
    let as_slow = testbed
        .links
        .iter()
        .filter(|link| link.rate_bps == Some(rate))
        .count();
    (slowest == n).then_some(if as_slow == 1 {
        "bottleneck"
    } else {
        "largest BDP"
    })
}

fn rate(link: &TestbedLink) -> String {
    link.rate_bps.map_or("no rate limit".to_owned(), |rate| {
        Metric::of("rate_bps").print(rate)
    })
}

fn rtt(link: &TestbedLink) -> String {
    Metric::of("rtt_us").print(link.rtt_us)
}

fn loss(link: &TestbedLink) -> String {
    match link.loss > 0.0 {
        true => format!("loss {}", percent(link.loss)),
        false => "no loss".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_that_is_slower_than_all_others_is_called_bottleneck() {
        let link = |rate_bps, rtt_us| TestbedLink {
            rate_bps,
            rtt_us,
            ..TestbedLink::default()
        };
        let marks = |links: &[TestbedLink]| {
            let testbed = Testbed {
                links: links.to_vec(),
                ..Testbed::default()
            };
            [mark(&testbed, 0), mark(&testbed, 1)]
        };
        let (slow, fast) = (link(Some(1e9), 26e3), link(Some(1e10), 2e2));
        assert_eq!(marks(&[fast.clone(), slow]), [None, Some("bottleneck")]);
        assert_eq!(
            marks(&[link(Some(1e10), 26e3), fast]),
            [Some("largest BDP"), None]
        );
        assert_eq!(marks(&[link(None, 1.0), link(None, 1.0)]), [None, None]);
    }

    #[test]
    fn connections_end_where_a_cell_relays() {
        let host = |name: &str| TestbedHost {
            name: name.to_owned(),
            note: None,
        };
        let testbed = Testbed {
            hosts: ["server", "relay2", "relay1", "client"].map(host).to_vec(),
            links: vec![TestbedLink::default(); 3],
            beside: Vec::new(),
        };
        let direct = Cell::default();
        let relayed = Cell {
            relays: vec!["relay1".to_owned()],
            ..Cell::default()
        };
        let kinds = Connections::of(&testbed, &[direct.clone(), relayed, direct]);
        let stops: Vec<&[usize]> = kinds.iter().map(|kind| kind.stops.as_slice()).collect();
        assert_eq!(stops, [&[0, 3][..], &[0, 2, 3]]);
        assert_eq!(kinds[0].name, "2 cells");
    }
}
