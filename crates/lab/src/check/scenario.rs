// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of one cell's links, hosts, relays and flows, after their syntax has been checked.

use super::{flow, listening::Listeners};
use crate::{
    network::{Topology, Wire, link, topology::LINKS_MAX},
    scenario::{
        CcSpec, Decp, Flow, Host, Link, LinkKind, Relay, Scenario, Setting,
        config_error::{
            CheckResult, ConfigError, check_distinct, check_each, check_range, ensure, in_key,
            valid_name,
        },
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
    in_key("links", possible)?;
    in_key(
        "links",
        check_distinct("links", links.iter().map(|link| &link.name)),
    )?;
    let flows = scenario.flows.iter().map(|flow| &flow.name);
    in_key("flows", check_distinct("flows", flows))?;
    let topology = Topology::of(scenario);
    let wires = links.iter().zip(&topology.wires);
    in_key("links", check_each(wires, |(one, wire)| link(one, wire)))?;
    in_key("links", check_subnets(links, &topology))?;
    in_key(
        "timeout",
        ensure(
            scenario.timeout > longhaul_units::Time::ZERO,
            || "timeout must be above 0",
        ),
    )?;
    in_key("sysctl", settings(&scenario.sysctl))?;
    if let Some(text) = &scenario.congestion_control {
        in_key("congestion_control", control("congestion_control", text))?;
    }
    let mut hosts = scenario.hosts.iter();
    in_key(
        "hosts",
        hosts.try_for_each(|(name, own)| in_key(name, host(name, own, &topology))),
    )?;
    let mut listeners = Listeners::of_flows(scenario, &topology);
    let mut relays = scenario.relays();
    let relays = relays.try_for_each(|(name, host, own)| {
        in_key(name, relay(name, host, own, &topology, &mut listeners))
    });
    in_key("relays", relays)?;
    let mut decps = scenario.decp.iter();
    in_key(
        "decp",
        decps.try_for_each(|(host, own)| in_key(host, decp(host, own, &topology))),
    )?;
    in_key("flows", check_any_enabled(&scenario.flows))?;
    in_key(
        "flows",
        check_each(&scenario.flows, |one| flow::check(one, &topology)),
    )?;
    in_key(
        "flows",
        check_each(&scenario.flows, |one| listeners.check_target(one)),
    )?;
    in_key(
        "flows",
        check_each(&scenario.flows, |one| {
            in_key("packet_size", flow::check_mtu(one, scenario, &topology))
        }),
    )?;
    in_key(
        "flows",
        check_each(&scenario.flows, |one| {
            in_key("cc", flow::check_ftp_control(one, scenario))
        }),
    )
}

/// Checks that subnets do not overlap. Otherwise routes would be ambiguous.
fn check_subnets(links: &[Link], topology: &Topology) -> CheckResult {
    let networks: Vec<_> = topology.wires.iter().map(|wire| wire.ends[0].1).collect();
    check_each(0..links.len(), |new| {
        let overlapping = (0..new).find(|old| networks[new].overlaps(networks[*old]));
        overlapping.map_or(Ok(()), |old| {
            let [new, old] =
                [new, old].map(|at| format!("{:?} ({})", links[at].name, networks[at]));
            in_key(
                "addresses",
                Err(format!("the subnets of links {old} and {new} overlap")),
            )
        })
    })
}

/// Checks that a link reaches `host`. `place` is the key that the message names.
fn check_host_exists(place: &str, host: &String, topology: &Topology) -> CheckResult {
    ensure(topology.hosts.contains(host), || {
        format!("{place}: no link reaches a host {host:?}")
    })
}

fn host(name: &String, own: &Host, topology: &Topology) -> CheckResult {
    check_host_exists("hosts", name, topology)?;
    in_key("sysctl", settings(&own.sysctl))?;
    let Some(text) = &own.congestion_control else {
        return Ok(());
    };
    let place = format!("hosts.{name}.congestion_control");
    in_key("congestion_control", control(&place, text))
}

/// Checks that each sysctl belongs to a network namespace. Any other sysctl applies to the whole
/// machine and would outlast the run.
fn settings(all: &BTreeMap<String, Setting>) -> CheckResult {
    all.keys().try_for_each(|name| {
        let own = name.starts_with("net.") || name.starts_with("net/");
        in_key(
            name,
            ensure(own, || {
                format!("{name:?} is not a setting of a host: those begin with net.")
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
    in_key("host", check_host_exists(&place, host, topology))?;
    // A varied parameter may leave a disabled relay without a listener.
    if !relay.enabled {
        return Ok(());
    }
    legs(relay).map_err(|error| error.with_owner(&place))?;
    let checked = programs::relay::check(host, relay).or_else(|problem| {
        match problem.starts_with("config: ") {
            true => in_key("config", Err(problem)),
            false => Err(ConfigError::for_option(&relay.options, problem)),
        }
    });
    let own_listeners = checked.map_err(|error| error.with_owner(&place))?;
    listeners
        .add_relay(own, host, relay, own_listeners)
        .map_err(|error| error.with_owner(place))
}

/// Checks the congestion controls of a relay's legs: each is a name without pacing, as for a host.
fn legs(relay: &Relay) -> CheckResult {
    relay::check_leg_controls(relay, control)
}

fn decp(host: &String, decp: &Decp, topology: &Topology) -> CheckResult {
    let place = format!("decp.{host}");
    check_host_exists(&place, host, topology)?;
    let checked = flags(&decp.options)
        .and_then(|flags| longhaul_tuning::decp::check(&flags).map_err(|error| error.to_string()));
    checked.map_err(|problem| ConfigError::for_option(&decp.options, problem).with_owner(place))
}

fn link(link: &Link, wire: &Wire) -> CheckResult {
    // IFNAMSIZ of linux/if.h, without its final NUL.
    in_key("name", valid_name("link", &link.name, 15))?;
    let reserved = ["lo", "all", "default"].contains(&link.name.as_str());
    let free = ensure(!reserved, || {
        format!("link {:?}: no interface may have that name", link.name)
    });
    in_key("name", free)?;
    in_key(
        "endpoints",
        check_each(&link.endpoints, |host| valid_name("host", host, 32)),
    )?;
    check_kind(link, wire).map_err(|error| error.with_owner(format!("link {:?}", link.name)))
}

fn check_kind(link: &Link, wire: &Wire) -> CheckResult {
    let apart = ensure(
        link.endpoints[0] != link.endpoints[1],
        || "it joins a host with itself",
    );
    in_key("endpoints", apart)?;
    in_key("mtu", check_range("mtu", link.mtu, 1280, 9000))?;
    in_key("addresses", check_addresses(link))?;
    let recorded = ensure(
        !link.capture || link.kind == LinkKind::Emulated,
        || "only an emulated link has a capture",
    );
    in_key("capture", recorded)?;
    match (link.kind, link.options.keys().next()) {
        (LinkKind::Veth, Some(key)) => {
            let problem = format!("kind \"veth\" has no option {key:?}");
            in_key(key, Err(problem))
        }
        (LinkKind::Veth, None) => Ok(()),
        (LinkKind::Emulated, _) => link::link_configs(link, wire)
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
    check_each([left, right], |address| {
        ensure(address.is_host_address(), || {
            format!("{address} is not an address that a host may have")
        })
    })
}

fn check_any_enabled(flows: &[Flow]) -> CheckResult {
    ensure(!flows.is_empty(), || "there are no [[flows]]")?;
    ensure(flows.iter().any(|flow| flow.enabled), || "no flow runs")
}

/// Checks a congestion control that is not a flow's: it must be a name without pacing.
fn control(place: &str, text: &str) -> CheckResult {
    let control: CcSpec = text
        .parse()
        .map_err(|problem| format!("{place}: {problem}"))?;
    ensure(!control.paced, || {
        format!("{place}: +pace is for flows only")
    })
}
