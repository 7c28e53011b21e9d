// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoding and parsing of requests, which a client or the previous relay sends.

use super::{
    error::ConvertError,
    group::Stripes,
    limits::{HOP_LIMIT, HOPS_MAX, Limits},
    message::{CONNECT, HEADER_LEN, Message, Tlvs, body},
};
use crate::destination::{Destination, HostName};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Private TLV: host name, zero-padded.
const NAME: u8 = 0xC0;
/// Private TLV: the next relay, as port and address (the layout of the Connect TLV).
const HOP: u8 = 0xC1;

/// The port in a health check: that of the discard service (RFC 863). No relay connects to it.
const CHECK_PORT: u16 = 9;

/// Request that a client or the previous relay sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Destination of the connection.
    pub destination: Destination,
    /// The relays still to pass, nearest first; at most [`HOPS_MAX`].
    pub hops: Vec<SocketAddr>,
    /// Number of relays that the request may still pass, this one included.
    pub hop_limit: u8,
    /// Time for which a positive answer may wait for the destination's first bytes, so that both share a segment.
    /// Zero if the client waits for the answer before it sends. The value sent is rounded down to 10 ms and is at most
    /// [`REPLY_DELAY_MAX`](super::REPLY_DELAY_MAX).
    pub reply_delay: Duration,
    /// Time for which the sender waits for the answer; zero is unknown. The value sent is rounded down to 10 ms and
    /// is at most 655.35 s.
    pub timeout: Duration,
    /// Group of connections that carry the byte stream; this connection is its first. `None` for a single connection.
    pub stripes: Option<Stripes>,
    /// Whether the client may be on another host than the relay that sends the request.
    pub is_client_remote: bool,
    /// DSCP (RFC 2474) for the connection to the destination, 0 to 63: that of the client's packets.
    pub dscp: u8,
}

impl Request {
    /// Creates a request that no relay has forwarded yet.
    #[must_use]
    pub fn new(destination: Destination, hops: Vec<SocketAddr>) -> Self {
        let hop_limit = HOPS_MAX as u8;
        Self {
            destination,
            hops,
            hop_limit,
            reply_delay: Duration::ZERO,
            timeout: Duration::ZERO,
            stripes: None,
            is_client_remote: false,
            dscp: 0,
        }
    }

    /// Creates a health check: a request that asks a relay whether it serves the sender. It names one more hop, but
    /// its hop limit is 0. So every version that knows hops answers at once and opens no connection. Versions that know
    /// health checks accept it; older ones refuse it.
    #[must_use]
    pub fn health_check() -> Self {
        let placeholder = SocketAddr::from((Ipv6Addr::UNSPECIFIED, CHECK_PORT));
        Self {
            hop_limit: 0,
            ..Self::new(Destination::Address(placeholder), vec![placeholder])
        }
    }

    /// Creates a health check of the last relay in `hops`. It is sent to the relay before the first of them. Each relay
    /// forwards it like any request. Its destination is an address for documentation (RFC 5737): no relay connects to
    /// it.
    #[must_use]
    pub fn health_check_through(hops: &[SocketAddr], timeout: Duration) -> Self {
        let check = Self::health_check();
        Self {
            destination: Destination::Address((Ipv4Addr::new(192, 0, 2, 1), CHECK_PORT).into()),
            hop_limit: hops.len() as u8,
            hops: [hops, &check.hops].concat(),
            timeout,
            ..check
        }
    }

    /// Whether this is a health check of the relay that received it: one made by [`Request::health_check`], or by
    /// [`Request::health_check_through`] once all relays before this one have forwarded it.
    #[must_use]
    pub fn is_health_check(&self) -> bool {
        let check = Self::health_check();
        (self.hop_limit, &self.hops, self.stripes) == (0, &check.hops, None)
    }

    /// Encodes the request as a message.
    ///
    /// # Panics
    /// If there are more than [`HOPS_MAX`] hops, which the configuration refuses.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.hops.len() <= HOPS_MAX, "{} hops", self.hops.len());
        let mut message = Message::new();
        message.tlv(
            CONNECT,
            &encode_endpoint(connect_address(&self.destination)),
        );
        if let Destination::Name(name, _) = &self.destination {
            message.tlv(NAME, name.as_str().as_bytes());
        }
        for hop in &self.hops {
            message.tlv(HOP, &encode_endpoint(*hop));
        }
        message.tlv(HOP_LIMIT, &self.limits().encode());
        message.finish()
    }

    fn limits(&self) -> Limits {
        Limits {
            hop_limit: self.hop_limit,
            reply_delay: self.reply_delay,
            timeout: self.timeout,
            is_client_remote: self.is_client_remote,
            dscp: self.dscp,
            stripes: self.stripes,
        }
    }

    /// Parses a request. Also returns its length; `Ok(None)` while it is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ConvertError> {
        let Some(body) = body(input)? else {
            return Ok(None);
        };
        Ok(Some((Self::from_body(body)?, HEADER_LEN + body.len())))
    }

    pub(super) fn from_body(body: &[u8]) -> Result<Self, ConvertError> {
        let mut parts = RequestParts::default();
        for tlv in Tlvs(body) {
            let (kind, value) = tlv?;
            parts.add(kind, value)?;
        }
        parts.into_request()
    }
}

#[derive(Default)]
struct RequestParts {
    connect: Option<SocketAddr>,
    name: Option<HostName>,
    hops: Vec<SocketAddr>,
    limits: Option<Limits>,
}

impl RequestParts {
    fn add(&mut self, kind: u8, value: &[u8]) -> Result<(), ConvertError> {
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
            HOP => {
                self.hops.push(parse_endpoint(value).ok_or(malformed)?);
                self.hops.len() > HOPS_MAX
            }
            other => return Err(ConvertError::Unsupported(other)),
        };
        if repeated {
            Err(ConvertError::Malformed(kind))
        } else {
            Ok(())
        }
    }

    fn into_request(self) -> Result<Request, ConvertError> {
        let connect = self.connect.ok_or(ConvertError::NoConnect)?;
        let destination = match self.name {
            Some(name) => Destination::from_name(name, connect.port()),
            None => Destination::from_ip(connect.ip(), connect.port()),
        };
        let Limits {
            hop_limit,
            reply_delay,
            timeout,
            is_client_remote,
            dscp,
            stripes,
        } = self.limits.unwrap_or_default();
        Ok(Request {
            destination,
            hops: self.hops,
            hop_limit,
            reply_delay,
            timeout,
            stripes,
            is_client_remote,
            dscp,
        })
    }
}

fn connect_address(destination: &Destination) -> SocketAddr {
    match destination {
        Destination::Address(address) => *address,
        Destination::Name(_, port) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)),
    }
}

/// Encodes an address as in RFC 8803 §6.2.5: port, then a 128-bit address, IPv4 as IPv4-mapped IPv6.
fn encode_endpoint(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut bytes = [0; 18];
    bytes[..2].copy_from_slice(&address.port().to_be_bytes());
    bytes[2..].copy_from_slice(&ip.octets());
    bytes
}

/// Parses an address. TCP options that may follow it (RFC 8803 §6.2.5) are ignored: the kernel negotiates the options
/// of each leg.
fn parse_endpoint(value: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(value.get(..2)?.try_into().ok()?);
    let octets: [u8; 16] = value.get(2..18)?.try_into().ok()?;
    let ip = IpAddr::V6(octets.into()).to_canonical();
    (port > 0).then_some(SocketAddr::new(ip, port))
}

fn parse_name(value: &[u8]) -> Option<HostName> {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    HostName::new(std::str::from_utf8(&value[..end]).ok()?).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::convert::{Answer, ErrorCode, group::tests::stripes, limits::REPLY_DELAY_UNIT};
    use proptest::prelude::*;

    pub(in crate::convert) fn example() -> Request {
        let hops = vec![
            "192.0.2.1:5124".parse().unwrap(),
            "[2001:db8::1]:9".parse().unwrap(),
        ];
        Request::new("host.test:80".parse().unwrap(), hops)
    }

    #[test]
    fn encodes_connect_in_the_layout_of_the_rfc() {
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

    #[test]
    fn parses_what_it_encodes_and_leaves_later_data() {
        let mut bytes = example().encode();
        let len = bytes.len();
        for end in 0..len {
            assert_eq!(Request::parse(&bytes[..end]), Ok(None), "{end}");
        }
        bytes.extend(b"GET / HTTP/1.1");
        assert_eq!(Request::parse(&bytes), Ok(Some((example(), len))));
    }

    #[test]
    fn parses_a_numeric_name_as_an_address() {
        let name = Destination::Name(HostName::new("0x7f.1").unwrap(), 80);
        let bytes = Request::new(name, vec![]).encode();
        let (request, _) = Request::parse(&bytes).unwrap().unwrap();
        assert_eq!(request.destination, "127.0.0.1:80".parse().unwrap());
    }

    #[test]
    fn encodes_health_check_with_hop_limit_zero() {
        let bytes = Request::health_check().encode();
        let (request, len) = Request::parse(&bytes).unwrap().unwrap();
        assert_eq!(
            (len, request.hop_limit, request.hops.len()),
            (bytes.len(), 0, 1)
        );
        assert!(request.is_health_check());
        assert!(!example().is_health_check());
    }

    #[test]
    fn health_check_through_a_chain_reaches_its_last_relay() {
        let hops = [5124, 5125].map(|port| SocketAddr::from(([192, 0, 2, 9], port)));
        let bytes = Request::health_check_through(&hops, Duration::from_secs(1)).encode();
        let mut request = Request::parse(&bytes).unwrap().unwrap().0;
        for hop in hops {
            assert!(!request.is_health_check());
            assert_eq!(request.hops.remove(0), hop);
            request.hop_limit -= 1;
        }
        request.is_client_remote = true;
        assert!(request.is_health_check());
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

    #[test]
    fn rejects_a_second_connect() {
        let mut message = Message::new();
        let address = encode_endpoint("192.0.2.1:1".parse().unwrap());
        message.tlv(CONNECT, &address);
        message.tlv(CONNECT, &address);
        let parsed = Request::parse(&message.finish());
        assert_eq!(parsed, Err(ConvertError::Malformed(CONNECT)));
    }

    #[test]
    fn reports_the_reason_of_a_rejection() {
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

    proptest! {
        #[test]
        fn every_request_parses_back(ip: [u8; 16], port in 1u16.., hops in 0..=HOPS_MAX, limit: u8) {
            let destination = Destination::from_ip(IpAddr::from(ip), port);
            let hop = SocketAddr::from(([192, 0, 2, 1], port));
            let stripes = (limit % 2 == 0).then(stripes);
            let reply_delay = REPLY_DELAY_UNIT * u32::from(ip[0]);
            let hops = vec![hop; hops];
            let timeout = REPLY_DELAY_UNIT * u32::from(port);
            let (is_client_remote, dscp) = (ip[1] % 2 == 0, ip[1] >> 2);
            let request = Request {
                destination, hops, hop_limit: limit, reply_delay, timeout, stripes, is_client_remote, dscp,
            };
            let bytes = request.encode();
            prop_assert_eq!(Request::parse(&bytes), Ok(Some((request, bytes.len()))));
        }
    }
}
