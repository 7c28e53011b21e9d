// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scenario must keep beyond its grammar. Every problem is one line that names the place.

use crate::{
    book::{Book, pairs},
    known::{Known, unaided},
    listening::Listeners,
    network::{Topology, Wire, link, topology::LINKS_MAX},
    paper,
    scenario::{
        AnswerPlan, CheckPlan, Control, Decp, Direction, Flow, Host, Link, LinkKind, Pace, Program,
        Relay, Scenario, Setting,
        expression::{Bound, Expression},
        fault::{Checked, Fault, at, each, ensure},
        relay,
    },
    testbed::programs,
    verdict,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
};
use toml::Table;

/// Checks what all cells have in common, once each of them is checked.
pub(crate) fn book(book: &Book) -> Checked {
    let (repetitions, warmup) = (book.base.repetitions, book.base.warmup);
    at("repetitions", within("repetitions", repetitions, 1, 1000))?;
    at("retakes", within("retakes", book.base.retakes, 0, 10))?;
    at("warmup", within("warmup", warmup, 0, 10))?;
    new_names(book)?;
    claims(book)
}

/// Measures, formulas and checks have names of their own: a formula called as a measured figure would stand in its
/// place.
fn new_names(book: &Book) -> Checked {
    let cells = book.cells.iter();
    let mut taken: HashSet<String> = cells.flat_map(|cell| unaided(&cell.scenario)).collect();
    let mut new = |name: &String| {
        ensure(taken.insert(name.clone()), || {
            format!("there is a metric {name:?} already")
        })
    };
    let measures = each(&book.base.measure, |plan| at("name", new(&plan.name)));
    at("measure", measures)?;
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut derived = book.base.derived.keys();
    let derived = derived.try_for_each(|name| {
        let word = ensure(name.chars().all(clean), || {
            format!("{name:?}: a metric's name is letters, digits and '_'")
        });
        at(name, word.and_then(|()| new(name)))
    });
    at("derived", derived)?;
    let checks = book.base.check.iter().map(|plan| &plan.name);
    at("check", distinct("checks", checks))
}

fn within(what: &str, value: u32, least: u32, most: u32) -> Checked {
    let good = (least..=most).contains(&value);
    ensure(good, || {
        format!("{what} is {value}, but must be {least} to {most}")
    })
}

/// Checks the scenario of one cell.
pub(crate) fn scenario(scenario: &Scenario) -> Checked {
    let links = &scenario.links;
    let possible = ensure((1..=LINKS_MAX).contains(&links.len()), || {
        format!("there must be 1 to {LINKS_MAX} [[links]]")
    });
    at("links", possible)?;
    at(
        "links",
        distinct("links", links.iter().map(|link| &link.name)),
    )?;
    let flows = scenario.flows.iter().map(|flow| &flow.name);
    at("flows", distinct("flows", flows))?;
    let topology = Topology::of(scenario);
    let wires = links.iter().zip(&topology.wires);
    at("links", each(wires, |(one, wire)| link(one, wire)))?;
    at("links", apart(links, &topology))?;
    at(
        "limit",
        ensure(
            scenario.limit > longhaul_units::Time::ZERO,
            || "limit must be above 0",
        ),
    )?;
    at("sysctl", settings(&scenario.sysctl))?;
    if let Some(text) = &scenario.congestion_control {
        at("congestion_control", control("congestion_control", text))?;
    }
    let mut hosts = scenario.hosts.iter();
    at(
        "hosts",
        hosts.try_for_each(|(name, own)| at(name, host(name, own, &topology))),
    )?;
    let mut listeners = Listeners::of_flows(scenario, &topology);
    let mut relays = scenario.relays();
    let relays = relays.try_for_each(|(name, host, own)| {
        at(name, relay(name, host, own, &topology, &mut listeners))
    });
    at("relays", relays)?;
    let mut decps = scenario.decp.iter();
    at(
        "decp",
        decps.try_for_each(|(host, own)| at(host, decp(host, own, &topology))),
    )?;
    at("flows", some_run(&scenario.flows))?;
    at("flows", each(&scenario.flows, |one| flow(one, &topology)))?;
    at("flows", each(&scenario.flows, |one| listeners.serve(one)))?;
    at(
        "flows",
        each(&scenario.flows, |one| {
            at("length", fits(one, scenario, &topology))
        }),
    )?;
    at(
        "flows",
        each(&scenario.flows, |one| at("cc", by_routes(one, scenario))),
    )
}

/// Subnets that overlap would leave routes to chance.
fn apart(links: &[Link], topology: &Topology) -> Checked {
    let networks: Vec<_> = topology.wires.iter().map(|wire| wire.ends[0].1).collect();
    each(0..links.len(), |new| {
        let met = (0..new).find(|old| networks[new].overlaps(networks[*old]));
        met.map_or(Ok(()), |old| {
            let [new, old] =
                [new, old].map(|at| format!("{:?} ({})", links[at].name, networks[at]));
            at(
                "addresses",
                Err(format!("the subnets of links {old} and {new} overlap")),
            )
        })
    })
}

fn distinct<'a>(place: &str, names: impl Iterator<Item = &'a String>) -> Checked {
    let mut seen = HashSet::new();
    each(names, |name| {
        let new = ensure(seen.insert(name), || {
            format!("two {place} are called {name:?}")
        });
        at("name", new)
    })
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

/// A link reaches `host`, which `place` speaks of.
fn known(place: &str, host: &String, topology: &Topology) -> Checked {
    ensure(topology.hosts.contains(host), || {
        format!("{place}: no link reaches a host {host:?}")
    })
}

fn host(name: &String, own: &Host, topology: &Topology) -> Checked {
    known("hosts", name, topology)?;
    at("sysctl", settings(&own.sysctl))?;
    let Some(text) = &own.congestion_control else {
        return Ok(());
    };
    let place = format!("hosts.{name}.congestion_control");
    at("congestion_control", control(&place, text))
}

/// A host is a network namespace: other settings are the machine's, and would stay.
fn settings(all: &BTreeMap<String, Setting>) -> Checked {
    all.keys().try_for_each(|name| {
        let own = name.starts_with("net.") || name.starts_with("net/");
        at(
            name,
            ensure(own, || {
                format!("{name:?} is no setting of a host: those begin with net.")
            }),
        )
    })
}

fn relay(
    own: &String,
    host: &String,
    relay: &Relay,
    topology: &Topology,
    listeners: &mut Listeners<'_>,
) -> Checked {
    let place = format!("relays.{own}");
    name("relay", own, 32)?;
    at("host", known(&place, host, topology))?;
    // Where it is off, what varies may leave it without a way in.
    if !relay.when {
        return Ok(());
    }
    legs(relay).map_err(|fault| fault.of(&place))?;
    let checked = programs::relay::check(host, relay).or_else(|problem| {
        match problem.starts_with("config: ") {
            true => at("config", Err(problem)),
            false => Err(Fault::of_option(&relay.options, problem)),
        }
    });
    let own_listeners = checked.map_err(|fault| fault.of(&place))?;
    listeners
        .add_relay(own, host, relay, own_listeners)
        .map_err(|fault| fault.of(place))
}

/// The congestion controls of a relay's legs are names, as a host's is.
fn legs(relay: &Relay) -> Checked {
    relay::each_of_legs(relay, control)
}

fn decp(host: &String, decp: &Decp, topology: &Topology) -> Checked {
    let place = format!("decp.{host}");
    known(&place, host, topology)?;
    programs::longhaul::check_decp(decp)
        .map_err(|problem| Fault::of_option(&decp.options, problem).of(place))
}

fn link(link: &Link, wire: &Wire) -> Checked {
    // IFNAMSIZ of linux/if.h, without its final NUL.
    at("name", name("link", &link.name, 15))?;
    let reserved = ["lo", "all", "default"].contains(&link.name.as_str());
    let free = ensure(!reserved, || {
        format!("link {:?}: no interface may have that name", link.name)
    });
    at("name", free)?;
    at(
        "between",
        each(&link.between, |host| name("host", host, 32)),
    )?;
    made_of(link, wire).map_err(|fault| fault.of(format!("link {:?}", link.name)))
}

fn made_of(link: &Link, wire: &Wire) -> Checked {
    let apart = ensure(
        link.between[0] != link.between[1],
        || "it joins a host with itself",
    );
    at("between", apart)?;
    at("mtu", within("mtu", link.mtu, 1280, 9000))?;
    at("addresses", one_subnet(link))?;
    let recorded = ensure(
        !link.tap || link.kind == LinkKind::Emulated,
        || "only an emulated link has a tap",
    );
    at("tap", recorded)?;
    if let Some(segments) = link.gso_max_segs {
        at("gso_max_segs", within("gso_max_segs", segments, 1, 65_535))?;
    }
    match (link.kind, link.options.keys().next()) {
        (LinkKind::Veth, Some(key)) => {
            let problem = format!("kind \"veth\" has no option {key:?}");
            at(key, Err(problem))
        }
        (LinkKind::Veth, None) => Ok(()),
        (LinkKind::Emulated, _) => link::shapes(link, wire)
            .map(drop)
            .map_err(|problem| Fault::of_option(&link.options, problem)),
    }
}

fn one_subnet(link: &Link) -> Checked {
    let Some([left, right]) = link.addresses else {
        return Ok(());
    };
    let same = left.network() == right.network() && left.prefix == right.prefix && left != right;
    ensure(same, || {
        format!("{left} and {right} are not two addresses of one subnet")
    })?;
    each([left, right], |address| {
        ensure(address.is_of_a_host(), || {
            format!("{address} is no address that a host may have")
        })
    })
}

fn some_run(flows: &[Flow]) -> Checked {
    ensure(!flows.is_empty(), || "there are no [[flows]]")?;
    ensure(flows.iter().any(|flow| flow.when), || "no flow runs")
}

fn flow(flow: &Flow, topology: &Topology) -> Checked {
    at("name", name("flow", &flow.name, 32))?;
    possible(flow, topology).map_err(|fault| fault.of(format!("flow {:?}", flow.name)))
}

fn possible(flow: &Flow, topology: &Topology) -> Checked {
    ends(flow, topology)?;
    ways(flow, topology)?;
    at("parallel", within("parallel", flow.parallel, 1, 128))?;
    match flow.program {
        Program::Curl => curl(flow),
        Program::Iperf3 => size_or_duration(flow, "iperf3 takes either size or duration"),
        Program::Ftp => ftp(flow),
        Program::Probe => probe(flow),
        Program::Udt => udt(flow),
    }?;
    only_of_probe(flow)?;
    at("omit", omit(flow))?;
    sender(flow)
}

fn size_or_duration(flow: &Flow, problem: &'static str) -> Checked {
    ensure(flow.size.is_some() != flow.duration.is_some(), || problem)?;
    let some = flow.size.is_none_or(|size| size.get() > 0);
    at("size", ensure(some, || "size must be above 0"))
}

/// What lasts as long as it takes has no beginning that could be left out.
fn omit(flow: &Flow) -> Checked {
    let lasting = matches!(flow.program, Program::Iperf3 | Program::Udt) && flow.duration.is_some();
    ensure(
        lasting || flow.omit.is_none(),
        || "omit is a key of programs \"iperf3\" and \"udt\", beside duration",
    )
}

fn ends(flow: &Flow, topology: &Topology) -> Checked {
    for (key, host) in [("from", &flow.from), ("to", &flow.to)] {
        let reached = ensure(topology.hosts.contains(host), || {
            format!("no link reaches a host {host:?}")
        });
        at(key, reached)?;
    }
    let joined = flow.from != flow.to && topology.path(&flow.from, &flow.to).is_some();
    let joined = ensure(joined, || {
        format!(
            "no path leads from {:?} to another host {:?}",
            flow.from, flow.to
        )
    });
    at("to", joined)
}

/// The relay that a flow is sent to is one that it reaches.
fn ways(flow: &Flow, topology: &Topology) -> Checked {
    let (via, proxy) = (flow.via.as_ref(), flow.proxy.as_ref());
    let one = ensure(
        via.is_none() || proxy.is_none(),
        || "via and proxy exclude each other",
    );
    at("via", one)?;
    let carried = ensure(
        proxy.is_none() || flow.program.carries_a_file(),
        || "proxy is a key of programs \"curl\" and \"ftp\"",
    );
    at("proxy", carried)?;
    let relayable = matches!(flow.program, Program::Curl | Program::Iperf3);
    let relayed = ensure(
        via.is_none() || relayable,
        || "via is a key of programs \"curl\" and \"iperf3\"",
    );
    at("via", relayed)?;
    let opening = match flow.direction {
        Direction::Upload => &flow.from,
        Direction::Download => &flow.to,
    };
    let Some(relay) = via.or(proxy.map(|proxy| &proxy.at)) else {
        return Ok(());
    };
    let reached = ensure(topology.address(opening, &relay.host).is_some(), || {
        format!("no path leads from {opening:?} to a host {:?}", relay.host)
    });
    at(if via.is_some() { "via" } else { "proxy" }, reached)
}

fn curl(flow: &Flow) -> Checked {
    at("size", sized(flow, "curl needs a size above 0"))?;
    let endless = ensure(
        flow.duration.is_none(),
        || "curl takes a size, not a duration",
    );
    at("duration", endless)?;
    let down = ensure(
        flow.direction == Direction::Download,
        || "curl downloads; use iperf3 for uploads",
    );
    at("direction", down)?;
    let single = ensure(
        flow.parallel == 1,
        || "curl opens one connection; add flows for more",
    );
    at("parallel", single)
}

fn sized(flow: &Flow, problem: &'static str) -> Checked {
    ensure(flow.size.is_some_and(|size| size.get() > 0), || problem)
}

fn ftp(flow: &Flow) -> Checked {
    let problem = "ftp needs a size above 0, and has no duration and no parallel";
    at("size", sized(flow, problem))?;
    at("duration", ensure(flow.duration.is_none(), || problem))?;
    at("parallel", ensure(flow.parallel == 1, || problem))?;
    let http = flow
        .proxy
        .as_ref()
        .is_some_and(|proxy| proxy.scheme == "http");
    let passed = ensure(
        !http || flow.direction == Direction::Download,
        || "an HTTP proxy does not pass FTP uploads on; a SOCKS proxy does",
    );
    at("proxy", passed)?;
    let reached = ensure(
        !flow.active || flow.proxy.is_none(),
        || "active: a server can't connect to a client behind a proxy",
    );
    at("active", reached)
}

fn udt(flow: &Flow) -> Checked {
    size_or_duration(flow, "udt takes either size or duration")?;
    at("parallel", within("parallel", flow.parallel, 1, 64))?;
    let own = |control: &Control| control.to_string() == programs::udt::CONTROL;
    let control = ensure(
        flow.cc.as_ref().is_none_or(own),
        || "program \"udt\" has a rate control of its own: cc = \"udt\", or none",
    );
    at("cc", control)
}

/// What is said of the sender's socket is said of a program whose socket can be told.
fn sender(flow: &Flow) -> Checked {
    told(flow)?;
    let one = ensure(
        flow.gap.is_none() || flow.pace.is_none(),
        || "pace and gap exclude each other",
    );
    at("gap", one)?;
    let gap = flow.gap.map_or(1_000, longhaul_units::Time::as_nanos);
    let gap = ensure(
        (100..=1_000_000_000).contains(&gap),
        || "gap must be 100ns to 1s",
    );
    at("gap", gap)?;
    at("pace", pace(flow))?;
    at("window", window(flow))?;
    let opened = ensure(
        !flow.active || flow.program == Program::Ftp,
        || "active is a key of program \"ftp\"",
    );
    at("active", opened)
}

fn told(flow: &Flow) -> Checked {
    let tellable = matches!(flow.program, Program::Curl | Program::Iperf3);
    let own_way = matches!(flow.program, Program::Ftp | Program::Udt);
    let chosen = flow.cc.is_none() || tellable || own_way;
    let chosen = ensure(
        chosen,
        || "cc is a key of programs \"curl\", \"iperf3\" and \"ftp\"",
    );
    at("cc", chosen)?;
    for (key, given) in [("pace", flow.pace.is_some()), ("gap", flow.gap.is_some())] {
        let spaced = ensure(
            !given || tellable,
            || "pace and gap are keys of programs \"curl\" and \"iperf3\"",
        );
        at(key, spaced)?;
    }
    Ok(())
}

/// FTP's programs open sockets of their own, so routes say by which congestion control they send: all that the
/// host sends has it, too.
fn by_routes(flow: &Flow, scenario: &Scenario) -> Checked {
    let ftp = flow.when && flow.program == Program::Ftp;
    let Some(control) = flow.cc.as_ref().filter(|_| ftp) else {
        return Ok(());
    };
    let (name, host) = (&flow.name, &flow.from);
    ensure(!control.paced, || {
        format!("flow {name:?}: +pace is for programs \"curl\" and \"iperf3\"")
    })?;
    let only = format!("flow {name:?}: the cc of an FTP flow is that of all that {host:?} sends");
    let differs = |other: &&Flow| {
        let sends = other.when && other.program.is_tcp() && other.from == *host;
        sends && other.cc.as_ref().and_then(Control::key) != control.key()
    };
    let other = scenario.flows.iter().find(differs);
    other.map_or(Ok(()), |other| {
        let other = &other.name;
        Err(format!(
            "{only}; give flow {other:?} the same, or a host of its own"
        ))
    })?;
    ensure(!scenario.relays_on(host), || {
        format!("{only}, and a relay sends from there, too")
    })
}

fn pace(flow: &Flow) -> Checked {
    let Some(Pace::Rate(rate)) = flow.pace else {
        return Ok(());
    };
    ensure((8_000..=34_000_000_000).contains(&rate.bits()), || {
        format!("pace is {rate}, but must be 8kbit to 34gbit")
    })
}

fn window(flow: &Flow) -> Checked {
    ensure(
        flow.window.is_none() || flow.program == Program::Iperf3,
        || "window is a key of program \"iperf3\"; set net.ipv4.tcp_rmem of the receiving host",
    )?;
    let window = flow.window.map_or(4096, longhaul_units::Bytes::get);
    ensure(
        (2048..=1 << 30).contains(&window),
        || "window must be 2KiB to 1GiB",
    )
}

/// The congestion control of a host's routes or a relay's legs: a name, and no pacing.
fn control(place: &str, text: &str) -> Checked {
    let control: Control = text
        .parse()
        .map_err(|problem| format!("{place}: {problem}"))?;
    ensure(!control.paced, || {
        format!("{place}: +pace is for flows only")
    })
}

fn probe(flow: &Flow) -> Checked {
    let problem = "probe sends one stream of packets: it has no size and no parallel";
    at("size", ensure(flow.size.is_none(), || problem))?;
    let onward = ensure(
        flow.direction == Direction::Download,
        || "probe sends its packets from \"from\" to \"to\": it has no direction",
    );
    at("direction", onward)?;
    at("parallel", ensure(flow.parallel == 1, || problem))?;
    Ok(programs::probe::timing(flow).map(drop)?)
}

/// A probe's packets are not fragmented.
fn fits(flow: &Flow, scenario: &Scenario, topology: &Topology) -> Checked {
    let (Program::Probe, Some(length)) = (flow.program, flow.length) else {
        return Ok(());
    };
    let path = topology.path(&flow.from, &flow.to).unwrap_or_default();
    let wires = path
        .windows(2)
        .filter_map(|hop| topology.between(&hop[0], &hop[1]));
    let mtu = wires.map(|wire| scenario.links[wire].mtu).min();
    ensure(mtu.is_none_or(|mtu| u32::from(length) <= mtu), || {
        let (name, mtu) = (&flow.name, mtu.unwrap_or_default());
        format!("flow {name:?}: packets of {length} bytes don't fit the path's MTU of {mtu}")
    })
}

fn only_of_probe(flow: &Flow) -> Checked {
    let keys = [
        ("count", flow.count.is_some()),
        ("interval", flow.interval.is_some()),
        ("length", flow.length.is_some()),
        ("segments", flow.segments != 1),
    ];
    let given = keys.into_iter().find(|(_, given)| *given);
    match given.filter(|_| flow.program != Program::Probe) {
        None => Ok(()),
        Some((key, _)) => at(
            key,
            Err("count, interval, length and segments are keys of program \"probe\""),
        ),
    }
}

/// Checks, derived metrics, the answer and the paper's figures speak of cells that exist.
fn claims(book: &Book) -> Checked {
    let known = Known::of(book);
    let mut derived = book.base.derived.iter();
    let derived = derived.try_for_each(|(name, text)| {
        let parsed = parsed(text, &known);
        let sound = parsed.and_then(|_| together(name, &known));
        at(
            name,
            sound.map_err(|fault| fault.of(format!("derived.{name}"))),
        )
    });
    at("derived", derived)?;
    let checks = each(&book.base.check, |plan| {
        check(plan, book, &known).map_err(|fault| fault.of(format!("check {:?}", plan.name)))
    });
    at("check", checks)?;
    let papers = paper::check(book, &known, one_cell);
    at("paper", papers.map_err(|fault| fault.of("paper")))?;
    let mut answers = book.base.answer.iter();
    let answers = answers.try_for_each(|plan| answer(plan, book, &known));
    at("answer", answers.map_err(|fault| fault.of("answer")))
}

/// A formula's parts come before it, and from the same run.
fn together(name: &str, known: &Known) -> Checked {
    ensure(
        known.check(name).is_ok(),
        || "no run gives all of its parts, or one of them stands behind it",
    )
}

/// An expression over metrics that there are.
fn parsed(text: &str, known: &Known) -> Result<Expression, Fault> {
    let expression = Expression::parse(text).map_err(|error| error.to_string())?;
    known.check_all(&expression)?;
    Ok(expression)
}

fn check(plan: &CheckPlan, book: &Book, known: &Known) -> Checked {
    let expression = at("value", parsed(&plan.value, known))?;
    let subjects = match verdict::every(plan, book) {
        None => vec![None],
        Some(all) => all.into_iter().map(Some).collect(),
    };
    let some = ensure(!subjects.is_empty(), || "no cell is meant by every");
    at("every", some)?;
    at("value", judged(&expression, &subjects, book, known))?;
    let bound = ensure(Bound::parse(&plan.want).is_some(), || {
        format!("want = {:?} is no bound such as \">= 6\"", plan.want)
    });
    at("want", bound)
}

/// The cells that an expression speaks of are there and give its metrics, and for one of its subjects the paper has
/// all figures.
fn judged(
    expression: &Expression,
    subjects: &[Option<usize>],
    book: &Book,
    known: &Known,
) -> Checked {
    let unprinted = RefCell::new(None);
    let mut compared = false;
    for subject in subjects {
        unprinted.take();
        let one = |name: &str, wanted: &[(String, String)]| {
            let index = one_cell(book, &verdict::beside(book, *subject, wanted))?;
            known.check_in(index, name)?;
            let printed = verdict::is_printed(book, index, name);
            unprinted.replace(unprinted.take().or((!printed).then(|| name.to_owned())));
            Ok::<_, String>(1.0)
        };
        expression.value(&one)?;
        compared |= unprinted.borrow().is_none();
    }
    ensure(compared, || {
        let name = unprinted.take().unwrap_or_default();
        format!("no cell that is meant has a figure for {name}")
    })
}

fn answer(plan: &AnswerPlan, book: &Book, known: &Known) -> Checked {
    at("metric", known.check(&plan.metric))?;
    let gives = |cell: &Table| {
        let index = one_cell(book, &pairs(cell))?;
        known.check_in(index, &plan.metric)
    };
    at("cell", gives(&plan.cell))?;
    let baseline = plan.baseline.as_ref();
    at("baseline", baseline.map_or(Ok(()), gives))
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
