// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 0-RTT TCP Convert Protocol (RFC 8803), longhaul's relay-to-relay preamble. No I/O.
//!
//! The client sends one message and its own bytes right behind it; the converter answers with one
//! message before the first relayed byte. longhaul adds private TLVs (RFC 8803 §10.2.2 keeps 192–255
//! free for this):
//!
//! * [`NAME`]: the destination's host name, to be resolved at the last relay. The Connect TLV then
//!   carries the port and the unspecified address.
//! * [`HOP`], one for each relay still to pass, in order. Nested Convert messages would need no
//!   private TLV, but would hide from a relay that its next leg leads to another relay: it could
//!   take no ready connection from its pool, encrypt nothing, and the client would read one answer
//!   a hop. With the list, each relay strips itself off and one answer comes back.
//! * [`HOP_LIMIT`]: relays that the message may still pass, so that relays which point at each
//!   other end the chase; and, where the first versions had padding and look at nothing, how long the
//!   answer may wait ([`Request::patience`]), how long the asker waits ([`Request::time`]), and
//!   whether its client is elsewhere ([`Request::from_elsewhere`]).
//! * [`STRIPES`]: this connection is the first of several that carry one byte stream together
//!   ([`crate::stripe`]): behind the request and behind the answer come pieces with headers.
//! * [`JOIN`], alone in its message: this connection is a further one of such a group.
//! * [`CAUSE`], behind the error of a refusal: what failed at which relay.
//!
//! A converter that does not know them answers "Unsupported Message", as the RFC asks.

mod cause;

pub use cause::{CAUSE, Cause};

use crate::destination::{Destination, HostName};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// The Convert service's TCP port.
pub const PORT: u16 = 5124;
/// The longest message: the length field is a byte that counts 32-bit words (RFC 8803 §6.1).
pub const MESSAGE_LEN_MAX: usize = 255 * WORD;
/// The most relays that one message may name, and the most that it passes.
pub const HOPS_MAX: usize = 16;

/// Private TLV: host name, zero-padded.
pub const NAME: u8 = 0xC0;
/// Private TLV: the next relay, as port and address (the layout of the Connect TLV).
pub const HOP: u8 = 0xC1;
/// Private TLV: relays that may still be passed, one byte, [`Request::patience`] in tens of
/// milliseconds, one byte, [`Request::time`] in tens of milliseconds, two bytes, and flags, one byte
/// ([`Request::from_elsewhere`] is 1). The first versions take what is behind the patience for padding,
/// and zeros at the end are left out.
pub const HOP_LIMIT: u8 = 0xC2;
const FROM_ELSEWHERE: u8 = 1;
/// Private TLV: a group's id (16 bytes) and how many connections it may have, zero-padded.
pub const STRIPES: u8 = 0xC3;
/// Private TLV: the id of the group that this connection joins, and its number in it, zero-padded.
pub const JOIN: u8 = 0xC4;

/// The most connections of one group.
pub const STRIPES_MAX: u8 = 16;

/// The most that a request can say with [`Request::patience`].
pub const PATIENCE_MAX: Duration = PATIENCE_UNIT.saturating_mul(u8::MAX as u32);
/// The most that a request can say with [`Request::time`].
pub const TIME_MAX: Duration = PATIENCE_UNIT.saturating_mul(u16::MAX as u32);
/// The port that [`Request::check`] names: the discard service's (RFC 863), which nothing connects to.
const CHECK_PORT: u16 = 9;
const PATIENCE_UNIT: Duration = Duration::from_millis(10);

// RFC 8803 §6.1.
const VERSION: u8 = 1;
const MAGIC: u16 = 0x2263;
const WORD: usize = 4;
const HEADER_LEN: usize = WORD;
// RFC 8803 §6.2.
const CONNECT: u8 = 0x0A;
const ERROR: u8 = 0x1E;

/// RFC 8803 §6.2.8, table 3: why a connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The header's version is not 1.
    UnsupportedVersion,
    /// The message can't be read.
    MalformedMessage,
    /// A TLV that the converter does not know.
    UnsupportedMessage,
    /// The converter wants a cookie.
    MissingCookie,
    /// The client may not use this converter, or not for this destination.
    NotAuthorized,
    /// A TCP option that the converter does not know.
    UnsupportedTcpOption,
    /// The converter has no room for another connection.
    ResourceExceeded,
    /// The converter's network failed, or nobody answered.
    NetworkFailure,
    /// The destination answered with RST.
    ConnectionReset,
    /// ICMP said that the destination can't be reached.
    DestinationUnreachable,
    /// A code that the RFC does not list.
    Other(u8),
}

impl ErrorCode {
    const TABLE: [(Self, u8); 10] = [
        (Self::UnsupportedVersion, 0),
        (Self::MalformedMessage, 1),
        (Self::UnsupportedMessage, 2),
        (Self::MissingCookie, 3),
        (Self::NotAuthorized, 32),
        (Self::UnsupportedTcpOption, 33),
        (Self::ResourceExceeded, 64),
        (Self::NetworkFailure, 65),
        (Self::ConnectionReset, 96),
        (Self::DestinationUnreachable, 97),
    ];

    fn from_code(code: u8) -> Self {
        let known = Self::TABLE.iter().find(|(_, c)| *c == code);
        known.map_or(Self::Other(code), |(error, _)| *error)
    }

    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => Self::TABLE
                .iter()
                .find(|(e, _)| *e == known)
                .map_or(0, |(_, c)| *c),
        }
    }
}

/// Why bytes are not a Convert message that longhaul understands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The magic number is missing: the peer does not speak Convert.
    #[error("the peer does not speak TCP Convert (RFC 8803)")]
    Magic,
    /// A version other than 1.
    #[error("TCP Convert version {0}, not 1")]
    Version(u8),
    /// A length of zero, or one that runs past the message.
    #[error("TCP Convert message with a wrong length field")]
    Length,
    /// A TLV that must be understood and is not.
    #[error("TCP Convert TLV {0:#04x} is not supported")]
    Unsupported(u8),
    /// A TLV with an impossible value, or one too many of it.
    #[error("TCP Convert TLV {0:#04x} is malformed")]
    Malformed(u8),
    /// A request without Connect TLV.
    #[error("TCP Convert request without a Connect TLV")]
    NoConnect,
}

impl ConvertError {
    /// What to answer (RFC 8803 §6.2.8).
    #[must_use]
    pub fn answer(&self) -> Answer {
        Answer::refused(match self {
            Self::Version(_) => ErrorCode::UnsupportedVersion,
            Self::Unsupported(_) => ErrorCode::UnsupportedMessage,
            _ => ErrorCode::MalformedMessage,
        })
    }
}

/// The name of a group of connections: random, so that nobody can guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId(pub [u8; GroupId::LEN]);

impl GroupId {
    const LEN: usize = 16;

    /// The id and the byte behind it.
    fn parse_with(value: &[u8]) -> Option<(Self, u8)> {
        let id = value.get(..Self::LEN)?.try_into().ok()?;
        Some((Self(id), *value.get(Self::LEN)?))
    }

    fn encode_with(self, byte: u8) -> Vec<u8> {
        [&self.0[..], &[byte]].concat()
    }
}

/// A wish to carry the stream over several connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// How the others will name the group.
    pub group: GroupId,
    /// Connections that the group may have, this one included; 2 to [`STRIPES_MAX`].
    pub count: u8,
}

impl Stripes {
    fn parse(value: &[u8]) -> Option<Self> {
        let (group, count) = GroupId::parse_with(value)?;
        (2..=STRIPES_MAX)
            .contains(&count)
            .then_some(Self { group, count })
    }
}

/// A further connection of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// Which group.
    pub group: GroupId,
    /// Its number in it, 1 to [`STRIPES_MAX`] − 1; the one that made the request is 0.
    pub index: u8,
}

impl Join {
    /// The message.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut message = Message::new();
        message.tlv(JOIN, &self.group.encode_with(self.index));
        message.finish()
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (group, index) = GroupId::parse_with(value)?;
        (1..STRIPES_MAX)
            .contains(&index)
            .then_some(Self { group, index })
    }
}

/// The first message on a connection between relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// A connection to somewhere.
    Request(Request),
    /// A further connection for a request that was accepted before.
    Join(Join),
}

impl Opening {
    /// Reads either and says how long it was; `Ok(None)` while it is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ConvertError> {
        let Some(body) = body(input)? else {
            return Ok(None);
        };
        let mut tlvs = Tlvs(body);
        let opening = match (tlvs.next(), tlvs.next()) {
            (Some(Ok((JOIN, value))), None) => {
                Self::Join(Join::parse(value).ok_or(ConvertError::Malformed(JOIN))?)
            }
            _ => Self::Request(Request::from_body(body)?),
        };
        Ok(Some((opening, HEADER_LEN + body.len())))
    }
}

/// What a client, or the relay before, asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The far end.
    pub destination: Destination,
    /// The relays still to pass, nearest first; at most [`HOPS_MAX`].
    pub hops: Vec<SocketAddr>,
    /// How many relays the request may still pass, this one included.
    pub hop_limit: u8,
    /// How long a good answer may wait for the destination's first bytes, to arrive with them in one
    /// segment. Zero where somebody waits for the answer. What is sent is rounded down to 10 ms and
    /// is at most [`PATIENCE_MAX`].
    pub patience: Duration,
    /// How long the answer is waited for; zero is not said. What is sent is rounded down to 10 ms and
    /// is at most [`TIME_MAX`].
    pub time: Duration,
    /// The stream is to be carried over several connections, of which this is the first.
    pub stripes: Option<Stripes>,
    /// Whoever wants it is not on the host of the relay that asks, or may not be.
    pub from_elsewhere: bool,
}

impl Request {
    /// A request that no relay has passed on yet.
    #[must_use]
    pub fn new(destination: Destination, hops: Vec<SocketAddr>) -> Self {
        let hop_limit = HOPS_MAX as u8;
        Self {
            destination,
            hops,
            hop_limit,
            patience: Duration::ZERO,
            time: Duration::ZERO,
            stripes: None,
            from_elsewhere: false,
        }
    }

    /// The request of a relay that wants to know whether another one would serve it. It names one
    /// more relay and may pass none: every version that knows [`HOP`] and [`HOP_LIMIT`] answers at
    /// once, without a connection of its own. Relays that know this request accept it.
    #[must_use]
    pub fn check() -> Self {
        let nowhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, CHECK_PORT));
        Self {
            hop_limit: 0,
            ..Self::new(Destination::Address(nowhere), vec![nowhere])
        }
    }

    /// The same for the last of these relays, to be sent to the one before the first. They pass it on
    /// as any request; its destination is for documentation (RFC 5737) and never connected to.
    #[must_use]
    pub fn check_over(hops: &[SocketAddr], time: Duration) -> Self {
        let check = Self::check();
        Self {
            destination: Destination::Address((Ipv4Addr::new(192, 0, 2, 1), CHECK_PORT).into()),
            hop_limit: hops.len() as u8,
            hops: [hops, &check.hops].concat(),
            time,
            ..check
        }
    }

    /// Whether it is the request that [`Request::check`] makes, or what relays on the way have made of
    /// [`Request::check_over`].
    #[must_use]
    pub fn is_check(&self) -> bool {
        let check = Self::check();
        (self.hop_limit, &self.hops, self.stripes) == (0, &check.hops, None)
    }

    /// The message.
    ///
    /// # Panics
    /// With more than [`HOPS_MAX`] hops, which the configuration refuses.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.hops.len() <= HOPS_MAX, "{} hops", self.hops.len());
        let mut message = Message::new();
        message.tlv(CONNECT, &endpoint(connect_address(&self.destination)));
        if let Destination::Name(name, _) = &self.destination {
            message.tlv(NAME, name.as_str().as_bytes());
        }
        for hop in &self.hops {
            message.tlv(HOP, &endpoint(*hop));
        }
        message.tlv(HOP_LIMIT, &self.limits());
        if let Some(Stripes { group, count }) = self.stripes {
            message.tlv(STRIPES, &group.encode_with(count));
        }
        message.finish()
    }

    fn limits(&self) -> Vec<u8> {
        let tens = self.time.as_millis() / PATIENCE_UNIT.as_millis();
        let [high, low] = u16::try_from(tens).unwrap_or(u16::MAX).to_be_bytes();
        let flags = FROM_ELSEWHERE * u8::from(self.from_elsewhere);
        let value = [
            self.hop_limit,
            patience_byte(self.patience),
            high,
            low,
            flags,
        ];
        let len = match value[2..] {
            [0, 0, 0] => 2,
            [.., 0] => 4,
            _ => 5,
        };
        value[..len].to_vec()
    }

    /// Reads a request and says how long it was; `Ok(None)` while it is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ConvertError> {
        let Some(body) = body(input)? else {
            return Ok(None);
        };
        Ok(Some((Self::from_body(body)?, HEADER_LEN + body.len())))
    }

    fn from_body(body: &[u8]) -> Result<Self, ConvertError> {
        let mut parts = RequestParts::default();
        for tlv in Tlvs(body) {
            let (kind, value) = tlv?;
            parts.take(kind, value)?;
        }
        parts.request()
    }
}

#[derive(Default)]
struct RequestParts {
    connect: Option<SocketAddr>,
    name: Option<HostName>,
    hops: Vec<SocketAddr>,
    limits: Option<Limits>,
    stripes: Option<Stripes>,
}

impl RequestParts {
    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), ConvertError> {
        let malformed = ConvertError::Malformed(kind);
        let repeated = match kind {
            CONNECT => self
                .connect
                .replace(parse_endpoint(value).ok_or(malformed)?)
                .is_some(),
            NAME => self
                .name
                .replace(parse_name(value).ok_or(malformed)?)
                .is_some(),
            HOP_LIMIT => self
                .limits
                .replace(Limits::parse(value).ok_or(malformed)?)
                .is_some(),
            STRIPES => self
                .stripes
                .replace(Stripes::parse(value).ok_or(malformed)?)
                .is_some(),
            HOP => {
                self.hops.push(parse_endpoint(value).ok_or(malformed)?);
                self.hops.len() > HOPS_MAX
            }
            other => return Err(ConvertError::Unsupported(other)),
        };
        match repeated {
            true => Err(ConvertError::Malformed(kind)),
            false => Ok(()),
        }
    }

    fn request(self) -> Result<Request, ConvertError> {
        let connect = self.connect.ok_or(ConvertError::NoConnect)?;
        let destination = match self.name {
            Some(name) => Destination::from_name(name, connect.port()),
            None => Destination::from_ip(connect.ip(), connect.port()),
        };
        let Limits {
            hop_limit,
            patience,
            time,
            from_elsewhere,
        } = self.limits.unwrap_or_default();
        Ok(Request {
            destination,
            hops: self.hops,
            hop_limit,
            patience,
            time,
            stripes: self.stripes,
            from_elsewhere,
        })
    }
}

/// The converter's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The connection stands; relayed bytes follow.
    Accepted,
    /// There is no connection.
    Refused {
        /// Why.
        code: ErrorCode,
        /// For [`ErrorCode::DestinationUnreachable`]: the ICMP code (RFC 8803 §6.2.8).
        detail: u8,
    },
}

impl Answer {
    /// A refusal without detail.
    #[must_use]
    pub fn refused(code: ErrorCode) -> Self {
        Self::Refused { code, detail: 0 }
    }

    /// The message.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut message = Message::new();
        if let Self::Refused { code, detail } = self {
            message.tlv(ERROR, &[code.code(), detail]);
        }
        message.finish()
    }

    /// How many more bytes are needed before [`Answer::parse`] can finish, given those read so
    /// far; 0 when the answer is whole. Reading exactly so much leaves the relayed bytes that
    /// follow in the socket, for splice.
    pub fn missing(input: &[u8]) -> Result<usize, ConvertError> {
        match input.len() {
            read @ 0..HEADER_LEN => Ok(HEADER_LEN - read),
            read => Ok(message_len(input)?.saturating_sub(read)),
        }
    }

    /// Reads an answer and says how long it was; `Ok(None)` while it is incomplete. TLVs other
    /// than Error (such as Extended TCP Header) are information that longhaul has no use for; Connect
    /// belongs to requests, and what has it is no answer.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ConvertError> {
        let Some(body) = body(input)? else {
            return Ok(None);
        };
        let mut answer = Self::Accepted;
        for tlv in Tlvs(body) {
            let (kind, value) = tlv?;
            // Only a request has it: somebody returns what was sent.
            if kind == CONNECT {
                return Err(ConvertError::Malformed(CONNECT));
            }
            if kind == ERROR {
                let code = *value.first().ok_or(ConvertError::Malformed(ERROR))?;
                let detail = value.get(1).copied().unwrap_or(0);
                answer = Self::Refused {
                    code: ErrorCode::from_code(code),
                    detail,
                };
            }
        }
        Ok(Some((answer, HEADER_LEN + body.len())))
    }
}

/// A message under construction; the total length is filled in at the end.
struct Message(Vec<u8>);

impl Message {
    fn new() -> Self {
        let [high, low] = MAGIC.to_be_bytes();
        Self(vec![VERSION, 0, high, low])
    }

    /// RFC 8803 §6.2: type, length in words with these two bytes included, value, zero padding.
    fn tlv(&mut self, kind: u8, value: &[u8]) {
        let words = (2 + value.len()).div_ceil(WORD);
        let end = self.0.len() + words * WORD;
        self.0.extend([kind, words as u8]);
        self.0.extend(value);
        self.0.resize(end, 0);
    }

    fn finish(mut self) -> Vec<u8> {
        assert!(self.0.len() <= MESSAGE_LEN_MAX, "{} bytes", self.0.len());
        self.0[1] = (self.0.len() / WORD) as u8;
        self.0
    }
}

/// RFC 8803 §6.1: checks the fixed header and returns the message's length in bytes.
fn message_len(input: &[u8]) -> Result<usize, ConvertError> {
    // The magic first: without it, the other fields mean nothing.
    if input[2..HEADER_LEN] != MAGIC.to_be_bytes() {
        return Err(ConvertError::Magic);
    }
    match (input[0], input[1]) {
        (VERSION, 0) => Err(ConvertError::Length),
        (VERSION, words) => Ok(usize::from(words) * WORD),
        (other, _) => Err(ConvertError::Version(other)),
    }
}

/// The TLVs of a whole message, or `None` while bytes are missing.
fn body(input: &[u8]) -> Result<Option<&[u8]>, ConvertError> {
    if input.len() < HEADER_LEN {
        return Ok(None);
    }
    let len = message_len(input)?;
    Ok(input.get(HEADER_LEN..len))
}

/// Type and value, padding included, of each TLV.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u8, &'a [u8]), ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, &words) = (self.0.first()?, self.0.get(1)?);
        let len = usize::from(words) * WORD;
        if words == 0 || len > self.0.len() {
            self.0 = &[];
            return Some(Err(ConvertError::Length));
        }
        let (tlv, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(Ok((kind, &tlv[2..])))
    }
}

fn connect_address(destination: &Destination) -> SocketAddr {
    match destination {
        Destination::Address(address) => *address,
        Destination::Name(_, port) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)),
    }
}

/// RFC 8803 §6.2.5: port, then a 128-bit address, IPv4 as IPv4-mapped IPv6.
fn endpoint(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut bytes = [0; 18];
    bytes[..2].copy_from_slice(&address.port().to_be_bytes());
    bytes[2..].copy_from_slice(&ip.octets());
    bytes
}

/// The TCP options that may follow the address (RFC 8803 §6.2.5) are ignored: kernel TCP
/// negotiates its own on each leg.
fn parse_endpoint(value: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(value.get(..2)?.try_into().ok()?);
    let octets: [u8; 16] = value.get(2..18)?.try_into().ok()?;
    let ip = IpAddr::V6(octets.into()).to_canonical();
    (port > 0).then_some(SocketAddr::new(ip, port))
}

fn patience_byte(patience: Duration) -> u8 {
    let tens = patience.as_millis() / PATIENCE_UNIT.as_millis();
    tens.try_into().unwrap_or(u8::MAX)
}

/// What [`HOP_LIMIT`] says.
struct Limits {
    hop_limit: u8,
    patience: Duration,
    time: Duration,
    from_elsewhere: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hop_limit: HOPS_MAX as u8,
            patience: Duration::ZERO,
            time: Duration::ZERO,
            from_elsewhere: false,
        }
    }
}

impl Limits {
    /// Bytes behind those that are known say nothing.
    fn parse(value: &[u8]) -> Option<Self> {
        let (&hop_limit, &patience) = (value.first()?, value.get(1)?);
        let byte = |at: usize| value.get(at).copied().unwrap_or(0);
        let time = u16::from_be_bytes([byte(2), byte(3)]);
        let in_tens = |tens: u16| PATIENCE_UNIT * u32::from(tens);
        Some(Self {
            hop_limit,
            patience: in_tens(patience.into()),
            time: in_tens(time),
            from_elsewhere: byte(4) & FROM_ELSEWHERE != 0,
        })
    }
}

fn parse_name(value: &[u8]) -> Option<HostName> {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    HostName::new(std::str::from_utf8(&value[..end]).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Request {
        let hops = vec![
            "192.0.2.1:5124".parse().unwrap(),
            "[2001:db8::1]:9".parse().unwrap(),
        ];
        Request::new("host.test:80".parse().unwrap(), hops)
    }

    #[test]
    fn plain_connect_is_the_rfc_s_layout() {
        let request = Request::new("192.0.2.5:80".parse().unwrap(), vec![]);
        let message = request.encode();
        // Fixed header, 7 words: 1 header, 5 Connect, 1 hop limit.
        assert_eq!(message[..4], [1, 7, 0x22, 0x63]);
        assert_eq!(message[4..8], [0x0A, 5, 0, 80]);
        assert_eq!(
            message[8..24],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 5]
        );
        assert_eq!(message[24..], [0xC2, 1, 16, 0]);
    }

    /// Relays that know no patience take the byte for padding, and say zero.
    #[test]
    fn patience_is_where_padding_was() {
        let bytes = |patience| {
            let request = Request {
                patience,
                ..Request::new("192.0.2.5:80".parse().unwrap(), vec![])
            };
            request.encode()[24..].to_vec()
        };
        assert_eq!(bytes(Duration::ZERO), [0xC2, 1, 16, 0]);
        assert_eq!(bytes(Duration::from_millis(1019)), [0xC2, 1, 16, 101]);
        assert_eq!(bytes(PATIENCE_MAX), [0xC2, 1, 16, 255]);
        assert_eq!(bytes(Duration::from_secs(3600)), [0xC2, 1, 16, 255]);
    }

    /// Relays that know no time look at the first two bytes only.
    #[test]
    fn time_is_behind_what_others_look_at() {
        let time = Duration::from_secs(10);
        let request = Request { time, ..example() };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes).unwrap().unwrap().0, request);
        assert!(
            bytes.ends_with(&[0xC2, 2, 16, 0, 3, 232, 0, 0]),
            "{bytes:?}"
        );
        let long = Request {
            time: TIME_MAX * 2,
            ..example()
        };
        let parsed = Request::parse(&long.encode()).unwrap().unwrap().0;
        assert_eq!(parsed.time, TIME_MAX);
    }

    #[test]
    fn request_reads_back_and_leaves_the_data_behind_it() {
        let mut bytes = example().encode();
        let len = bytes.len();
        for end in 0..len {
            assert_eq!(Request::parse(&bytes[..end]), Ok(None), "{end}");
        }
        bytes.extend(b"GET / HTTP/1.1");
        assert_eq!(Request::parse(&bytes), Ok(Some((example(), len))));
    }

    #[test]
    fn a_request_that_comes_back_is_no_answer() {
        let answer = Answer::parse(&example().encode());
        assert_eq!(answer, Err(ConvertError::Malformed(CONNECT)));
    }

    #[test]
    fn a_check_over_others_is_one_at_the_last() {
        let hops = [5124, 5125].map(|port| SocketAddr::from(([192, 0, 2, 9], port)));
        let bytes = Request::check_over(&hops, Duration::from_secs(1)).encode();
        let mut request = Request::parse(&bytes).unwrap().unwrap().0;
        for hop in hops {
            assert!(!request.is_check());
            assert_eq!(request.hops.remove(0), hop);
            request.hop_limit -= 1;
        }
        request.from_elsewhere = true;
        assert!(request.is_check());
    }

    #[test]
    fn who_is_from_elsewhere_costs_nothing_but_where_it_is_said() {
        let request = Request {
            from_elsewhere: true,
            ..example()
        };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes).unwrap().unwrap().0, request);
        assert_eq!(bytes.len(), example().encode().len() + WORD);
    }

    #[test]
    fn a_name_in_numbers_is_an_address() {
        let name = Destination::Name(HostName::new("0x7f.1").unwrap(), 80);
        let bytes = Request::new(name, vec![]).encode();
        let (request, _) = Request::parse(&bytes).unwrap().unwrap();
        assert_eq!(request.destination, "127.0.0.1:80".parse().unwrap());
    }

    #[test]
    fn a_check_reads_back_and_may_pass_no_relay() {
        let bytes = Request::check().encode();
        let (request, len) = Request::parse(&bytes).unwrap().unwrap();
        assert_eq!(
            (len, request.hop_limit, request.hops.len()),
            (bytes.len(), 0, 1)
        );
        assert!(request.is_check());
        assert!(!example().is_check());
    }

    #[test]
    fn the_longest_request_fits() {
        let hop = "[2001:db8::1]:9".parse().unwrap();
        let name = Destination::from_host(&"n".repeat(HostName::LEN_MAX), 1).unwrap();
        let request = Request {
            stripes: Some(stripes()),
            ..Request::new(name, vec![hop; HOPS_MAX])
        };
        assert_eq!(
            Request::parse(&request.encode()).unwrap().unwrap().0,
            request
        );
    }

    fn stripes() -> Stripes {
        let group = GroupId(*b"sixteen letters!");
        Stripes { group, count: 4 }
    }

    #[test]
    fn a_join_is_a_message_of_its_own() {
        let Stripes { group, .. } = stripes();
        let join = Join { group, index: 3 };
        let mut bytes = join.encode();
        assert_eq!(bytes[..6], [1, 6, 0x22, 0x63, JOIN, 5]);
        assert_eq!(Opening::parse(&bytes), Ok(Some((Opening::Join(join), 24))));
        // A relay that knows no groups.
        assert_eq!(Request::parse(&bytes), Err(ConvertError::Unsupported(JOIN)));
        bytes[22] = 0;
        assert_eq!(Opening::parse(&bytes), Err(ConvertError::Malformed(JOIN)));
        let request = example().encode();
        let parsed = Opening::parse(&request).unwrap().unwrap();
        assert_eq!(parsed, (Opening::Request(example()), request.len()));
    }

    #[test]
    fn a_group_of_one_or_of_too_many_is_malformed() {
        for count in [0, 1, STRIPES_MAX + 1] {
            let stripes = Some(Stripes { count, ..stripes() });
            let request = Request {
                stripes,
                ..example()
            };
            let parsed = Request::parse(&request.encode());
            assert_eq!(parsed, Err(ConvertError::Malformed(STRIPES)), "{count}");
        }
    }

    #[test]
    fn answers_read_back() {
        let unreachable = ErrorCode::DestinationUnreachable;
        let refused = Answer::Refused {
            code: unreachable,
            detail: 1,
        };
        assert_eq!(refused.encode(), [1, 2, 0x22, 0x63, 0x1E, 1, 97, 1]);
        assert_eq!(Answer::Accepted.encode(), [1, 1, 0x22, 0x63]);
        for answer in [
            refused,
            Answer::Accepted,
            Answer::refused(ErrorCode::Other(200)),
        ] {
            let bytes = answer.encode();
            assert_eq!(Answer::parse(&bytes), Ok(Some((answer, bytes.len()))));
        }
    }

    #[test]
    fn missing_counts_down_to_the_answer_s_end() {
        let bytes = Answer::refused(ErrorCode::NotAuthorized).encode();
        let missing: Vec<_> = (0..=8)
            .map(|n| Answer::missing(&bytes[..n]).unwrap())
            .collect();
        assert_eq!(missing, [4, 3, 2, 1, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let code = |bytes: &[u8]| Request::parse(bytes).unwrap_err().answer();
        let refused = Answer::refused;
        assert_eq!(
            code(&[2, 1, 0x22, 0x63]),
            refused(ErrorCode::UnsupportedVersion)
        );
        assert_eq!(
            code(&[1, 0, 0x22, 0x63]),
            refused(ErrorCode::MalformedMessage)
        );
        assert_eq!(
            code(&[1, 1, 0x22, 0x63]),
            refused(ErrorCode::MalformedMessage)
        );
        assert_eq!(
            code(b"GET / HTTP/1.1"),
            refused(ErrorCode::MalformedMessage)
        );
        let unknown = [1, 2, 0x22, 0x63, 0x77, 1, 0, 0];
        assert_eq!(code(&unknown), refused(ErrorCode::UnsupportedMessage));
        let beyond = [1, 2, 0x22, 0x63, 0x0A, 9, 0, 80];
        assert_eq!(code(&beyond), refused(ErrorCode::MalformedMessage));
    }

    #[test]
    fn a_second_connect_is_refused() {
        let mut message = Message::new();
        let address = endpoint("192.0.2.1:1".parse().unwrap());
        message.tlv(CONNECT, &address);
        message.tlv(CONNECT, &address);
        let parsed = Request::parse(&message.finish());
        assert_eq!(parsed, Err(ConvertError::Malformed(CONNECT)));
    }

    proptest! {
        #[test]
        fn no_input_panics(tail in proptest::collection::vec(any::<u8>(), 0..1100), words: u8) {
            let _ = (Request::parse(&tail), Answer::parse(&tail), Answer::missing(&tail));
            let mut shaped = vec![1, words, 0x22, 0x63];
            shaped.extend(&tail);
            let _ = (Answer::parse(&shaped), Answer::missing(&shaped));
            if let Ok(Some((request, len))) = Request::parse(&shaped) {
                prop_assert_eq!(len, usize::from(words) * 4);
                prop_assert!(request.hops.len() <= HOPS_MAX);
            }
        }

        #[test]
        fn every_request_reads_back(ip: [u8; 16], port in 1u16.., hops in 0..=HOPS_MAX, limit: u8) {
            let destination = Destination::from_ip(IpAddr::from(ip), port);
            let hop = SocketAddr::from(([192, 0, 2, 1], port));
            let stripes = (limit % 2 == 0).then(stripes);
            let patience = PATIENCE_UNIT * u32::from(ip[0]);
            let hops = vec![hop; hops];
            let time = PATIENCE_UNIT * u32::from(port);
            let from_elsewhere = ip[1] % 2 == 0;
            let request = Request {
                destination, hops, hop_limit: limit, patience, time, stripes, from_elsewhere,
            };
            let bytes = request.encode();
            prop_assert_eq!(Request::parse(&bytes), Ok(Some((request, bytes.len()))));
        }
    }
}
