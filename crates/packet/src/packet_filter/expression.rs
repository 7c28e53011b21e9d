// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text to a tree of tests.

use crate::ip::{TCP, UDP, Version};
use std::net::IpAddr;

/// Why a filter is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A word where another belongs.
    #[error("filter {text:?}: {found} where {wanted} should be")]
    Unexpected {
        /// The whole filter.
        text: String,
        /// What stands there.
        found: String,
        /// What should.
        wanted: &'static str,
    },
    /// Brackets in brackets without end.
    #[error("filter: more than {NESTING_MAX} brackets and negations inside each other")]
    TooDeep,
    /// More than the kernel takes.
    #[error("filter: {length} instructions, of which the kernel takes 4096: shorten it")]
    TooLong {
        /// How many it would have been.
        length: usize,
    },
    /// Output of `tcpdump -ddd` that it is not.
    #[error("what `tcpdump -ddd FILTER` prints {0}")]
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

/// Of brackets and negations.
const NESTING_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Test(Test),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// `ip`, `ip6`.
    Network(Version),
    /// `tcp` and the like, over one IP or both.
    Transport(u8, Option<Version>),
    /// `host`, `net`.
    Net {
        end: End,
        address: IpAddr,
        prefix: u8,
    },
    /// `port`, `portrange`; no protocol is any that has ports.
    Port {
        end: End,
        protocol: Option<u8>,
        first: u16,
        last: u16,
    },
}

/// Which end of a packet's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
    Either,
}

/// The tree of `text`, or `None` for one without words.
pub(super) fn parse(text: &str) -> Result<Option<Expression>, FilterError> {
    let mut parser = Parser {
        text,
        words: words(text),
        at: 0,
        depth: 0,
        before: Qualifiers::BARE,
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

/// Brackets and `!` are words of their own wherever they stand.
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

/// What stands before a test's value, and holds for bare values after it.
#[derive(Debug, Clone, Copy)]
struct Qualifiers {
    version: Option<Version>,
    protocol: Option<u8>,
    end: End,
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
    const BARE: Self = Self {
        version: None,
        protocol: None,
        end: End::Either,
        kind: None,
    };
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
    depth: usize,
    before: Qualifiers,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        self.words.get(self.at).copied().unwrap_or_default()
    }

    /// Whether the next word is one of these; then it is taken.
    fn take(&mut self, words: &[&str]) -> bool {
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
        let mut all = self.term()?;
        loop {
            let join = if self.take(&["and", "&&"]) {
                Expression::And
            } else if self.take(&["or", "||"]) {
                Expression::Or
            } else {
                return Ok(all);
            };
            all = join(Box::new(all), Box::new(self.term()?));
        }
    }

    fn term(&mut self) -> Result<Expression, FilterError> {
        if self.take(&["not", "!"]) {
            return Ok(Expression::Not(Box::new(self.nested(Self::term)?)));
        }
        if !self.take(&["("]) {
            return self.test();
        }
        let inside = self.nested(Self::expression)?;
        match self.take(&[")"]) {
            true => Ok(inside),
            false => Err(self.unexpected("and, or, or )")),
        }
    }

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

    fn test(&mut self) -> Result<Expression, FilterError> {
        let begin = self.at;
        let mut qualifiers = Qualifiers::BARE;
        let protocol = self.protocol(&mut qualifiers);
        let end = self.end(&mut qualifiers);
        qualifiers.kind = self.kind();
        if self.at == begin {
            // A value alone is as the test before it; the first one is a host.
            qualifiers = self.before;
        } else if let (Some(test), false, None) = (protocol, end, qualifiers.kind) {
            return Ok(Expression::Test(test));
        }
        self.before = qualifiers;
        match qualifiers.kind {
            None | Some(Kind::Host) => self.host(&qualifiers),
            Some(Kind::Net) => self.net(&qualifiers),
            Some(Kind::Port | Kind::PortRange) => self.port(&qualifiers),
        }
    }

    /// A protocol's name, which is a test by itself if nothing follows it.
    fn protocol(&mut self, qualifiers: &mut Qualifiers) -> Option<Test> {
        let test = match self.peek() {
            "ip" => Test::Network(Version::V4),
            "ip6" => Test::Network(Version::V6),
            "tcp" => Test::Transport(TCP, None),
            "udp" => Test::Transport(UDP, None),
            "sctp" => Test::Transport(SCTP, None),
            "icmp" => Test::Transport(ICMP, Some(Version::V4)),
            "icmp6" => Test::Transport(ICMP6, Some(Version::V6)),
            _ => return None,
        };
        self.at += 1;
        match test {
            Test::Network(version) => qualifiers.version = Some(version),
            Test::Transport(protocol, _) => qualifiers.protocol = Some(protocol),
            Test::Net { .. } | Test::Port { .. } => {}
        }
        Some(test)
    }

    fn end(&mut self, qualifiers: &mut Qualifiers) -> bool {
        qualifiers.end = match self.peek() {
            "src" => End::Source,
            "dst" => End::Destination,
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
        self.in_net(qualifiers, address, prefix)
    }

    fn net(&mut self, qualifiers: &Qualifiers) -> Result<Expression, FilterError> {
        let (address, prefix) = network(self.peek())
            .ok_or_else(|| self.unexpected("ADDRESS/PREFIX with nothing behind the prefix"))?;
        self.in_net(qualifiers, address, prefix)
    }

    fn in_net(
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
        Ok(Expression::Test(Test::Net {
            end: qualifiers.end,
            address,
            prefix,
        }))
    }

    fn port(&mut self, qualifiers: &Qualifiers) -> Result<Expression, FilterError> {
        let with_ports = [None, Some(TCP), Some(UDP), Some(SCTP)];
        if qualifiers.version.is_some() || !with_ports.contains(&qualifiers.protocol) {
            return Err(self.unexpected("tcp, udp or sctp before port; it"));
        }
        let (first, last) = ports(self.peek())
            .ok_or_else(|| self.unexpected("a port number from 0 to 65535, or two as N-M"))?;
        self.at += 1;
        Ok(Expression::Test(Test::Port {
            end: qualifiers.end,
            protocol: qualifiers.protocol,
            first,
            last,
        }))
    }
}

/// `ADDRESS/PREFIX` whose host part is zero, as libpcap asks for.
fn network(word: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = word.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let host_part = bits.checked_shl(prefix.into()).unwrap_or(0);
    (prefix <= width && host_part == 0).then_some((address, prefix))
}

fn ports(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}
