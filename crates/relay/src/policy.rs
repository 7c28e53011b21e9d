// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may go where, and which way: rules in order, the first that fits decides.

use crate::{local::embedded, peer::Peer, ports::Ports, prefix::Prefix, profile::Profile};
use longhaul_protocol::destination::Destination;
use serde::{Deserialize, Deserializer};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

/// What a rule may look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The listener's name.
    pub(crate) listener: &'a str,
    pub(crate) client: IpAddr,
    pub(crate) destination: &'a Destination,
}

/// Relays to pass, nearest first; none is straight to the destination.
pub(crate) type Chain = Vec<Arc<Peer>>;

/// Where connections may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WayOut {
    /// To be tried in order; never empty.
    pub(crate) chains: Vec<Chain>,
    /// Of the leg straight to the destination.
    pub(crate) profile: Arc<Profile>,
}

/// One rule: conditions, all of which must hold, and what follows. A condition without values
/// holds.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) listeners: Vec<String>,
    pub(crate) from: Vec<Prefix>,
    pub(crate) to: Vec<Target>,
    pub(crate) ports: Vec<Ports>,
    /// `None` refuses.
    pub(crate) way: Option<WayOut>,
}

impl WayOut {
    /// Whether a chain is left whose peers, if it has any, are up.
    pub(crate) fn has_hope(&self) -> bool {
        self.chains.iter().any(has_hope)
    }
}

/// Whether its peers are up, as far as this relay knows: a further one that another chain begins with
/// is known by connections from here, which say nothing of those from the relay before it.
pub(crate) fn has_hope(chain: &Chain) -> bool {
    let mut counted = chain
        .iter()
        .enumerate()
        .filter(|(n, peer)| *n == 0 || peer.is_beyond);
    counted.all(|(_, peer)| peer.health.is_up())
}

/// All rules, and what holds when none fits.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) otherwise: WayOut,
}

impl Policy {
    /// The way out, or `None` where it is forbidden.
    pub(crate) fn decide(&self, question: Question<'_>) -> Option<&WayOut> {
        match self.rules.iter().find(|rule| rule.fits(question)) {
            Some(rule) => rule.way.as_ref(),
            None => Some(&self.otherwise),
        }
    }
}

impl Policy {
    /// The relays that lead to `peer`, if this one never connects to it itself.
    pub(crate) fn way_to(&self, peer: &Arc<Peer>) -> Chain {
        let ways = self.rules.iter().filter_map(|rule| rule.way.as_ref());
        let mut chains = ways.flat_map(|way| &way.chains);
        let before = |chain: &Chain| Some(chain[..chain.iter().position(|p| p == peer)?].to_vec());
        match peer.is_beyond {
            true => chains.find_map(before).unwrap_or_default(),
            false => Chain::new(),
        }
    }

    /// The ways that clients of a listener may be sent, whoever they are and wherever they want to go.
    pub(crate) fn ways_of(&self, listener: &str) -> Vec<&WayOut> {
        let mut ways = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.is_for(listener)) {
            ways.extend(&rule.way);
            if rule.is_for_all() {
                return ways;
            }
        }
        ways.push(&self.otherwise);
        ways
    }

    /// Whether a client of this listener may be sent straight to `destination` at the first try.
    pub(crate) fn goes_straight(&self, listener: &str, destination: &Destination) -> bool {
        let straight = |way: &WayOut| way.chains[0].is_empty();
        for rule in &self.rules {
            if !rule.is_for(listener) || !rule.leads_to(destination) {
                continue;
            }
            if rule.way.as_ref().is_some_and(straight) {
                return true;
            }
            if rule.from.is_empty() {
                return false;
            }
        }
        straight(&self.otherwise)
    }
}

impl Rule {
    fn is_for(&self, listener: &str) -> bool {
        any(&self.listeners, |name| name == listener)
    }

    /// Whether it decides for every client of its listeners.
    fn is_for_all(&self) -> bool {
        self.from.is_empty() && self.to.is_empty() && self.ports.is_empty()
    }

    fn fits(&self, question: Question<'_>) -> bool {
        let Question {
            listener,
            client,
            destination,
        } = question;
        self.is_for(listener)
            && any(&self.from, |prefix| prefix.contains(client))
            && self.leads_to(destination)
    }

    fn leads_to(&self, destination: &Destination) -> bool {
        any(&self.to, |target| self.aims_at(target, destination))
            && any(&self.ports, |ports| ports.contains(destination.port()))
    }

    /// What refuses an IPv4 address refuses it inside of an IPv6 one, too: a translator may lead
    /// there. Nobody is sent on for it, since the IPv6 address may be another host.
    fn aims_at(&self, target: &Target, destination: &Destination) -> bool {
        let inside = || translated(destination).is_some_and(|inside| target.is(&inside));
        target.is(destination) || self.way.is_none() && inside()
    }
}

/// The IPv4 address inside of an IPv6 one.
fn translated(destination: &Destination) -> Option<Destination> {
    match destination {
        Destination::Address(SocketAddr::V6(to)) => {
            embedded(*to.ip()).map(|ip| Destination::from_ip(ip.into(), to.port()))
        }
        _ => None,
    }
}

fn any<T>(values: &[T], holds: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

/// A network, a name, or all names under a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Addresses; a name's are looked at once it is resolved.
    Network(Prefix),
    /// `example.org`, compared without case, a final dot ignored.
    Name(String),
    /// `*.example.org`: everything below it, not itself.
    Domain(String),
}

impl Target {
    /// Whether it holds wherever `other` holds.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(network), Self::Network(other)) => network.covers(*other),
            (Self::Domain(domain), Self::Name(other)) => is_below(other, domain),
            (Self::Domain(domain), Self::Domain(other)) => {
                domain == other || is_below(other, domain)
            }
            _ => self == other,
        }
    }

    fn is(&self, destination: &Destination) -> bool {
        match (self, destination) {
            (Self::Network(prefix), Destination::Address(address)) => prefix.contains(address.ip()),
            (Self::Name(name), Destination::Name(asked, _)) => *name == canonical(asked.as_str()),
            (Self::Domain(domain), Destination::Name(asked, _)) => {
                is_below(&canonical(asked.as_str()), domain)
            }
            _ => false,
        }
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    let below = name.strip_suffix(domain);
    below.is_some_and(|below| below.ends_with('.'))
}

/// RFC 4343, RFC 1034 §3.1.
fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(prefix) = text.parse() {
            return Ok(Self::Network(prefix));
        }
        let (domain, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let looks_like_a_name = !text.contains('/')
            && name.contains(|c: char| c.is_ascii_alphabetic())
            && matches!(Destination::from_host(name, 1), Ok(Destination::Name(..)));
        match (looks_like_a_name, domain) {
            (true, true) => Ok(Self::Domain(canonical(name))),
            (true, false) => Ok(Self::Name(canonical(name))),
            (false, _) => Err(format!(
                "{text:?} is no network and no name (for example 10.0.0.0/8, 2001:db8::/32, \
                 example.org or *.example.org)"
            )),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(prefix) => prefix.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Domain(domain) => write!(f, "*.{domain}"),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        super::config::settings::text(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(profile: &str) -> WayOut {
        let profile = Profile {
            name: profile.to_owned(),
            ..Profile::default()
        };
        WayOut {
            chains: vec![Vec::new()],
            profile: profile.into(),
        }
    }

    fn rule(to: &[&str], ports: &[&str], way: Option<WayOut>) -> Rule {
        Rule {
            listeners: Vec::new(),
            from: Vec::new(),
            to: to.iter().map(|t| t.parse().unwrap()).collect(),
            ports: ports.iter().map(|p| p.parse().unwrap()).collect(),
            way,
        }
    }

    fn policy(rules: Vec<Rule>) -> Policy {
        Policy {
            rules,
            otherwise: way("otherwise"),
        }
    }

    fn asked(policy: &Policy, destination: &str) -> Option<String> {
        let destination = destination.parse().unwrap();
        let question = Question {
            listener: "l",
            client: [192, 0, 2, 1].into(),
            destination: &destination,
        };
        Some(policy.decide(question)?.profile.name.clone())
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = policy(vec![
            rule(&["10.1.0.0/16"], &["22"], None),
            rule(&["10.0.0.0/8"], &[], Some(way("ten"))),
            rule(&["10.1.0.0/16"], &[], None),
        ]);
        assert_eq!(asked(&policy, "10.1.2.3:22"), None);
        assert_eq!(asked(&policy, "10.1.2.3:80").as_deref(), Some("ten"));
        assert_eq!(asked(&policy, "11.1.2.3:80").as_deref(), Some("otherwise"));
    }

    #[test]
    fn an_ipv4_address_inside_of_another_only_refuses() {
        let inside = "[64:ff9b::10.1.2.3]:80";
        let refusing = policy(vec![rule(&["10.0.0.0/8"], &[], None)]);
        assert_eq!(asked(&refusing, inside), None);
        let leading = policy(vec![rule(&["10.0.0.0/8"], &[], Some(way("ten")))]);
        assert_eq!(asked(&leading, inside).as_deref(), Some("otherwise"));
    }

    #[test]
    fn names_are_compared_as_dns_does() {
        let policy = policy(vec![rule(&["Example.org", "*.example.net"], &[], None)]);
        assert_eq!(asked(&policy, "example.ORG.:80"), None);
        assert_eq!(asked(&policy, "a.b.example.net:80"), None);
        for other in ["example.net:80", "badexample.net:80", "www.example.org:80"] {
            assert!(asked(&policy, other).is_some(), "{other}");
        }
    }

    #[test]
    fn listener_and_client_are_conditions_too() {
        let mut only = rule(&[], &[], None);
        only.listeners = vec!["other".into()];
        assert!(asked(&policy(vec![only.clone()]), "10.0.0.1:80").is_some());
        only.listeners = vec!["l".into()];
        only.from = vec!["192.0.2.0/24".parse().unwrap()];
        assert!(asked(&policy(vec![only.clone()]), "10.0.0.1:80").is_none());
        only.from = vec!["198.51.100.0/24".parse().unwrap()];
        assert!(asked(&policy(vec![only]), "10.0.0.1:80").is_some());
    }

    #[test]
    fn refuses_what_is_no_target() {
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
