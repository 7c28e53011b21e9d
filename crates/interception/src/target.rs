// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets of interception: networks and ports.

use longhaul_linux::netfilter::Family;
use longhaul_protocol::networks::{Ports, Prefix, PrefixError, text};
use serde::{Deserialize, Deserializer};
use std::{fmt, str::FromStr};

/// Configuration of interception at a transparent listener: which connections, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterceptConfig {
    /// Networks and ports, all of the listener's family; not empty.
    pub targets: Vec<Target>,
    /// Exceptions from the targets.
    pub bypass: Vec<Target>,
    /// Whether upstream legs keep the client's address as their source.
    pub keeps_source: bool,
    /// Whether this host's own connections are intercepted too.
    pub local: bool,
    /// Whether a client's SYN is held until the destination has answered.
    pub verify: bool,
}

/// Connections to any of these networks, on any of these ports.
///
/// As text: networks, separated by commas, then a colon and ports or ranges of ports, separated by
/// commas. IPv6 networks need brackets, except a single network without ports:
/// `10.0.0.0/8:80,443`, `[2001:db8::/32]:8000-8999`, `10.0.0.0/8,192.0.2.7`, `::/0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Not empty.
    pub networks: Vec<Prefix>,
    /// Empty for all ports.
    pub ports: Vec<Ports>,
}

impl Target {
    /// Returns the target's networks of one address family with its ports; `None` if it has no such network.
    pub fn of_family(&self, family: Family) -> Option<Self> {
        let is_of_family = |network: &Prefix| network.is_ipv4() == (family == Family::Ip);
        let networks: Vec<_> = self.networks.iter().copied().filter(is_of_family).collect();
        (!networks.is_empty()).then(|| Self {
            networks,
            ports: self.ports.clone(),
        })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(network) => {
                return Ok(Self {
                    networks: vec![network],
                    ports: Vec::new(),
                });
            }
            Err(error @ PrefixError::HostBits(..)) => return Err(error.to_string()),
            Err(PrefixError::Form(_)) => {}
        }
        let (networks, ports) = split_ports(text);
        let ports = ports.map(|ports| ports.split(',').map(str::parse).collect());
        Ok(Self {
            networks: networks.split(',').map(network).collect::<Result<_, _>>()?,
            ports: ports.transpose()?.unwrap_or_default(),
        })
    }
}

/// Splits a target into networks and ports, at the first colon outside brackets.
fn split_ports(text: &str) -> (&str, Option<&str>) {
    let mut in_brackets = false;
    let colon = text.find(|c| {
        in_brackets = (in_brackets || c == '[') && c != ']';
        c == ':' && !in_brackets
    });
    match colon {
        Some(index) => (&text[..index], Some(&text[index + 1..])),
        None => (text, None),
    }
}

fn network(text: &str) -> Result<Prefix, String> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    bare.unwrap_or(text).parse().map_err(|error| match error {
        PrefixError::HostBits(..) => error.to_string(),
        PrefixError::Form(_) => format!(
            "{text:?} is not a network (for example 10.0.0.0/8:80,443 or [2001:db8::/32]:8000-8999)"
        ),
    })
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |words: Vec<String>| words.join(",");
        let network = |network: &Prefix| {
            if network.is_ipv4() {
                network.to_string()
            } else {
                format!("[{network}]")
            }
        };
        f.write_str(&join(self.networks.iter().map(network).collect()))?;
        if self.ports.is_empty() {
            Ok(())
        } else {
            write!(
                f,
                ":{}",
                join(self.ports.iter().map(Ports::to_string).collect())
            )
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        text(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_networks_and_ports_of_both_families() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.0/8:80,443", "10.0.0.0/8:80,443"),
            (
                "10.0.0.0/8,192.0.2.7:8000-8999",
                "10.0.0.0/8,192.0.2.7/32:8000-8999",
            ),
            ("[2001:db8::/32]:80", "[2001:db8::/32]:80"),
            (
                "10.0.0.0/8,[2001:db8::/32]:80",
                "10.0.0.0/8,[2001:db8::/32]:80",
            ),
            ("[::/0]", "[::/0]"),
            ("::/0", "[::/0]"),
        ] {
            assert_eq!(
                text.parse::<Target>().unwrap().to_string(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_invalid_networks_and_ports() {
        for bad in [
            "",
            "10.0.0.0/8:",
            "10.0.0.0/33",
            "10.0.0.0/8:0",
            ":80",
            "10.0.0.0/8,",
            "web:80",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn splits_networks_by_family() {
        let both: Target = "10.0.0.0/8,[2001:db8::/32]:80".parse().unwrap();
        assert_eq!(
            both.of_family(Family::Ip).unwrap().to_string(),
            "10.0.0.0/8:80"
        );
        let six: Target = "::/0".parse().unwrap();
        assert_eq!(six.of_family(Family::Ip), None);
    }
}
