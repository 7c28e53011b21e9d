// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the links, hosts and relays of one cell beyond their syntax.

use super::{flow, listening::Listeners};
use crate::{
    network::{Topology, Wire, link, topology::LINKS_MAX},
    scenario::{
        CcSpec, Decp, Flow, Host, Link, LinkKind, Relay, Scenario, Setting,
        config_error::{CheckResult, ConfigError, at, distinct, each, ensure, valid_name, within},
        relay,
        value::flags,
    },
    testbed::programs,
};
use std::collections::BTreeMap;

/// Checks the scenario of one cell.
pub(crate) fn check(scenario: &Scenario) -> CheckResult {
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
    at("links", check_subnets(links, &topology))?;
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
    at("flows", check_any_enabled(&scenario.flows))?;
    at(
        "flows",
        each(&scenario.flows, |one| flow::check(one, &topology)),
    )?;
    at(
        "flows",
        each(&scenario.flows, |one| listeners.check_target(one)),
    )?;
    at(
        "flows",
        each(&scenario.flows, |one| {
            at("length", flow::check_mtu(one, scenario, &topology))
        }),
    )?;
    at(
        "flows",
        each(&scenario.flows, |one| {
            at("cc", flow::check_ftp_control(one, scenario))
        }),
    )
}

/// Checks that subnets do not overlap. Otherwise routes would be ambiguous.
fn check_subnets(links: &[Link], topology: &Topology) -> CheckResult {
    let networks: Vec<_> = topology.wires.iter().map(|wire| wire.ends[0].1).collect();
    each(0..links.len(), |new| {
        let overlapping = (0..new).find(|old| networks[new].overlaps(networks[*old]));
        overlapping.map_or(Ok(()), |old| {
            let [new, old] =
                [new, old].map(|at| format!("{:?} ({})", links[at].name, networks[at]));
            at(
                "addresses",
                Err(format!("the subnets of links {old} and {new} overlap")),
            )
        })
    })
}

/// Checks that a link reaches `host`. `place` names the key in messages.
fn check_host_exists(place: &str, host: &String, topology: &Topology) -> CheckResult {
    ensure(topology.hosts.contains(host), || {
        format!("{place}: no link reaches a host {host:?}")
    })
}

fn host(name: &String, own: &Host, topology: &Topology) -> CheckResult {
    check_host_exists("hosts", name, topology)?;
    at("sysctl", settings(&own.sysctl))?;
    let Some(text) = &own.congestion_control else {
        return Ok(());
    };
    let place = format!("hosts.{name}.congestion_control");
    at("congestion_control", control(&place, text))
}

/// Checks that each setting belongs to a network namespace. Others are settings of the whole
/// machine and would outlast the run.
fn settings(all: &BTreeMap<String, Setting>) -> CheckResult {
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
) -> CheckResult {
    let place = format!("relays.{own}");
    valid_name("relay", own, 32)?;
    at("host", check_host_exists(&place, host, topology))?;
    // If it is off, a varied parameter may leave it without a listener.
    if !relay.enabled {
        return Ok(());
    }
    legs(relay).map_err(|error| error.of(&place))?;
    let checked = programs::relay::check(host, relay).or_else(|problem| {
        match problem.starts_with("config: ") {
            true => at("config", Err(problem)),
            false => Err(ConfigError::for_option(&relay.options, problem)),
        }
    });
    let own_listeners = checked.map_err(|error| error.of(&place))?;
    listeners
        .add_relay(own, host, relay, own_listeners)
        .map_err(|error| error.of(place))
}

/// Checks the congestion controls of a relay's legs: they are names, as a host's is.
fn legs(relay: &Relay) -> CheckResult {
    relay::check_leg_controls(relay, control)
}

fn decp(host: &String, decp: &Decp, topology: &Topology) -> CheckResult {
    let place = format!("decp.{host}");
    check_host_exists(&place, host, topology)?;
    let checked = flags(&decp.options)
        .and_then(|flags| longhaul_tuning::decp::check(&flags).map_err(|error| error.to_string()));
    checked.map_err(|problem| ConfigError::for_option(&decp.options, problem).of(place))
}

fn link(link: &Link, wire: &Wire) -> CheckResult {
    // IFNAMSIZ of linux/if.h, without its final NUL.
    at("name", valid_name("link", &link.name, 15))?;
    let reserved = ["lo", "all", "default"].contains(&link.name.as_str());
    let free = ensure(!reserved, || {
        format!("link {:?}: no interface may have that name", link.name)
    });
    at("name", free)?;
    at(
        "between",
        each(&link.between, |host| valid_name("host", host, 32)),
    )?;
    check_kind(link, wire).map_err(|error| error.of(format!("link {:?}", link.name)))
}

fn check_kind(link: &Link, wire: &Wire) -> CheckResult {
    let apart = ensure(
        link.between[0] != link.between[1],
        || "it joins a host with itself",
    );
    at("between", apart)?;
    at("mtu", within("mtu", link.mtu, 1280, 9000))?;
    at("addresses", check_addresses(link))?;
    let recorded = ensure(
        !link.tap || link.kind == LinkKind::Emulated,
        || "only an emulated link has a tap",
    );
    at("tap", recorded)?;
    match (link.kind, link.options.keys().next()) {
        (LinkKind::Veth, Some(key)) => {
            let problem = format!("kind \"veth\" has no option {key:?}");
            at(key, Err(problem))
        }
        (LinkKind::Veth, None) => Ok(()),
        (LinkKind::Emulated, _) => link::shapes(link, wire)
            .map(drop)
            .map_err(|problem| ConfigError::for_option(&link.options, problem)),
    }
}

fn check_addresses(link: &Link) -> CheckResult {
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

fn check_any_enabled(flows: &[Flow]) -> CheckResult {
    ensure(!flows.is_empty(), || "there are no [[flows]]")?;
    ensure(flows.iter().any(|flow| flow.enabled), || "no flow runs")
}

/// Checks the congestion control of a host's routes or a relay's legs: a name without pacing.
fn control(place: &str, text: &str) -> CheckResult {
    let control: CcSpec = text
        .parse()
        .map_err(|problem| format!("{place}: {problem}"))?;
    ensure(!control.paced, || {
        format!("{place}: +pace is for flows only")
    })
}
