// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routing policy: an ordered list of rules, of which the first that matches decides.

use crate::config::{
    location::{Part, Table, in_table, refused},
    peer::PeerConfig,
    profile::{Profile, Profiles, UPSTREAM, profile_named},
    settings::{RouteSettings, Settings},
};
use longhaul_protocol::networks::{Ports, Prefix, Target, embedded_ipv4};
use longhaul_protocol::{convert, destination::Destination};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Properties of a request that rules match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteQuery<'a> {
    /// The listener's name.
    pub(crate) listener: &'a str,
    pub(crate) client: IpAddr,
    pub(crate) destination: &'a Destination,
}

/// Relays to pass through, nearest first; empty is directly to the destination.
pub(crate) type Chain = Vec<Arc<PeerConfig>>;

/// Permitted routes of a request.
#[derive(Debug, Clone)]
pub(crate) struct RouteTarget {
    /// Chains to try in order; never empty.
    pub(crate) chains: Vec<Chain>,
    /// Profile of a leg directly to the destination.
    pub(crate) profile: Arc<Profile>,
}

/// Rule: conditions, all of which must match, and the routes. A condition without values matches
/// everything.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) listeners: Vec<String>,
    pub(crate) from: Vec<Prefix>,
    pub(crate) to: Vec<Target>,
    pub(crate) ports: Vec<Ports>,
    /// Routes; `None` refuses the request.
    pub(crate) target: Option<RouteTarget>,
}

/// All rules, and the routes if none matches.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) default_target: RouteTarget,
}

impl Policy {
    /// Routes of a request; `None` if it is forbidden.
    pub(crate) fn decide(&self, query: RouteQuery<'_>) -> Option<&RouteTarget> {
        match self.rules.iter().find(|rule| rule.matches(query)) {
            Some(rule) => rule.target.as_ref(),
            None => Some(&self.default_target),
        }
    }

    /// Relays before `peer` in a chain, if this relay never connects to `peer` itself.
    pub(crate) fn chain_to(&self, peer: &PeerConfig) -> Chain {
        let targets = self.rules.iter().filter_map(|rule| rule.target.as_ref());
        let mut chains = targets.flat_map(|target| &target.chains);
        let before =
            |chain: &Chain| Some(chain[..chain.iter().position(|p| **p == *peer)?].to_vec());
        if peer.is_behind_peers {
            chains.find_map(before).unwrap_or_default()
        } else {
            Chain::new()
        }
    }

    /// All routes that clients of a listener may get, whatever their address and destination.
    pub(crate) fn targets_for(&self, listener: &str) -> Vec<&RouteTarget> {
        let mut targets = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.applies_to(listener)) {
            targets.extend(&rule.target);
            if rule.matches_all_clients() {
                return targets;
            }
        }
        targets.push(&self.default_target);
        targets
    }

    /// Whether the first attempt for a client of this listener may connect directly to
    /// `destination`.
    pub(crate) fn is_direct(&self, listener: &str, destination: &Destination) -> bool {
        let is_direct = |target: &RouteTarget| target.chains[0].is_empty();
        for rule in &self.rules {
            if !rule.applies_to(listener) || !rule.matches_destination(destination) {
                continue;
            }
            if rule.target.as_ref().is_some_and(is_direct) {
                return true;
            }
            if rule.from.is_empty() {
                return false;
            }
        }
        is_direct(&self.default_target)
    }
}

impl Rule {
    /// Whether the rule may match clients of this listener.
    pub(crate) fn applies_to(&self, listener: &str) -> bool {
        any_or_empty(&self.listeners, |name| name == listener)
    }

    /// Whether the rule matches every client of its listeners.
    fn matches_all_clients(&self) -> bool {
        self.from.is_empty() && self.to.is_empty() && self.ports.is_empty()
    }

    fn matches(&self, query: RouteQuery<'_>) -> bool {
        let RouteQuery {
            listener,
            client,
            destination,
        } = query;
        self.applies_to(listener)
            && any_or_empty(&self.from, |prefix| prefix.contains(client))
            && self.matches_destination(destination)
    }

    fn matches_destination(&self, destination: &Destination) -> bool {
        any_or_empty(&self.to, |target| self.matches_target(target, destination))
            && any_or_empty(&self.ports, |ports| ports.contains(destination.port()))
    }

    /// Whether the destination matches. A refusing rule for an IPv4 address also matches IPv6
    /// addresses that embed it, since a translator may lead there. Other rules do not, since the
    /// IPv6 address may be another host.
    fn matches_target(&self, target: &Target, destination: &Destination) -> bool {
        let inside =
            || embedded_destination(destination).is_some_and(|inside| target.matches(&inside));
        target.matches(destination) || self.target.is_none() && inside()
    }
}

/// IPv4 address embedded in an IPv6 destination.
fn embedded_destination(destination: &Destination) -> Option<Destination> {
    match destination {
        Destination::Address(SocketAddr::V6(to)) => {
            embedded_ipv4(*to.ip()).map(|ip| Destination::from_ip(ip.into(), to.port()))
        }
        _ => None,
    }
}

/// Whether a condition matches: one of its values does, or it has none.
pub(crate) fn any_or_empty<T>(values: &[T], holds: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

pub(crate) fn policy(
    settings: &Settings,
    peers: &BTreeMap<String, Arc<PeerConfig>>,
    profiles: &Profiles,
) -> anyhow::Result<Policy> {
    let rule = |(index, route): (usize, &RouteSettings)| {
        in_table(rule(route, peers, profiles), Table::Route(index))
    };
    let rules = settings.route.iter().enumerate().map(rule);
    Ok(Policy {
        rules: rules.collect::<Result<_, _>>()?,
        default_target: RouteTarget {
            chains: vec![Chain::new()],
            profile: profiles[UPSTREAM].clone(),
        },
    })
}

fn rule(
    route: &RouteSettings,
    peers: &BTreeMap<String, Arc<PeerConfig>>,
    profiles: &Profiles,
) -> anyhow::Result<Rule> {
    let leads_on = !route.via.is_empty() || !route.fallback.is_empty() || route.profile.is_some();
    if route.deny && leads_on {
        return Err(refused("deny", "deny excludes via, fallback and profile"));
    }
    let target = RouteTarget {
        chains: route
            .chains()
            .enumerate()
            .map(|(n, via)| chain(via, &chain_path(n), peers))
            .collect::<Result<_, _>>()?,
        profile: profile_named(route.profile.as_deref().unwrap_or(UPSTREAM), profiles)?,
    };
    Ok(Rule {
        listeners: route.listener.clone(),
        from: route.from.clone(),
        to: route.to.clone(),
        ports: route.ports.clone(),
        target: (!route.deny).then_some(target),
    })
}

/// Returns the path to a route's chain with this index.
pub(crate) fn chain_path(n: usize) -> String {
    match n {
        0 => "via".to_owned(),
        n => format!("fallback.{}", n - 1),
    }
}

fn chain(
    via: &[String],
    path: &str,
    peers: &BTreeMap<String, Arc<PeerConfig>>,
) -> anyhow::Result<Chain> {
    if via.len() > convert::HOPS_MAX {
        let most = convert::HOPS_MAX;
        let problem = format!("more than {most} peers in a chain");
        return Err(refused(Part::value(path.to_owned()), problem));
    }
    let peer = |(n, name): (usize, &String)| {
        let problem = || format!("no peer is called {name}");
        let peer = peers.get(name).cloned();
        peer.ok_or_else(|| refused(Part::value(format!("{path}.{n}")), problem()))
    };
    via.iter().enumerate().map(peer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_with(profile: &str) -> RouteTarget {
        let profile = Profile {
            name: profile.to_owned(),
            ..Profile::default()
        };
        RouteTarget {
            chains: vec![Vec::new()],
            profile: profile.into(),
        }
    }

    fn rule(to: &[&str], ports: &[&str], target: Option<RouteTarget>) -> Rule {
        Rule {
            listeners: Vec::new(),
            from: Vec::new(),
            to: to.iter().map(|t| t.parse().unwrap()).collect(),
            ports: ports.iter().map(|p| p.parse().unwrap()).collect(),
            target,
        }
    }

    fn policy(rules: Vec<Rule>) -> Policy {
        Policy {
            rules,
            default_target: target_with("otherwise"),
        }
    }

    fn profile_for(policy: &Policy, destination: &str) -> Option<String> {
        let destination = destination.parse().unwrap();
        let query = RouteQuery {
            listener: "l",
            client: [192, 0, 2, 1].into(),
            destination: &destination,
        };
        Some(policy.decide(query)?.profile.name.clone())
    }

    #[test]
    fn first_matching_rule_decides() {
        let policy = policy(vec![
            rule(&["10.1.0.0/16"], &["22"], None),
            rule(&["10.0.0.0/8"], &[], Some(target_with("ten"))),
            rule(&["10.1.0.0/16"], &[], None),
        ]);
        assert_eq!(profile_for(&policy, "10.1.2.3:22"), None);
        assert_eq!(profile_for(&policy, "10.1.2.3:80").as_deref(), Some("ten"));
        assert_eq!(
            profile_for(&policy, "11.1.2.3:80").as_deref(),
            Some("otherwise")
        );
    }

    #[test]
    fn embedded_ipv4_matches_only_refusing_rules() {
        let inside = "[64:ff9b::10.1.2.3]:80";
        let refusing = policy(vec![rule(&["10.0.0.0/8"], &[], None)]);
        assert_eq!(profile_for(&refusing, inside), None);
        let leading = policy(vec![rule(&["10.0.0.0/8"], &[], Some(target_with("ten")))]);
        assert_eq!(profile_for(&leading, inside).as_deref(), Some("otherwise"));
    }

    #[test]
    fn compares_names_as_dns() {
        let policy = policy(vec![rule(&["Example.org", "*.example.net"], &[], None)]);
        assert_eq!(profile_for(&policy, "example.ORG.:80"), None);
        assert_eq!(profile_for(&policy, "a.b.example.net:80"), None);
        for other in ["example.net:80", "badexample.net:80", "www.example.org:80"] {
            assert!(profile_for(&policy, other).is_some(), "{other}");
        }
    }

    #[test]
    fn matches_listener_and_client() {
        let mut only = rule(&[], &[], None);
        only.listeners = vec!["other".into()];
        assert!(profile_for(&policy(vec![only.clone()]), "10.0.0.1:80").is_some());
        only.listeners = vec!["l".into()];
        only.from = vec!["192.0.2.0/24".parse().unwrap()];
        assert!(profile_for(&policy(vec![only.clone()]), "10.0.0.1:80").is_none());
        only.from = vec!["198.51.100.0/24".parse().unwrap()];
        assert!(profile_for(&policy(vec![only]), "10.0.0.1:80").is_some());
    }

    #[test]
    fn rejects_malformed_targets() {
        for bad in [
            "",
            "10.0.0.0/33",
            "*",
            "*.",
            "1.2.3",
            "0x7f.1",
            "a/b",
            "a b",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
