// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections are meant: a grammar as of ss(8) and tcpdump(8), as far as it is about addresses
//! and ports.
//!
//! ```text
//! any  = all { ("or" | "||") all }
//! all  = one { ["and" | "&&"] one }
//! one  = ("not" | "!") one | "(" any ")" | end "port" PORTS | ("dport" | "sport" | "port") PORTS
//!      | ("dst" | "src" | "host") ADDRESS
//! ```

use longhaul_linux::sock_diag::Connection;
use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
};

/// Parentheses and `not` within one another.
const DEPTH_MAX: usize = 32;
/// Longest filter, bytes.
const LENGTH_MAX: usize = 4096;

/// A condition on both ends of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filter {
    Any(Vec<Filter>),
    All(Vec<Filter>),
    Not(Box<Filter>),
    Port(End, RangeInclusive<u16>),
    Address(End, Network),
}

/// Which end a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The other one.
    Destination,
    /// This one.
    Source,
    Either,
}

/// An address and how many of its first bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Filter {
    /// Whether the connection is meant.
    pub(super) fn matches(&self, connection: &Connection) -> bool {
        let at = |end: &End, is: &dyn Fn(&SocketAddr) -> bool| match end {
            End::Destination => is(&connection.remote),
            End::Source => is(&connection.local),
            End::Either => is(&connection.remote) || is(&connection.local),
        };
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.matches(connection)),
            Self::All(parts) => parts.iter().all(|part| part.matches(connection)),
            Self::Not(part) => !part.matches(connection),
            Self::Port(end, ports) => at(end, &|place| ports.contains(&place.port())),
            Self::Address(end, network) => at(end, &|place| network.contains(place.ip())),
        }
    }
}

impl Network {
    fn contains(self, other: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u8| {
            let rest = u32::from(width - self.prefix);
            a.checked_shr(rest).unwrap_or(0) == b.checked_shr(rest).unwrap_or(0)
        };
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, p)| (a, Some(p)));
        let wrong = || format!("{text:?} is no address, as 10.0.0.0/8 or fd00::1");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(width), |prefix| prefix.parse().map_err(|_| wrong()))?;
        if prefix > width {
            return Err(format!("{text:?}: a prefix is at most {width}"));
        }
        Ok(Self { address, prefix })
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("a filter has at most {LENGTH_MAX} characters"));
        }
        let words = words(text);
        let mut rest = words.as_slice();
        if rest.is_empty() {
            return Err("it is empty; say for example 'dport 5201'".to_owned());
        }
        let filter = any(&mut rest, 0)?;
        match rest.first() {
            None => Ok(filter),
            Some(word) => Err(format!("{word:?} has no place there")),
        }
    }
}

/// Words; parentheses, `!` and `=` stand for themselves.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for letter in text.chars() {
        match letter {
            '(' | ')' | '!' => spaced.extend([' ', letter, ' ']),
            '=' => spaced.push(' '),
            _ => spaced.push(letter),
        }
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

type Words<'a> = &'a [String];

fn take<'a>(rest: &mut Words<'a>) -> Option<&'a str> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(first)
}

fn take_if(rest: &mut Words<'_>, wanted: &[&str]) -> bool {
    let found = rest
        .first()
        .is_some_and(|word| wanted.contains(&word.as_str()));
    if found {
        *rest = &rest[1..];
    }
    found
}

fn any(rest: &mut Words<'_>, depth: usize) -> Result<Filter, String> {
    let mut parts = vec![all(rest, depth)?];
    while take_if(rest, &["or", "||"]) {
        parts.push(all(rest, depth)?);
    }
    Ok(alone_or(parts, Filter::Any))
}

fn all(rest: &mut Words<'_>, depth: usize) -> Result<Filter, String> {
    let mut parts = vec![one(rest, depth)?];
    let ends = |word: &String| ["or", "||", ")"].contains(&word.as_str());
    while take_if(rest, &["and", "&&"]) || rest.first().is_some_and(|word| !ends(word)) {
        parts.push(one(rest, depth)?);
    }
    Ok(alone_or(parts, Filter::All))
}

fn alone_or(mut parts: Vec<Filter>, joined: fn(Vec<Filter>) -> Filter) -> Filter {
    match parts.len() {
        1 => parts.remove(0),
        _ => joined(parts),
    }
}

fn one(rest: &mut Words<'_>, depth: usize) -> Result<Filter, String> {
    if depth > DEPTH_MAX {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    match take(rest).ok_or("something is missing at its end")? {
        "not" | "!" => Ok(Filter::Not(Box::new(one(rest, depth + 1)?))),
        "(" => {
            let inner = any(rest, depth + 1)?;
            let closed = take_if(rest, &[")"]);
            closed
                .then_some(inner)
                .ok_or_else(|| "a ')' is missing".to_owned())
        }
        "dport" => port(End::Destination, rest),
        "sport" => port(End::Source, rest),
        "port" => port(End::Either, rest),
        "dst" if take_if(rest, &["port"]) => port(End::Destination, rest),
        "src" if take_if(rest, &["port"]) => port(End::Source, rest),
        "dst" => address(End::Destination, rest),
        "src" => address(End::Source, rest),
        "host" => address(End::Either, rest),
        word => Err(format!(
            "{word:?} is no condition: dport, sport, port, dst, src and host are, with and, or, not"
        )),
    }
}

fn port(end: End, rest: &mut Words<'_>) -> Result<Filter, String> {
    let text = take(rest).ok_or("a port is missing at its end")?;
    let number = |text: &str| text.trim_start_matches(':').parse::<u16>();
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (number(low), number(high)) {
        (Ok(low), Ok(high)) if low <= high => Ok(Filter::Port(end, low..=high)),
        _ => Err(format!("{text:?} is no port, as 5201 or 50000-51000")),
    }
}

fn address(end: End, rest: &mut Words<'_>) -> Result<Filter, String> {
    let text = take(rest).ok_or("an address is missing at its end")?;
    Ok(Filter::Address(end, text.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(local: &str, remote: &str) -> Connection {
        Connection::between(local.parse().unwrap(), remote.parse().unwrap())
    }

    fn matches(filter: &str, local: &str, remote: &str) -> bool {
        let filter: Filter = filter.parse().unwrap();
        filter.matches(&connection(local, remote))
    }

    #[test]
    fn ends_ports_and_networks() {
        let at = |filter| matches(filter, "10.0.0.1:4000", "192.0.2.7:5201");
        for yes in [
            "dport 5201",
            "dst port 5201",
            "dport = :5201",
            "dport 5000-5300",
            "port 4000",
            "sport 4000 dst 192.0.2.0/24",
            "host 10.0.0.1",
            "src 10.0.0.1/32 and dst 0.0.0.0/0",
            "not dport 22 and (sport 1 or dport 5201)",
            "dport 1 or dport 2 or ! dport 22",
            "dport 22 && sport 1 || src 10.0.0.0/8",
        ] {
            assert!(at(yes), "{yes}");
        }
        for no in [
            "sport 5201",
            "dport 5202-6000",
            "dst 10.0.0.0/8",
            "not host 10.0.0.1",
            "dst ::/0",
            "dport 5201 and (sport 1 or sport 2)",
        ] {
            assert!(!at(no), "{no}");
        }
        assert!(matches("dst fd00::/8", "[fd00::1]:1", "[fd00::2]:2"));
        assert!(!matches("dst fd00::3", "[fd00::1]:1", "[fd00::2]:2"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let deep = "(".repeat(40) + "port 1" + &")".repeat(40);
        for (bad, says) in [
            ("", "empty"),
            ("dport", "missing"),
            ("dport http", "http"),
            ("dport 70000", "70000"),
            ("dport 9-3", "9-3"),
            ("dst 10.0.0.0/33", "at most 32"),
            ("dst example.org", "example.org"),
            ("(dport 1", "')'"),
            ("dport 1)", "\")\""),
            ("dport 1 or", "missing"),
            ("ether 1", "ether"),
            (&deep, "nested"),
        ] {
            let error = bad.parse::<Filter>().unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
