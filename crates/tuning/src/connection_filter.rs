// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filter expressions for connections: the part of the grammar of ss(8) and tcpdump(8) that is about addresses
//! and ports.
//!
//! ```text
//! any       = all { ("or" | "||") all }
//! all       = condition { ["and" | "&&"] condition }
//! condition = ("not" | "!") condition | "(" any ")" | ("dst" | "src") "port" PORTS
//!           | ("dport" | "sport" | "port") PORTS | ("dst" | "src" | "host") ADDRESS
//! ```

use ipnet::IpNet;
use longhaul_command::exit::Refusal;
use std::{
    iter::Peekable,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::{FromStr, SplitWhitespace},
};

/// Maximum nesting of parentheses and `not`.
const DEPTH_MAX: usize = 32;

/// Maximum number of characters of the input that a message repeats.
const ECHOED_CHARS_MAX: usize = 100;

/// Grammar of a filter, for messages about invalid ones.
const GRAMMAR: &str = "say 'sport N', 'dport N', 'port N' (or N-M), 'src ADDRESS[/LENGTH]', 'dst …' or 'host …', \
                       with and, or, not, ( )";

/// Condition on both ends of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    Any(Vec<Filter>),
    All(Vec<Filter>),
    Not(Box<Filter>),
    Port(End, RangeInclusive<u16>),
    Address(End, IpNet),
}

/// End of a connection that a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Remote end.
    Destination,
    /// Local end.
    Source,
    Either,
}

impl Filter {
    /// Every connection.
    pub(crate) const EVERYTHING: Self = Self::All(Vec::new());

    /// Parses the value of `--filter`.
    pub(crate) fn of_flag(text: &str) -> anyhow::Result<Self> {
        text.parse().map_err(|why: String| {
            Refusal::option("filter", format!("--filter {:?}: {why}", truncate(text)))
        })
    }

    /// Whether the connection between these ends matches.
    pub(crate) fn matches(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let at = |end: &End, is: &dyn Fn(SocketAddr) -> bool| match end {
            End::Destination => is(remote),
            End::Source => is(local),
            End::Either => is(remote) || is(local),
        };
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.matches(local, remote)),
            Self::All(parts) => parts.iter().all(|part| part.matches(local, remote)),
            Self::Not(part) => !part.matches(local, remote),
            Self::Port(end, ports) => at(end, &|address| ports.contains(&address.port())),
            Self::Address(end, network) => at(end, &|address| network.contains(&address.ip())),
        }
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map_err(|why| format!("{why}; {GRAMMAR}"))
    }
}

/// Returns at most [`ECHOED_CHARS_MAX`] characters of the text.
fn truncate(text: &str) -> String {
    match text.char_indices().nth(ECHOED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Parses a filter. Parentheses, `!` and `=` need no spaces around them.
fn parse(text: &str) -> Result<Filter, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let spaced = spaced.replace('!', " ! ").replace('=', " ");
    let mut words = spaced.split_whitespace().peekable();
    if words.peek().is_none() {
        return Err("it is empty".to_owned());
    }
    let filter = parse_any(&mut words, 0)?;
    match words.next() {
        None => Ok(filter),
        Some(word) => Err(format!("{:?} is unexpected", truncate(word))),
    }
}

type Words<'a> = Peekable<SplitWhitespace<'a>>;

fn next_is(words: &mut Words<'_>, wanted: &[&str]) -> bool {
    words.next_if(|word| wanted.contains(word)).is_some()
}

fn parse_any(words: &mut Words<'_>, depth: usize) -> Result<Filter, String> {
    let mut parts = vec![parse_all(words, depth)?];
    while next_is(words, &["or", "||"]) {
        parts.push(parse_all(words, depth)?);
    }
    Ok(unwrap_single(parts, Filter::Any))
}

fn parse_all(words: &mut Words<'_>, depth: usize) -> Result<Filter, String> {
    let mut parts = vec![parse_condition(words, depth)?];
    let continues = |word: &&str| !["or", "||", ")"].contains(word);
    while next_is(words, &["and", "&&"]) || words.peek().is_some_and(continues) {
        parts.push(parse_condition(words, depth)?);
    }
    Ok(unwrap_single(parts, Filter::All))
}

fn unwrap_single(mut parts: Vec<Filter>, joined: fn(Vec<Filter>) -> Filter) -> Filter {
    match parts.len() {
        1 => parts.remove(0),
        _ => joined(parts),
    }
}

fn parse_condition(words: &mut Words<'_>, depth: usize) -> Result<Filter, String> {
    if depth > DEPTH_MAX {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    match words.next().ok_or("something is missing at its end")? {
        "not" | "!" => Ok(Filter::Not(Box::new(parse_condition(words, depth + 1)?))),
        "(" => {
            let inner = parse_any(words, depth + 1)?;
            let closed = next_is(words, &[")"]);
            closed
                .then_some(inner)
                .ok_or_else(|| "a ')' is missing".to_owned())
        }
        "dport" => parse_port(End::Destination, words),
        "sport" => parse_port(End::Source, words),
        "port" => parse_port(End::Either, words),
        "dst" if next_is(words, &["port"]) => parse_port(End::Destination, words),
        "src" if next_is(words, &["port"]) => parse_port(End::Source, words),
        "dst" => parse_address(End::Destination, words),
        "src" => parse_address(End::Source, words),
        "host" => parse_address(End::Either, words),
        word => Err(format!("{:?} is not a condition", truncate(word))),
    }
}

fn parse_port(end: End, words: &mut Words<'_>) -> Result<Filter, String> {
    let text = words.next().ok_or("a port is missing at its end")?;
    let number = |text: &str| text.trim_start_matches(':').parse::<u16>();
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (number(low), number(high)) {
        (Ok(low), Ok(high)) if low <= high => Ok(Filter::Port(end, low..=high)),
        _ => Err(format!(
            "{:?} is not a port such as 5201 or 50000-51000",
            truncate(text)
        )),
    }
}

fn parse_address(end: End, words: &mut Words<'_>) -> Result<Filter, String> {
    let text = words.next().ok_or("an address is missing at its end")?;
    Ok(Filter::Address(end, parse_network(text)?))
}

/// Parses a network or one address. `IpNet`'s own parser requires a length, and reads 010 as 10.
fn parse_network(text: &str) -> Result<IpNet, String> {
    let shown = truncate(text);
    let invalid = || format!("{shown:?} is not an address such as 10.0.0.0/8 or fd00::1");
    let (address, length) = text.split_once('/').unzip();
    let address: IpAddr = address.unwrap_or(text).parse().map_err(|_| invalid())?;
    let host = IpNet::from(address);
    let length = length.map_or(Ok(host.prefix_len()), |length| {
        length.parse().map_err(|_| invalid())
    })?;
    let length_max = host.max_prefix_len();
    IpNet::new(address, length)
        .map_err(|_| format!("{shown:?}: its LENGTH is at most {length_max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str, local: &str, remote: &str) -> bool {
        let filter: Filter = filter.parse().unwrap();
        filter.matches(local.parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn matches_ports_and_networks() {
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
    fn names_the_invalid_part() {
        let deep = "(".repeat(40) + "port 1" + &")".repeat(40);
        for (bad, expected) in [
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
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn truncates_long_input_in_messages() {
        for bad in [
            format!("dport {}", "5".repeat(100_000)),
            "port 1 or ".repeat(10_000),
        ] {
            let error = Filter::of_flag(&bad).unwrap_err().to_string();
            assert!(error.len() < 600 && error.contains('…'), "{error}");
        }
    }

    #[test]
    fn all_conditions_must_hold() {
        let (local, remote) = ("10.0.0.1:999", "10.9.0.2:5201");
        let at = |filter| matches(filter, local, remote);
        assert!(at("dport 5201"));
        assert!(!at("sport 5201"));
        assert!(at("port 5201 and src 10.0.0.1"));
        assert!(!at("dport 5201 and dst 10.8.0.0/16"));
        assert!(at("dport 5201 and dst 10.9.0.0/16"));
        assert!(at("dst 0.0.0.0/0"));
        assert!(!at("dst ::/0"));
        assert!(
            at("src 10.0.0.3/30 and not dst 10.9.0.3"),
            "bits behind the prefix do not count"
        );
        let six = |filter, local| matches(filter, local, "[2001::1]:2");
        assert!(six("dst ::/0 and src fe80::/10", "[fe80::1]:1"));
        assert!(!six("src fe80::/10", "[fec0::1]:1"));
        assert!(Filter::EVERYTHING.matches(local.parse().unwrap(), remote.parse().unwrap()));
    }

    #[test]
    fn invalid_conditions_are_refused_with_the_grammar() {
        for bad in [
            "",
            "dport",
            "dport x",
            "dport 65536",
            "dst 10.0.0.0/33",
            "dst 10.0.0.010/8",
            "dst 10.0.0.0/",
            "to 1.2.3.4",
            "dst host",
        ] {
            let error = bad.parse::<Filter>().unwrap_err();
            assert!(error.contains("say 'sport N'"), "{error}");
        }
    }
}
