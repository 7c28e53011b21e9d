// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings of `--check-config` about settings that are valid but probably mistakes.

use crate::{
    check::{addresses, routes},
    config::{
        Config,
        certificates::validity::Purpose,
        listener::{Kind, ListenerConfig},
        location::{Finding, Table},
        policy::{Chain, RouteTarget},
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
        let of = |text| {
            Finding::new(
                Table::Listener(n),
                format!("listener {}: {text}", listener.name),
            )
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

fn listener_findings(listener: &ListenerConfig, now: Timestamp) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(tls) = &listener.tls {
        found.extend(tls.certificates().problems(Purpose::Server, now));
    }
    let allowed = &listener.allow_from;
    if !allowed.is_empty() && allowed.iter().all(|p| is_covered(*p, &listener.deny_from)) {
        found.push("deny_from covers all of allow_from: it serves this machine only".to_owned());
    }
    if let (Some(all), Some(each)) = (listener.rate, listener.rate_per_client)
        && each >= all
    {
        found.push(format!(
            "rate_per_client has no effect: {each} is not below the rate of all, {all}"
        ));
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
        let mut add = |text: String| found.push(Finding::named(table.clone(), text));
        if !used.contains(peer.name.as_str()) {
            add(format!("no route uses it{for_others}"));
        }
        if let Some(tls) = &peer.tls {
            let problems = tls.certificates().problems(Purpose::Client, now);
            problems.into_iter().for_each(&mut add);
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
        let mut add = |text: String| found.push(Finding::named(Table::Route(n), text));
        repeated_chains(target).into_iter().for_each(&mut add);
        if target.chains.len() > 1 && target.chains[0].is_empty() {
            add("fallback has no effect: without via, connections are direct".to_owned());
        }
        let names_profile = settings
            .route
            .get(n)
            .is_some_and(|route| route.profile.is_some());
        if names_profile && !target.chains.iter().any(Vec::is_empty) {
            add("profile has no effect: it is for legs directly to the destination, and all chains \
                 lead through peers"
                .to_owned());
        }
    }
    found
}

fn repeated_chains(target: &RouteTarget) -> Vec<String> {
    let names = |chain: &Chain| chain.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    let chains: Vec<_> = target.chains.iter().map(names).collect();
    let mut found = Vec::new();
    for (n, chain) in chains.iter().enumerate() {
        let mut passed = BTreeSet::new();
        if let Some(repeated) = chain.iter().find(|name| !passed.insert(*name)) {
            found.push(format!("a chain passes {repeated} twice"));
        }
        if chains[..n].contains(chain) {
            let names = chain.join(" and ");
            let chain = if names.is_empty() { "direct" } else { &names };
            found.push(format!(
                "fallback has a chain that was tried before: {chain}"
            ));
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
            Finding::named(Table::Profile(name.clone()), text)
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
    Some(Finding::new(Table::Limits, text))
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
        found.push(format!(
            "memory_per_client has no effect: {each} is not below memory, {all}"
        ));
    }
    if let Some(each) = limits.connections_per_client
        && each >= limits.connections_max as usize
    {
        let all = limits.connections_max;
        found.push(format!(
            "connections_per_client has no effect: {each} is not below connections, {all}"
        ));
    }
    let finding = |text| Finding::new(Table::Limits, text);
    found.into_iter().map(finding).collect()
}

fn record_file_findings(config: &Config) -> Vec<Finding> {
    let files = [
        ("counters.file", &config.counters),
        ("counters.access_log", &config.access_log),
    ];
    files
        .into_iter()
        .filter_map(|(key, file)| record_file_finding(key, file.as_deref()?))
        .collect()
}

fn record_file_finding(key: &str, file: &Path) -> Option<Finding> {
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
    let text = format!("{key}: {}: {problem}", file.display());
    Some(Finding::new(Table::Counters, text))
}
