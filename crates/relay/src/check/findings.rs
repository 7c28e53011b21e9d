// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings of `--check-config` about settings that are valid but probably mistakes.

use crate::{
    check::{addresses, routes},
    config::{
        Config,
        certificates::validity::Purpose,
        listener::{Kind, ListenerConfig},
        location::{Finding, Part, Table},
        policy::{Chain, RouteTarget, chain_path},
        profile::{DOWNSTREAM, UPSTREAM},
        settings::Settings,
    },
};
use jiff::Timestamp;
use longhaul_protocol::networks::Prefix;
use std::{collections::BTreeSet, path::Path};

/// Returns all findings, in the order of the tables in the manual.
pub(crate) fn find(settings: &Settings, config: &Config) -> Vec<Finding> {
    let now = Timestamp::now();
    let mut found = Vec::new();
    for (n, listener) in config.listeners.iter().enumerate() {
        let of = |(part, text)| {
            let text = format!("listener {}: {text}", listener.name);
            Finding::new(Table::Listener(n), Some(part), text)
        };
        found.extend(listener_findings(listener, now).into_iter().map(of));
    }
    found.extend(addresses::find(config));
    found.extend(peer_findings(config, now));
    found.extend(routes::find(config));
    found.extend(route_findings(settings, config));
    found.extend(unused_profiles(settings));
    found.extend(memory_findings(config));
    found.extend(client_limit_findings(config));
    found.extend(record_file_findings(config));
    found
}

fn listener_findings(listener: &ListenerConfig, now: Timestamp) -> Vec<(Part, String)> {
    let mut found = Vec::new();
    if let Some(tls) = &listener.tls {
        found.extend(tls.certificates().problems(Purpose::Server, now));
    }
    let allowed = &listener.allow_from;
    if !allowed.is_empty() && allowed.iter().all(|p| is_covered(*p, &listener.deny_from)) {
        let text = "deny_from covers all of allow_from: it serves this machine only";
        found.push((Part::Key("deny_from"), text.to_owned()));
    }
    if let (Some(all), Some(each)) = (listener.rate, listener.rate_per_client)
        && each >= all
    {
        let text =
            format!("rate_per_client has no effect: {each} is not below the rate of all, {all}");
        found.push((Part::Key("rate_per_client"), text));
    }
    found
}

fn is_covered(prefix: Prefix, by: &[Prefix]) -> bool {
    by.iter().any(|other| other.covers(prefix))
}

fn peer_findings(config: &Config, now: Timestamp) -> Vec<Finding> {
    let used: BTreeSet<&str> = chains(config).flatten().map(|p| p.name.as_str()).collect();
    let for_others = if config.listeners.iter().any(|l| l.kind == Kind::Convert) {
        ", only a request of another relay that names its address"
    } else {
        ""
    };
    let mut found = Vec::new();
    for peer in config.peers.values() {
        let table = Table::Peer(peer.name.clone());
        let named = |part, text| Finding::named(table.clone(), part, text);
        if !used.contains(peer.name.as_str()) {
            found.push(named(None, format!("no route uses it{for_others}")));
        }
        if let Some(tls) = &peer.tls {
            let problems = tls.certificates().problems(Purpose::Client, now);
            let finding = |(part, text)| named(Some(part), text);
            found.extend(problems.into_iter().map(finding));
        }
    }
    found
}

fn chains(config: &Config) -> impl Iterator<Item = &Chain> {
    let targets = config.policy.rules.iter().flat_map(|rule| &rule.target);
    targets.flat_map(|target| &target.chains)
}

/// Findings about chains and profiles of routes.
fn route_findings(settings: &Settings, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for (n, rule) in config.policy.rules.iter().enumerate() {
        let Some(target) = &rule.target else { continue };
        let mut add = |part, text: &str| {
            found.push(Finding::named(Table::Route(n), Some(part), text));
        };
        for (part, text) in repeated_chains(target) {
            add(part, &text);
        }
        if target.chains.len() > 1 && target.chains[0].is_empty() {
            let text = "fallback has no effect: without via, connections are direct";
            add(Part::Key("fallback"), text);
        }
        let names_profile = settings
            .route
            .get(n)
            .is_some_and(|route| route.profile.is_some());
        if names_profile && !target.chains.iter().any(Vec::is_empty) {
            let text = "profile has no effect: it is for legs directly to the destination, and all chains \
                        lead through peers";
            add(Part::Key("profile"), text);
        }
    }
    found
}

fn repeated_chains(target: &RouteTarget) -> Vec<(Part, String)> {
    let names = |chain: &Chain| chain.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    let chains: Vec<_> = target.chains.iter().map(names).collect();
    let mut found = Vec::new();
    for (n, chain) in chains.iter().enumerate() {
        let mut passed = BTreeSet::new();
        if let Some(repeated) = chain.iter().find(|name| !passed.insert(*name)) {
            let text = format!("a chain passes {repeated} twice");
            found.push((Part::value(chain_path(n)), text));
        }
        if chains[..n].contains(chain) {
            let names = chain.join(" and ");
            let chain = if names.is_empty() { "direct" } else { &names };
            let text = format!("fallback has a chain that was tried before: {chain}");
            found.push((Part::value(chain_path(n)), text));
        }
    }
    found
}

fn unused_profiles(settings: &Settings) -> Vec<Finding> {
    let listeners = settings.listener.iter().map(|l| &l.profile);
    let peers = settings.peer.values().map(|p| &p.profile);
    let routes = settings.route.iter().map(|r| &r.profile);
    let used: BTreeSet<&String> = listeners.chain(peers).chain(routes).flatten().collect();
    let is_unused =
        |name: &&String| ![DOWNSTREAM, UPSTREAM].contains(&name.as_str()) && !used.contains(name);
    let unused = settings.profile.keys().filter(is_unused);
    unused
        .map(|name| {
            let text = "no listener, peer or route uses it";
            Finding::named(Table::Profile(name.clone()), None, text)
        })
        .collect()
}

fn memory_findings(config: &Config) -> Option<Finding> {
    let machine = longhaul_linux::memory::machine_bytes();
    let cgroup = longhaul_linux::memory::cgroup_limit().unwrap_or(u64::MAX);
    let (who, available) = if cgroup < machine {
        ("this control group", cgroup)
    } else {
        ("this machine", machine)
    };
    let budget = config.limits.memory.filter(|budget| *budget > available)?;
    let [budget, available] = [budget, available].map(longhaul_units::Bytes::new);
    let text = format!("memory: {budget} is more than {who} has, {available}: it has no effect");
    Some(Finding::new(Table::Limits, Some(Part::Key("memory")), text))
}

/// Findings about limits of one client that are not below those of all clients.
fn client_limit_findings(config: &Config) -> Vec<Finding> {
    let limits = &config.limits;
    let all = longhaul_admission::memory::budget(limits.memory).map(|budget| budget.bytes);
    let mut found = Vec::new();
    if let (Some(each), Some(all)) = (limits.memory_per_client, all)
        && each >= all
    {
        let [each, all] = [each, all].map(longhaul_units::Bytes::new);
        let problem = format!("{each} is not below memory, {all}");
        found.push(("memory_per_client", problem));
    }
    if let Some(each) = limits.connections_per_client
        && each >= limits.connections_max as usize
    {
        let all = limits.connections_max;
        let problem = format!("{each} is not below connections, {all}");
        found.push(("connections_per_client", problem));
    }
    let finding = |(key, problem)| {
        let text = format!("{key} has no effect: {problem}");
        Finding::new(Table::Limits, Some(Part::Key(key)), text)
    };
    found.into_iter().map(finding).collect()
}

fn record_file_findings(config: &Config) -> Vec<Finding> {
    let files = [
        ("file", &config.counters),
        ("access_log", &config.access_log),
    ];
    files
        .into_iter()
        .filter_map(|(key, file)| record_file_finding(key, file.as_deref()?))
        .collect()
}

fn record_file_finding(key: &'static str, file: &Path) -> Option<Finding> {
    if file == Path::new("-") {
        return None;
    }
    let directory = file.parent().unwrap_or(file);
    let is_missing = !directory.as_os_str().is_empty() && !directory.is_dir();
    let problem = match (file.is_dir(), is_missing) {
        (true, _) => "it is a directory: the start will fail",
        (false, true) => "its directory is not there: the start will fail",
        (false, false) => return None,
    };
    let text = format!("counters.{key}: {}: {problem}", file.display());
    Some(Finding::new(Table::Counters, Some(Part::value(key)), text))
}
