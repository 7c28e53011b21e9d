// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of one cell's links, hosts, relays and flows, after their syntax has been checked.

use super::{flow, listening::Listeners};
use crate::{
    command_check,
    network::{AddressedLink, Topology, link, topology::LINKS_MAX},
    scenario::{
        CcSpec, Decp, Flow, Host, Link, LinkKind, Relay, Scenario, Setting,
        config_error::{
            CheckResult, ConfigError, check_distinct, check_each, check_name, check_range, ensure,
            locate_error,
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
    let counted = ensure((1..=LINKS_MAX).contains(&links.len()), || {
        format!("there must be 1 to {LINKS_MAX} [[links]]")
    });
    locate_error("links", counted)?;
    locate_error(
        "links",
        check_distinct("links", links.iter().map(|link| &link.name)),
    )?;
    let flows = scenario.flows.iter().map(|flow| &flow.name);
    locate_error("flows", check_distinct("flows", flows))?;
    let topology = Topology::of(scenario);
    let addressed_links = links.iter().zip(&topology.addressed_links);
    locate_error(
        "links",
        check_each(addressed_links, |(one, addressed_link)| {
            check_link(one, addressed_link)
        }),
    )?;
    locate_error("links", check_subnets(links, &topology))?;
    locate_error(
        "timeout",
        ensure(
            scenario.timeout > longhaul_units::Time::ZERO,
            || "timeout must be above 0",
        ),
    )?;
    locate_error("sysctl", check_sysctls(&scenario.sysctl))?;
    if let Some(text) = &scenario.congestion_control {
        locate_error(
            "congestion_control",
            check_control("congestion_control", text),
        )?;
    }
    let mut hosts = scenario.hosts.iter();
    locate_error(
        "hosts",
        hosts.try_for_each(|(name, host)| locate_error(name, check_host(name, host, &topology))),
    )?;
    let mut listeners = Listeners::of_flows(scenario, &topology);
    let mut relays = scenario.relays();
    let relays = relays.try_for_each(|(name, host, relay)| {
        locate_error(
            name,
            check_relay(name, host, relay, &topology, &mut listeners),
        )
    });
    locate_error("relays", relays)?;
    let mut decps = scenario.decp.iter();
    locate_error(
        "decp",
        decps.try_for_each(|(host, decp)| locate_error(host, check_decp(host, decp, &topology))),
    )?;
    locate_error("flows", check_any_enabled(&scenario.flows))?;
    let check_flows = |check: &dyn Fn(&Flow) -> CheckResult| {
        locate_error("flows", check_each(&scenario.flows, check))
    };
    check_flows(&|one| flow::check(one, &topology))?;
    check_flows(&|one| locate_error("model", flow::check_model(one, scenario)))?;
    check_flows(&|one| listeners.check_target(one))?;
    check_flows(&|one| locate_error("packet_size", flow::check_mtu(one, scenario, &topology)))?;
    check_flows(&|one| locate_error("cc", flow::check_ftp_control(one, scenario)))
}

/// Checks that subnets do not overlap. Otherwise routes would be ambiguous.
fn check_subnets(links: &[Link], topology: &Topology) -> CheckResult {
    let networks: Vec<_> = topology
        .addressed_links
        .iter()
        .map(|addressed_link| addressed_link.ends[0].1)
        .collect();
    check_each(0..links.len(), |new| {
        let overlapping = (0..new).find(|old| networks[new].overlaps(networks[*old]));
        overlapping.map_or(Ok(()), |old| {
            let [new, old] =
                [new, old].map(|at| format!("{:?} ({})", links[at].name, networks[at]));
            locate_error(
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

fn check_host(name: &String, host: &Host, topology: &Topology) -> CheckResult {
    check_host_exists("hosts", name, topology)?;
    locate_error("sysctl", check_sysctls(&host.sysctl))?;
    let Some(text) = &host.congestion_control else {
        return Ok(());
    };
    let place = format!("hosts.{name}.congestion_control");
    locate_error("congestion_control", check_control(&place, text))
}

/// Checks that each sysctl belongs to a network namespace. Any other sysctl applies to the whole
/// machine and would outlast the run.
fn check_sysctls(all: &BTreeMap<String, Setting>) -> CheckResult {
    all.keys().try_for_each(|name| {
        let is_per_namespace = name.starts_with("net.") || name.starts_with("net/");
        locate_error(
            name,
            ensure(is_per_namespace, || {
                format!("{name:?} is not a setting of a host: those begin with net.")
            }),
        )
    })
}

fn check_relay(
    name: &String,
    host: &String,
    relay: &Relay,
    topology: &Topology,
    listeners: &mut Listeners<'_>,
) -> CheckResult {
    let place = format!("relays.{name}");
    check_name("relay", name, 32)?;
    locate_error("host", check_host_exists(&place, host, topology))?;
    // A varied parameter may leave a disabled relay without a listener.
    if !relay.enabled {
        return Ok(());
    }
    // Each control is a name without pacing, as for a host.
    let controls = relay::check_leg_controls(relay, check_control);
    controls.map_err(|error| error.with_owner(&place))?;
    let checked = programs::relay::check(host, relay);
    let own_listeners = checked.map_err(|error| error.with_owner(&place))?;
    listeners
        .add_relay(name, host, own_listeners)
        .and_then(|()| listeners.add_intercepted(name, host, programs::relay::intercepted(relay)))
        .map_err(|error| error.with_owner(place))
}

fn check_decp(host: &String, decp: &Decp, topology: &Topology) -> CheckResult {
    let place = format!("decp.{host}");
    check_host_exists(&place, host, topology)?;
    let checked = flags(&decp.options).and_then(|flags| {
        let checked = command_check::check("decp", &flags).map(drop);
        checked.map_err(|refused| ConfigError::of_option(&decp.options, refused))
    });
    checked.map_err(|error| error.with_owner(place))
}

fn check_link(link: &Link, addressed_link: &AddressedLink) -> CheckResult {
    // IFNAMSIZ of linux/if.h, without its final NUL.
    locate_error("name", check_name("link", &link.name, 15))?;
    let reserved = ["lo", "all", "default"].contains(&link.name.as_str());
    let free = ensure(!reserved, || {
        format!("link {:?}: no interface may have that name", link.name)
    });
    locate_error("name", free)?;
    locate_error(
        "endpoints",
        check_each(&link.endpoints, |host| check_name("host", host, 32)),
    )?;
    check_kind(link, addressed_link)
        .map_err(|error| error.with_owner(format!("link {:?}", link.name)))
}

fn check_kind(link: &Link, addressed_link: &AddressedLink) -> CheckResult {
    let apart = ensure(
        link.endpoints[0] != link.endpoints[1],
        || "it joins a host with itself",
    );
    locate_error("endpoints", apart)?;
    locate_error("mtu", check_range("mtu", link.mtu, 1280, 9000))?;
    locate_error("addresses", check_addresses(link))?;
    let recorded = ensure(
        !link.capture || link.kind == LinkKind::Emulated,
        || "only an emulated link has a capture",
    );
    locate_error("capture", recorded)?;
    match (link.kind, link.options.keys().next()) {
        (LinkKind::Veth, Some(key)) => {
            let problem = format!("kind \"veth\" has no option {key:?}");
            locate_error(key, Err(problem))
        }
        (LinkKind::Veth, None) => Ok(()),
        (LinkKind::Emulated, _) => link::check(link, addressed_link),
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
fn check_control(place: &str, text: &str) -> CheckResult {
    let control: CcSpec = text
        .parse()
        .map_err(|problem| format!("{place}: {problem}"))?;
    ensure(!control.paced, || {
        format!("{place}: +pace is for flows only")
    })
}
