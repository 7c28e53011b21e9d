// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns for addresses: networks in CIDR notation, names, ranges of ports; and properties of a single address.

use crate::destination::Destination;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use std::{
    fmt::{self, Display},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
};

/// A network such as `10.0.0.0/8`, `2001:db8::/32`, or a single address. One of IPv4-mapped addresses is one of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix(IpNet);

impl Prefix {
    /// All addresses of both families.
    pub const EVERYTHING: [Self; 2] = [
        Self(IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
        Self(IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)),
    ];

    /// Whether its addresses are of IPv4.
    pub fn is_ipv4(self) -> bool {
        self.0.addr().is_ipv4()
    }

    /// Whether all of `other` is in this network.
    pub fn covers(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether `ip`, taken out of an IPv4-mapped address if it is one, is in this network.
    pub fn contains(self, ip: IpAddr) -> bool {
        self.0.contains(&ip.to_canonical())
    }

    /// `IpNet`'s own parser wants a length, and reads 010 as 10.
    fn read(text: &str) -> Option<Self> {
        let (address, len) = text.split_once('/').unzip();
        let address: IpAddr = address.unwrap_or(text).parse().ok()?;
        let whole = IpNet::from(address);
        let len = len.map_or(Some(whole.max_prefix_len()), |len| len.parse().ok())?;
        let (plain, plain_len) = (address.to_canonical(), len.checked_sub(MAPPED_LEN));
        let network = match plain_len {
            Some(len) if plain != address => IpNet::new(plain, len),
            _ => IpNet::new(address, len),
        };
        network.ok().map(Self)
    }
}

/// Bits before the IPv4 address in an IPv4-mapped one.
const MAPPED_LEN: u8 = 96;

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let prefix = Self::read(text).ok_or_else(|| PrefixError::Form(text.to_owned()))?;
        let network = prefix.0.trunc();
        if network == prefix.0 {
            Ok(prefix)
        } else {
            Err(PrefixError::HostBits(text.to_owned(), Self(network)))
        }
    }
}

/// Reason why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Not an address, with or without a prefix length.
    #[error("{0:?} is not a network (for example 10.0.0.0/8 or 2001:db8::/32)")]
    Form(String),
    /// The address has bits beyond the prefix length. Then either the address or the length is mistyped.
    #[error("{0} is an address in the network {1}: did you mean {1}?")]
    HostBits(String, Prefix),
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        text(input)
    }
}

/// One port, or all from one to another: `443`, `8000-8999`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(RangeInclusive<u16>);

impl Ports {
    /// From the first to the last.
    pub fn range(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }

    /// Whether all of `range` is in this one.
    pub fn covers(&self, range: &RangeInclusive<u16>) -> bool {
        self.contains(*range.start()) && self.contains(*range.end())
    }

    /// Whether `port` is one of these.
    pub fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!(
                "{text:?} is not a port or a range of ports (for example 443 or 8000-8999)"
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// As a number or as text.
impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a port (443) or a range of ports (\"8000-8999\")"
        )]
        enum Written {
            One(i64),
            Text(String),
        }
        let deserialize_text = match Written::deserialize(input)? {
            Written::One(port) => port.to_string(),
            Written::Text(text) => text,
        };
        deserialize_text.parse().map_err(serde::de::Error::custom)
    }
}

/// The IPv4 address that a translator or a tunnel takes out of `ip`: NAT64 (RFC 6052, RFC 8215),
/// IPv4-compatible (RFC 4291 §2.5.5.1) and -translated (RFC 2765 §2.1) addresses, 6to4 (RFC 3056).
pub fn embedded_ipv4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let high_and_low =
        |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match ip.segments() {
        [0x64, 0xff9b, 0 | 1, .., high, low]
        | [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x2002, high, low, ..] => Some(high_and_low(high, low)),
        _ => None,
    }
}

/// The address, of IPv6 its /64, of which one host has all. Loopback is itself.
pub fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        other => other,
    }
}

/// A value that is written as text.
pub fn text<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(input)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// A network, a name, or all names under a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Addresses; a name's are looked at once it is resolved.
    Network(Prefix),
    /// `example.org`, compared without case, a final dot ignored.
    Name(String),
    /// `*.example.org`: everything below it, not itself.
    Domain(String),
}

impl Target {
    /// Whether it holds wherever `other` holds.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(network), Self::Network(other)) => network.covers(*other),
            (Self::Domain(domain), Self::Name(other)) => is_below(other, domain),
            (Self::Domain(domain), Self::Domain(other)) => {
                domain == other || is_below(other, domain)
            }
            _ => self == other,
        }
    }

    /// Whether `destination` is one of these.
    pub fn matches(&self, destination: &Destination) -> bool {
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
pub fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(prefix) => return Ok(Self::Network(prefix)),
            Err(error @ PrefixError::HostBits(..)) => return Err(error.to_string()),
            Err(PrefixError::Form(_)) => {}
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
                "{text:?} is not a network or a name (for example 10.0.0.0/8, 2001:db8::/32, \
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
        text(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(prefix: &str, ip: &str) -> bool {
        prefix
            .parse::<Prefix>()
            .unwrap()
            .contains(ip.parse().unwrap())
    }

    #[test]
    fn matches_at_the_boundary_of_a_prefix() {
        assert!(contains("10.0.0.0/8", "10.255.255.255"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::"));
        assert!(!contains("2001:db8::/32", "2001:db9::"));
    }

    #[test]
    fn matches_everything_and_mapped_addresses() {
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.0.0.0"));
        assert!(contains("::ffff:192.0.2.7", "192.0.2.7"));
        assert!(!contains("::/0", "192.0.2.7"));
        assert!(!contains("::fffe:0:0/95", "192.0.2.7"));
    }

    #[test]
    fn covers_smaller_networks() {
        let covers = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse::<Prefix>().unwrap());
            one.covers(other)
        };
        assert!(covers("10.0.0.0/8", "10.1.0.0/16"));
        assert!(covers("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!covers("10.1.0.0/16", "10.0.0.0/8"));
        assert!(covers("10.0.0.0/8", "::ffff:10.1.0.0/112"));
        assert!(!covers("::/0", "10.0.0.0/8"));
    }

    #[test]
    fn prints_a_pattern_as_it_was_written() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn rejects_bad_networks() {
        for bad in [
            "10.0.0.0/33",
            "::/129",
            "::ffff:10.0.0.0/129",
            "10.0.0/8",
            "010.0.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "net",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rejects_host_bits_and_names_the_network() {
        for (text, network) in [
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::ffff:10.0.0.1/104", "10.0.0.0/8"),
        ] {
            let message =
                format!("{text} is an address in the network {network}: did you mean {network}?");
            assert_eq!(text.parse::<Prefix>().unwrap_err().to_string(), message);
            assert_eq!(text.parse::<Target>().unwrap_err(), message);
        }
    }

    #[test]
    fn includes_both_ends_of_a_port_range() {
        let ports: Ports = "8000-8002".parse().unwrap();
        let inside: Vec<u16> = (7999..=8003).filter(|p| ports.contains(*p)).collect();
        assert_eq!(inside, [8000, 8001, 8002]);
        assert_eq!(ports.to_string(), "8000-8002");
        assert_eq!("443".parse::<Ports>().unwrap().to_string(), "443");
    }

    #[test]
    fn rejects_bad_ports() {
        for bad in ["0", "65536", "9-8", "http", "", "1-"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }

    #[test]
    fn groups_ipv6_addresses_by_64() {
        let at = |text: &str| network(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert!(at("::1").is_loopback());
    }
}
