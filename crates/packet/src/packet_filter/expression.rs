// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser of packet filters, from text to a tree of primitives.

use crate::ip::{TCP, UDP, Version};
use std::net::IpAddr;

/// Reason why a filter is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Syntax error: a word where another kind of word should be.
    #[error("filter {text:?}: {found} where {wanted} should be")]
    Unexpected {
        /// The whole filter.
        text: String,
        /// The word that was found, quoted, or `the end`.
        found: String,
        /// Description of the words that are allowed there.
        wanted: &'static str,
    },
    /// Brackets and negations that are nested too deep.
    #[error("filter: more than {NESTING_MAX} brackets and negations inside each other")]
    TooDeep,
    /// More instructions than the kernel accepts.
    #[error("filter: {length} instructions, of which the kernel takes 4096: shorten it")]
    TooLong {
        /// Number of instructions of the program.
        length: usize,
    },
    /// Text that is not output of `tcpdump -ddd`, with the reason.
    #[error("not the output of `tcpdump -ddd EXPRESSION`: {0}")]
    Listing(String),
}

impl FilterError {
    pub(super) fn listing(reason: &str) -> Self {
        Self::Listing(reason.to_owned())
    }
}

/// Protocol number of SCTP.
pub(super) const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Deepest nesting of brackets and negations, so that parsing does not exhaust the stack.
const NESTING_MAX: usize = 64;

/// A filter, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Primitive(Primitive),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// A single condition on a packet ("primitive" in pcap-filter(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Primitive {
    /// `ip`, `ip6`.
    Network(Version),
    /// `tcp` and other transport protocols, over a single version of IP or over both.
    Transport(u8, Option<Version>),
    /// `host`, `net`.
    Net {
        direction: Direction,
        address: IpAddr,
        prefix: u8,
    },
    /// `port`, `portrange`; without a protocol, every protocol that has ports.
    Port {
        direction: Direction,
        protocol: Option<u8>,
        first: u16,
        last: u16,
    },
}

/// Direction qualifier: the address or port fields that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Source,
    Destination,
    Either,
}

/// Parses `text`; `None` if it has no words.
pub(super) fn parse(text: &str) -> Result<Option<Expression>, FilterError> {
    let mut parser = Parser {
        text,
        words: words(text),
        at: 0,
        depth: 0,
        previous: Qualifiers::NONE,
    };
    if parser.words.is_empty() {
        return Ok(None);
    }
    let expression = parser.expression()?;
    match parser.peek() {
        "" => Ok(Some(expression)),
        _ => Err(parser.unexpected("and, or, or the end")),
    }
}

/// Splits a filter into words. Each bracket and each `!` is a word of its own, even without spaces around it.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let mut rest = part;
        while let Some(at) = rest.find(['(', ')', '!']) {
            words.extend([&rest[..at], &rest[at..=at]]);
            rest = &rest[at + 1..];
        }
        words.push(rest);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Qualifiers before the value of a primitive. They also apply to bare values that follow, as in `port 80 or 443`.
#[derive(Debug, Clone, Copy)]
struct Qualifiers {
    version: Option<Version>,
    protocol: Option<u8>,
    direction: Direction,
    kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
}

impl Qualifiers {
    const NONE: Self = Self {
        version: None,
        protocol: None,
        direction: Direction::Either,
        kind: None,
    };
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
    depth: usize,
    /// Qualifiers of the primitive before this one.
    previous: Qualifiers,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        self.words.get(self.at).copied().unwrap_or_default()
    }

    /// Consumes the next word if it is one of `words`, and returns whether it was.
    fn accept(&mut self, words: &[&str]) -> bool {
        let found = words.contains(&self.peek());
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, wanted: &'static str) -> FilterError {
        let found = match self.peek() {
            "" => "the end".to_owned(),
            word => format!("{word:?}"),
        };
        FilterError::Unexpected {
            text: self.text.to_owned(),
            found,
            wanted,
        }
    }

    fn expression(&mut self) -> Result<Expression, FilterError> {
        let mut left = self.term()?;
        loop {
            let operator = if self.accept(&["and", "&&"]) {
                Expression::And
            } else if self.accept(&["or", "||"]) {
                Expression::Or
            } else {
                return Ok(left);
            };
            left = operator(Box::new(left), Box::new(self.term()?));
        }
    }

    fn term(&mut self) -> Result<Expression, FilterError> {
        if self.accept(&["not", "!"]) {
            return Ok(Expression::Not(Box::new(self.nested(Self::term)?)));
        }
        if !self.accept(&["("]) {
            return self.primitive();
        }
        let inside = self.nested(Self::expression)?;
        if self.accept(&[")"]) {
            Ok(inside)
        } else {
            Err(self.unexpected("and, or, or )"))
        }
    }

    /// Parses a part inside brackets or after a negation.
    fn nested(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<Expression, FilterError>,
    ) -> Result<Expression, FilterError> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(FilterError::TooDeep);
        }
        let inside = part(self);
        self.depth -= 1;
        inside
    }

    fn primitive(&mut self) -> Result<Expression, FilterError> {
        let begin = self.at;
        let mut qualifiers = Qualifiers::NONE;
        let protocol = self.protocol(&mut qualifiers);
        let has_direction = self.direction(&mut qualifiers);
        qualifiers.kind = self.kind();
        if self.at == begin {
            // A bare value takes the qualifiers of the primitive before it; a bare value at the start is a host.
            qualifiers = self.previous;
        } else if let (Some(primitive), false, None) = (protocol, has_direction, qualifiers.kind) {
            return Ok(Expression::Primitive(primitive));
        }
        self.previous = qualifiers;
        match qualifiers.kind {
            None | Some(Kind::Host) => self.host(&qualifiers),
            Some(Kind::Net) => self.net(&qualifiers),
            Some(Kind::Port | Kind::PortRange) => self.port(&qualifiers),
        }
    }

    /// Parses a protocol name, which is a primitive by itself if no `src`, `dst`, `host`, `net` or `port` follows it.
    fn protocol(&mut self, qualifiers: &mut Qualifiers) -> Option<Primitive> {
        let primitive = match self.peek() {
            "ip" => Primitive::Network(Version::V4),
            "ip6" => Primitive::Network(Version::V6),
            "tcp" => Primitive::Transport(TCP, None),
            "udp" => Primitive::Transport(UDP, None),
            "sctp" => Primitive::Transport(SCTP, None),
            "icmp" => Primitive::Transport(ICMP, Some(Version::V4)),
            "icmp6" => Primitive::Transport(ICMP6, Some(Version::V6)),
            _ => return None,
        };
        self.at += 1;
        match primitive {
            Primitive::Network(version) => qualifiers.version = Some(version),
            Primitive::Transport(protocol, _) => qualifiers.protocol = Some(protocol),
            Primitive::Net { .. } | Primitive::Port { .. } => {}
        }
        Some(primitive)
    }

    /// Parses `src` or `dst`, and returns whether there was one.
    fn direction(&mut self, qualifiers: &mut Qualifiers) -> bool {
        qualifiers.direction = match self.peek() {
            "src" => Direction::Source,
            "dst" => Direction::Destination,
            _ => return false,
        };
        self.at += 1;
        true
    }

    fn kind(&mut self) -> Option<Kind> {
        let kind = match self.peek() {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            _ => return None,
        };
        self.at += 1;
        Some(kind)
    }

    fn host(&mut self, qualifiers: &Qualifiers) -> Result<Expression, FilterError> {
        const WANTED: &str = "host, net, port, portrange, a protocol or an IP address (no name)";
        let address: IpAddr = self.peek().parse().map_err(|_| self.unexpected(WANTED))?;
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        self.net_primitive(qualifiers, address, prefix)
    }

    fn net(&mut self, qualifiers: &Qualifiers) -> Result<Expression, FilterError> {
        let (address, prefix) = parse_network(self.peek())
            .ok_or_else(|| self.unexpected("ADDRESS/PREFIX with nothing behind the prefix"))?;
        self.net_primitive(qualifiers, address, prefix)
    }

    /// Checks the qualifiers, builds the primitive for the network at the current word, and consumes that word.
    fn net_primitive(
        &mut self,
        qualifiers: &Qualifiers,
        address: IpAddr,
        prefix: u8,
    ) -> Result<Expression, FilterError> {
        let version = if address.is_ipv4() {
            Version::V4
        } else {
            Version::V6
        };
        if qualifiers.protocol.is_some() {
            return Err(self.unexpected("port or portrange after tcp, udp or sctp"));
        }
        if qualifiers.version.is_some_and(|wanted| wanted != version) {
            return Err(self.unexpected("an address of the IP version before it"));
        }
        self.at += 1;
        Ok(Expression::Primitive(Primitive::Net {
            direction: qualifiers.direction,
            address,
            prefix,
        }))
    }

    fn port(&mut self, qualifiers: &Qualifiers) -> Result<Expression, FilterError> {
        let protocols_with_ports = [None, Some(TCP), Some(UDP), Some(SCTP)];
        if qualifiers.version.is_some() || !protocols_with_ports.contains(&qualifiers.protocol) {
            return Err(self.unexpected("tcp, udp or sctp before port; it"));
        }
        let (first, last) = parse_ports(self.peek())
            .ok_or_else(|| self.unexpected("a port number from 0 to 65535, or two as N-M"))?;
        self.at += 1;
        Ok(Expression::Primitive(Primitive::Port {
            direction: qualifiers.direction,
            protocol: qualifiers.protocol,
            first,
            last,
        }))
    }
}

/// Parses `ADDRESS/PREFIX`; `None` if the host part is not zero, which libpcap refuses too.
fn parse_network(word: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = word.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let host_part = bits.checked_shl(prefix.into()).unwrap_or(0);
    (prefix <= width && host_part == 0).then_some((address, prefix))
}

/// Parses `N` or `N-M`.
fn parse_ports(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}
