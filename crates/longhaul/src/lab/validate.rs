// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scenario must keep beyond its grammar. Every problem is one line that names the place.

use super::{
    book::{Book, pairs},
    controls::Control,
    expression::{Bound, Expression},
    known::Known,
    paper, programs,
    scenario::{Direction, Flow, Link, LinkKind, Program, Scenario},
    sending::Pace,
    topology::{LINKS_MAX, Topology, Wire},
    verdict,
};
use std::{cell::RefCell, collections::HashSet};

type Checked = Result<(), String>;

/// Checks a whole scenario with all its cells.
pub(crate) fn book(book: &Book) -> Checked {
    within("repetitions", book.base.repetitions, 1, 1000)?;
    within("retakes", book.base.retakes, 0, 10)?;
    within("warmup", book.base.warmup, 0, 10)?;
    for cell in &book.cells {
        let named = |problem| format!("in the cell {:?}: {problem}", cell.name());
        scenario(&cell.scenario).map_err(named)?;
        scenario(&cell.short).map_err(named)?;
    }
    claims(book)
}

fn within(what: &str, value: u32, least: u32, most: u32) -> Checked {
    let good = (least..=most).contains(&value);
    ensure(good, || {
        format!("{what} is {value}, but must be {least} to {most}")
    })
}

fn ensure(good: bool, problem: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(problem()) }
}

fn scenario(scenario: &Scenario) -> Checked {
    let links = &scenario.links;
    ensure((1..=LINKS_MAX).contains(&links.len()), || {
        format!("there must be 1 to {LINKS_MAX} [[links]]")
    })?;
    distinct("links", links.iter().map(|link| &link.name))?;
    distinct("flows", scenario.flows.iter().map(|flow| &flow.name))?;
    let topology = Topology::of(scenario);
    links
        .iter()
        .zip(&topology.wires)
        .try_for_each(|(each, wire)| link(each, wire))?;
    topology
        .hosts
        .iter()
        .try_for_each(|host| name("host", host, 32))?;
    let known = |place: &str, host: &String| {
        let problem = || format!("{place}: no link reaches a host {host:?}");
        ensure(topology.hosts.contains(host), problem)
    };
    scenario
        .hosts
        .keys()
        .try_for_each(|host| known("hosts", host))?;
    for (relay, host, options) in scenario.relays() {
        let place = format!("relays.{relay}");
        name("relay", relay, 32)?;
        known(&place, host)?;
        // Where it is off, what varies may leave it without a way in.
        if options.when {
            programs::relay::check(host, options)
                .map_err(|problem| format!("{place}: {problem}"))?;
        }
    }
    for (host, decp) in &scenario.decp {
        let place = format!("decp.{host}");
        known(&place, host)?;
        programs::decp::check(decp).map_err(|problem| format!("{place}: {problem}"))?;
    }
    if let Some(text) = &scenario.congestion_control {
        control("congestion_control", text)?;
    }
    for (host, own) in &scenario.hosts {
        if let Some(text) = &own.congestion_control {
            control(&format!("hosts.{host}.congestion_control"), text)?;
        }
    }
    ensure(!scenario.flows.is_empty(), || {
        "there are no [[flows]]".to_owned()
    })?;
    ensure(scenario.flows.iter().any(|flow| flow.when), || {
        "no flow runs".to_owned()
    })?;
    scenario
        .flows
        .iter()
        .try_for_each(|each| flow(each, &topology))
}

fn distinct<'a>(place: &str, names: impl Iterator<Item = &'a String>) -> Checked {
    let mut seen = HashSet::new();
    for name in names {
        ensure(seen.insert(name), || {
            format!("two {place} are called {name:?}")
        })?;
    }
    Ok(())
}

/// Names become interface, namespace and file names.
fn name(what: &str, name: &str, longest: usize) -> Checked {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let good =
        (1..=longest).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-');
    ensure(good, || {
        format!("{what} {name:?}: a name is 1 to {longest} letters, digits, '-' and '_'")
    })
}

fn link(link: &Link, wire: &Wire) -> Checked {
    // IFNAMSIZ of linux/if.h, without its final NUL.
    name("link", &link.name, 15)?;
    let place = |problem: String| format!("link {:?}: {problem}", link.name);
    ensure(link.between[0] != link.between[1], || {
        place("it joins a host with itself".to_owned())
    })?;
    within("mtu", link.mtu, 1280, 9000).map_err(place)?;
    if let Some([left, right]) = link.addresses {
        let same =
            left.network() == right.network() && left.prefix == right.prefix && left != right;
        ensure(same, || {
            place(format!(
                "{left} and {right} are not two addresses of one subnet"
            ))
        })?;
    }
    ensure(!link.tap || link.kind == LinkKind::Emulated, || {
        place("only an emulated link has a tap".to_owned())
    })?;
    if let Some(segments) = link.gso_max_segs {
        within("gso_max_segs", segments, 1, 65_535).map_err(place)?;
    }
    match (link.kind, link.options.keys().next()) {
        (LinkKind::Veth, Some(key)) => Err(place(format!("kind \"veth\" has no option {key:?}"))),
        (LinkKind::Veth, None) => Ok(()),
        (LinkKind::Emulated, _) => programs::link::shapes(link, wire).map(drop).map_err(place),
    }
}

fn flow(flow: &Flow, topology: &Topology) -> Checked {
    let place = |problem: &str| format!("flow {:?}: {problem}", flow.name);
    name("flow", &flow.name, 32)?;
    for host in [&flow.from, &flow.to] {
        ensure(topology.hosts.contains(host), || {
            place(&format!("no link reaches a host {host:?}"))
        })?;
    }
    let joined = flow.from != flow.to && topology.path(&flow.from, &flow.to).is_some();
    ensure(joined, || {
        place(&format!(
            "no path leads from {:?} to another host {:?}",
            flow.from, flow.to
        ))
    })?;
    ways(flow, topology).map_err(|problem| place(&problem))?;
    within("parallel", flow.parallel, 1, 128).map_err(|problem| place(&problem))?;
    match flow.program {
        Program::Curl => curl(flow),
        Program::Iperf3 => ensure(flow.size.is_some() != flow.duration.is_some(), || {
            "iperf3 takes either size or duration".to_owned()
        }),
        Program::Ftp => ftp(flow),
        Program::Probe => probe(flow),
        Program::Copy | Program::Udt => Err(format!(
            "program {0:?} comes with the command longhaul {0}, which this version does not have",
            flow.program.name()
        )),
    }
    .and_then(|()| only_of_probe(flow))
    .and_then(|()| sender(flow))
    .map_err(|problem| place(&problem))
}

/// The relay that a flow is sent to is one that it reaches.
fn ways(flow: &Flow, topology: &Topology) -> Checked {
    let (via, proxy) = (flow.via.as_ref(), flow.proxy.as_ref());
    ensure(via.is_none() || proxy.is_none(), || {
        "via and proxy exclude each other".to_owned()
    })?;
    ensure(proxy.is_none() || flow.program.carries_a_file(), || {
        "proxy is a key of programs \"curl\" and \"ftp\"".to_owned()
    })?;
    let relayable = matches!(flow.program, Program::Curl | Program::Iperf3);
    ensure(via.is_none() || relayable, || {
        "via is a key of programs \"curl\" and \"iperf3\"".to_owned()
    })?;
    let opening = if flow.direction == Direction::Upload {
        &flow.from
    } else {
        &flow.to
    };
    let Some(at) = via.or(proxy.map(|proxy| &proxy.at)) else {
        return Ok(());
    };
    ensure(topology.address(opening, &at.host).is_some(), || {
        format!("no path leads from {opening:?} to a host {:?}", at.host)
    })
}

fn curl(flow: &Flow) -> Checked {
    ensure(flow.size.is_some_and(|size| size.get() > 0), || {
        "curl needs a size above 0".to_owned()
    })?;
    ensure(flow.duration.is_none(), || {
        "curl takes a size, not a duration".to_owned()
    })?;
    ensure(flow.direction == Direction::Download, || {
        "curl downloads; use iperf3 for uploads".to_owned()
    })?;
    ensure(flow.parallel == 1, || {
        "curl opens one connection; add flows for more".to_owned()
    })
}

fn ftp(flow: &Flow) -> Checked {
    let right = flow.size.is_some_and(|size| size.get() > 0)
        && flow.duration.is_none()
        && flow.parallel == 1;
    ensure(right, || {
        "ftp needs a size above 0, and has no duration and no parallel".to_owned()
    })?;
    let http = flow
        .proxy
        .as_ref()
        .is_some_and(|proxy| proxy.scheme == "http");
    ensure(!http || flow.direction == Direction::Download, || {
        "an HTTP proxy does not pass FTP uploads on; a SOCKS proxy does".to_owned()
    })?;
    ensure(!flow.active || flow.proxy.is_none(), || {
        "active: a server can't connect to a client behind a proxy".to_owned()
    })
}

/// What is said of the sender's socket is said of a program whose socket can be told.
fn sender(flow: &Flow) -> Checked {
    let told = flow.cc.is_some() || flow.pace.is_some() || flow.gap.is_some();
    let tellable = matches!(flow.program, Program::Curl | Program::Iperf3);
    ensure(!told || tellable, || {
        "cc, pace and gap are keys of programs \"curl\" and \"iperf3\"; others have their host's \
         congestion_control"
            .to_owned()
    })?;
    ensure(flow.gap.is_none() || flow.pace.is_none(), || {
        "pace and gap exclude each other".to_owned()
    })?;
    let gap = flow.gap.map_or(1_000, units::Time::as_nanos);
    ensure((100..=1_000_000_000).contains(&gap), || {
        "gap must be 100ns to 1s".to_owned()
    })?;
    if let Some(Pace::Rate(rate)) = flow.pace {
        ensure((8_000..=34_000_000_000).contains(&rate.bits()), || {
            format!("pace is {rate}, but must be 8kbit to 34gbit")
        })?;
    }
    ensure(
        flow.window.is_none() || flow.program == Program::Iperf3,
        || {
            "window is a key of program \"iperf3\"; set net.ipv4.tcp_rmem of the receiving host"
                .to_owned()
        },
    )?;
    let window = flow.window.map_or(4096, units::Bytes::get);
    ensure((2048..=1 << 30).contains(&window), || {
        "window must be 2KiB to 1GiB".to_owned()
    })?;
    ensure(!flow.active || flow.program == Program::Ftp, || {
        "active is a key of program \"ftp\"".to_owned()
    })
}

/// The congestion control of a host's routes: routes know names, and no pacing.
fn control(place: &str, text: &str) -> Checked {
    let control: Control = text
        .parse()
        .map_err(|problem| format!("{place}: {problem}"))?;
    ensure(!control.paced, || {
        format!("{place}: +pace is for flows: a route has no pacing")
    })
}

fn probe(flow: &Flow) -> Checked {
    ensure(flow.size.is_none() && flow.parallel == 1, || {
        "probe sends one stream of packets: it has no size and no parallel".to_owned()
    })?;
    programs::probe::timing(flow).map(drop)
}

fn only_of_probe(flow: &Flow) -> Checked {
    let given = flow.count.is_some()
        || flow.interval.is_some()
        || flow.length.is_some()
        || flow.segments != 1;
    ensure(flow.program == Program::Probe || !given, || {
        "count, interval, length and segments are keys of program \"probe\"".to_owned()
    })
}

/// Checks, derived metrics, the answer and the paper's figures speak of cells that exist.
fn claims(book: &Book) -> Checked {
    let known = Known::of(book);
    for (name, text) in &book.base.derived {
        let place = |problem: String| format!("derived.{name}: {problem}");
        let expression = Expression::parse(text).map_err(|error| place(error.to_string()))?;
        known.check_all(&expression).map_err(place)?;
    }
    for check in &book.base.check {
        let place = |problem: String| format!("check {:?}: {problem}", check.name);
        let expression =
            Expression::parse(&check.value).map_err(|error| place(error.to_string()))?;
        known.check_all(&expression).map_err(place)?;
        let subjects = match verdict::every(check, book) {
            None => vec![None],
            Some(all) => all.into_iter().map(Some).collect(),
        };
        ensure(!subjects.is_empty(), || {
            place("no cell is meant by every".to_owned())
        })?;
        let unprinted = RefCell::new(None);
        let mut compared = false;
        for subject in subjects {
            unprinted.take();
            let one = |name: &str, wanted: &[(String, String)]| {
                let index = one_cell(book, &verdict::beside(book, subject, wanted))?;
                let printed = verdict::is_printed(book, index, name);
                unprinted.replace(unprinted.take().or((!printed).then(|| name.to_owned())));
                Ok(1.0)
            };
            expression.value(&one).map_err(place)?;
            compared |= unprinted.borrow().is_none();
        }
        ensure(compared, || {
            let name = unprinted.take().unwrap_or_default();
            place(format!("no cell that is meant has a figure for {name}"))
        })?;
        let bound = Bound::parse(&check.want);
        ensure(bound.is_some(), || {
            place(format!(
                "want = {:?} is no bound such as \">= 6\"",
                check.want
            ))
        })?;
    }
    let answered = book
        .base
        .answer
        .as_ref()
        .map(|answer| known.check(&answer.metric));
    answered
        .transpose()
        .map_err(|problem| format!("answer: {problem}"))?;
    paper::check(book, one_cell).map_err(|problem| format!("paper: {problem}"))?;
    let answer = book
        .base
        .answer
        .iter()
        .flat_map(|answer| answer.baseline.iter().chain([&answer.cell]));
    answer.into_iter().try_for_each(|cell| {
        one_cell(book, &pairs(cell))
            .map(|_| ())
            .map_err(|problem| format!("answer: {problem}"))
    })
}

/// The only cell whose varied values match.
pub(crate) fn one_cell(book: &Book, wanted: &[(String, String)]) -> Result<usize, String> {
    let matching: Vec<usize> = (0..book.cells.len())
        .filter(|index| book.cells[*index].matches(wanted))
        .collect();
    match matching[..] {
        [only] => Ok(only),
        _ => {
            let text: Vec<_> = wanted.iter().map(|(k, v)| format!("{k}={v}")).collect();
            Err(format!(
                "{{{}}} matches {} cells instead of one",
                text.join(","),
                matching.len()
            ))
        }
    }
}
