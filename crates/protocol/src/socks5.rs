// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS5 (RFC 1928) with user and password (RFC 1929): parses a client's messages and encodes the server's. No I/O.
//!
//! A parser returns `Ok(None)` while the message is incomplete; call it again with more bytes. No greeting or request
//! is longer than [`MESSAGE_LEN_MAX`].

use crate::destination::{Destination, DestinationError, HostName};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The length of the longest greeting or request that a client may send: a request with a name of 255 bytes.
pub const MESSAGE_LEN_MAX: usize = 262;

/// The length of the longest message with user and password (RFC 1929 §2).
pub const PASSWORD_LEN_MAX: usize = 1 + 2 * 256;
/// The length of the longest header of a datagram to a client. It has an IP address, never a name (RFC 1928 §7).
pub const DATAGRAM_HEADER_LEN_MAX: usize = 4 + 16 + 2;

const VERSION: u8 = 5;
/// The version of the subnegotiation for user and password (RFC 1929 §2).
const PASSWORD_VERSION: u8 = 1;
const RESERVED: u8 = 0;

/// Reason why the bytes are not a valid SOCKS5 message. The caller must close the connection, or drop the datagram.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Socks5Error {
    /// A version other than the expected one. The client speaks SOCKS4, for example, or another protocol.
    #[error("unexpected SOCKS version {0}")]
    Version(u8),
    /// An address type other than 1, 3 or 4. The length of such an address is not known.
    #[error("SOCKS address type {0} is unknown")]
    AddressType(u8),
    /// The name or the port is not valid as a destination.
    #[error("SOCKS destination: {0}")]
    Destination(#[from] DestinationError),
    /// A datagram that is a fragment of a larger one. An implementation without fragmentation must drop it (RFC 1928
    /// §7).
    #[error("SOCKS datagram fragment {0}")]
    Fragment(u8),
    /// A datagram that ends inside its header.
    #[error("SOCKS datagram without a whole header")]
    Truncated,
}

impl Socks5Error {
    /// Returns the reply for the client, if the protocol has one.
    #[must_use]
    pub fn reply(&self) -> Option<Reply> {
        match self {
            Self::Version(_) | Self::Fragment(_) | Self::Truncated => None,
            Self::AddressType(_) => Some(Reply::AddressTypeNotSupported),
            Self::Destination(_) => Some(Reply::GeneralFailure),
        }
    }
}

/// Authentication method (RFC 1928 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// No authentication.
    None,
    /// User and password (RFC 1929).
    Password,
    /// The server accepts none of the methods that the client offered.
    NoneAcceptable,
}

impl Method {
    fn code(self) -> u8 {
        match self {
            Self::None => 0x00,
            Self::Password => 0x02,
            Self::NoneAcceptable => 0xFF,
        }
    }

    /// Encodes the server's answer to a greeting.
    #[must_use]
    pub fn encode(self) -> [u8; 2] {
        [VERSION, self.code()]
    }
}

/// Parses the client's greeting (RFC 1928 §3). Returns the chosen method and the greeting's length. The method is
/// `wanted` if the client offers it, else [`Method::NoneAcceptable`].
pub fn parse_greeting(
    input: &[u8],
    wanted: Method,
) -> Result<Option<(Method, usize)>, Socks5Error> {
    let Some(&version) = input.first() else {
        return Ok(None);
    };
    if version != VERSION {
        return Err(Socks5Error::Version(version));
    }
    let Some(&count) = input.get(1) else {
        return Ok(None);
    };
    let end = 2 + usize::from(count);
    let chosen = |methods: &[u8]| {
        if methods.contains(&wanted.code()) {
            wanted
        } else {
            Method::NoneAcceptable
        }
    };
    Ok(input.get(2..end).map(|methods| (chosen(methods), end)))
}

/// User and password as the client sent them (RFC 1929 §2). Both are bytes, because the RFC names no character set.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: Vec<u8>,
    /// The password; `Debug` leaves it out.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.user.escape_ascii())
    }
}

/// Parses user and password (RFC 1929 §2). Also returns the message's length.
pub fn parse_password(input: &[u8]) -> Result<Option<(Credentials, usize)>, Socks5Error> {
    match input.first() {
        Some(&PASSWORD_VERSION) => {}
        Some(&other) => return Err(Socks5Error::Version(other)),
        None => return Ok(None),
    }
    let fields = length_prefixed(input, 1).and_then(|(user, end)| {
        length_prefixed(input, end).map(|(password, end)| (user, password, end))
    });
    Ok(fields.map(|(user, password, end)| {
        let (user, password) = (user.to_vec(), password.to_vec());
        (Credentials { user, password }, end)
    }))
}

/// Returns the bytes after a length byte at `at`, and the offset of their end.
fn length_prefixed(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + 1 + usize::from(*input.get(at)?);
    input.get(at + 1..end).map(|bytes| (bytes, end))
}

/// Encodes the answer to user and password (RFC 1929 §2). After a refusal the server must close the connection.
#[must_use]
pub fn password_answer(accepted: bool) -> [u8; 2] {
    [PASSWORD_VERSION, u8::from(!accepted)]
}

/// Command of a request (RFC 1928 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Connect to the destination.
    Connect,
    /// Wait for a connection from the destination.
    Bind,
    /// Relay datagrams.
    UdpAssociate,
    /// A command that the RFC does not define.
    Unknown(u8),
}

/// Request of a client (RFC 1928 §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Command of the request.
    pub command: Command,
    /// Destination to connect to. For the other commands, the address that the client gave.
    pub destination: Destination,
}

/// Parses the request that follows the greeting. Also returns its length.
pub fn parse_request(input: &[u8]) -> Result<Option<(Request, usize)>, Socks5Error> {
    match input.first() {
        Some(&VERSION) => {}
        Some(&other) => return Err(Socks5Error::Version(other)),
        None => return Ok(None),
    }
    let Some((host, end)) = parse_host(input)? else {
        return Ok(None);
    };
    let Some(port) = array::<2>(input, end).map(u16::from_be_bytes) else {
        return Ok(None);
    };
    let request = Request {
        command: command(input[1]),
        destination: host.with_port(port)?,
    };
    Ok(Some((request, end + 2)))
}

enum Host<'a> {
    Ip(IpAddr),
    Name(&'a [u8]),
}

impl Host<'_> {
    fn with_port(&self, port: u16) -> Result<Destination, DestinationError> {
        match self {
            Self::Ip(ip) => Ok(Destination::from_ip(*ip, port)),
            // Some clients put an IP address as text into the name field; `from_host` accepts both.
            Self::Name(name) => Destination::from_host(&String::from_utf8_lossy(name), port),
        }
    }
}

/// Parses the address, whose type is byte 3 (RFC 1928 §5). Also returns the offset of its end.
fn parse_host(input: &[u8]) -> Result<Option<(Host<'_>, usize)>, Socks5Error> {
    const ADDRESS_OFFSET: usize = 4;
    Ok(match input.get(3) {
        None => None,
        Some(1) => array(input, ADDRESS_OFFSET)
            .map(|b: [u8; 4]| (Host::Ip(Ipv4Addr::from(b).into()), ADDRESS_OFFSET + 4)),
        Some(4) => array(input, ADDRESS_OFFSET)
            .map(|b: [u8; 16]| (Host::Ip(Ipv6Addr::from(b).into()), ADDRESS_OFFSET + 16)),
        Some(3) => {
            length_prefixed(input, ADDRESS_OFFSET).map(|(name, end)| (Host::Name(name), end))
        }
        Some(&other) => return Err(Socks5Error::AddressType(other)),
    })
}

fn array<const N: usize>(input: &[u8], at: usize) -> Option<[u8; N]> {
    input.get(at..at + N)?.try_into().ok()
}

fn command(code: u8) -> Command {
    match code {
        1 => Command::Connect,
        2 => Command::Bind,
        3 => Command::UdpAssociate,
        other => Command::Unknown(other),
    }
}

/// Reply code (RFC 1928 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// The command succeeded.
    Succeeded = 0,
    /// A failure without a code of its own.
    GeneralFailure = 1,
    /// Forbidden by the rules of this server.
    NotAllowed = 2,
    /// ICMP or the routing table says that the network can't be reached.
    NetworkUnreachable = 3,
    /// The host can't be reached, does not answer, or does not exist.
    HostUnreachable = 4,
    /// RST in answer to the SYN.
    ConnectionRefused = 5,
    /// The TTL expired on the path.
    TtlExpired = 6,
    /// An unknown command, or one that the route to the destination does not support.
    CommandNotSupported = 7,
    /// An address type that the RFC does not define.
    AddressTypeNotSupported = 8,
}

impl Reply {
    /// Encodes the reply message. `bound` is the server's own address on the outgoing connection; `None` is encoded as
    /// the unspecified address.
    #[must_use]
    pub fn encode(self, bound: Option<SocketAddr>) -> Vec<u8> {
        let bound = bound.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        append_address(vec![VERSION, self as u8, RESERVED], bound)
    }
}

/// Returns `message` with an address appended in the form of RFC 1928 §5.
fn append_address(mut message: Vec<u8>, address: SocketAddr) -> Vec<u8> {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            message.push(1);
            message.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            message.push(4);
            message.extend(ip.octets());
        }
    }
    message.extend(address.port().to_be_bytes());
    message
}

/// Parses a datagram from a client (RFC 1928 §7): its destination and its data.
pub fn parse_datagram(input: &[u8]) -> Result<(Destination, &[u8]), Socks5Error> {
    match input.get(2) {
        Some(0) => {}
        Some(&fragment) => return Err(Socks5Error::Fragment(fragment)),
        None => return Err(Socks5Error::Truncated),
    }
    // The address begins at the same byte as in a request.
    let (host, end) = parse_host(input)?.ok_or(Socks5Error::Truncated)?;
    let port = array::<2>(input, end).ok_or(Socks5Error::Truncated)?;
    let destination = host.with_port(u16::from_be_bytes(port))?;
    Ok((destination, &input[end + 2..]))
}

/// Returns the header of a datagram to a client (RFC 1928 §7). `from` is the address that the datagram came from.
#[must_use]
pub fn datagram_header(from: SocketAddr) -> Vec<u8> {
    append_address(vec![RESERVED, RESERVED, 0], from)
}

const _: () = assert!(MESSAGE_LEN_MAX == 4 + 1 + HostName::LEN_MAX + 2);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn greeting_ends_with_its_last_method() {
        let greet = |input| parse_greeting(input, Method::None);
        assert_eq!(greet(&[5, 2, 2]), Ok(None));
        assert_eq!(greet(&[5, 2, 2, 0]), Ok(Some((Method::None, 4))));
        let refused = Ok(Some((Method::NoneAcceptable, 3)));
        assert_eq!(greet(&[5, 1, 2, 9]), refused);
        assert_eq!(greet(&[4, 1]), Err(Socks5Error::Version(4)));
        // A server that requires a password refuses a client that offers only "no authentication".
        assert_eq!(parse_greeting(&[5, 1, 0], Method::Password), refused);
        let both = parse_greeting(&[5, 2, 0, 2], Method::Password);
        assert_eq!(both, Ok(Some((Method::Password, 4))));
    }

    #[test]
    fn password_message_ends_with_the_password() {
        let whole = b"\x01\x02me\x03key";
        for end in 0..whole.len() {
            assert_eq!(parse_password(&whole[..end]), Ok(None), "{end}");
        }
        let (found, len) = parse_password(b"\x01\x02me\x03keymore").unwrap().unwrap();
        assert_eq!((found.user, found.password), (b"me".into(), b"key".into()));
        assert_eq!(len, whole.len());
        assert_eq!(parse_password(&[5, 1]), Err(Socks5Error::Version(5)));
    }

    #[test]
    fn datagrams_carry_addresses_and_fragments_are_refused() {
        let from = "[2001:db8::1]:53".parse().unwrap();
        let mut datagram = datagram_header(from);
        assert_eq!(datagram.len(), DATAGRAM_HEADER_LEN_MAX);
        datagram.extend(b"data");
        let to = Destination::Address(from);
        assert_eq!(parse_datagram(&datagram), Ok((to, &b"data"[..])));
        for end in 0..DATAGRAM_HEADER_LEN_MAX {
            let error = parse_datagram(&datagram[..end]);
            assert_eq!(error, Err(Socks5Error::Truncated), "{end}");
        }
        datagram[2] = 1;
        assert_eq!(parse_datagram(&datagram), Err(Socks5Error::Fragment(1)));
    }

    fn destination_of(input: &[u8]) -> String {
        let (request, len) = parse_request(input).unwrap().unwrap();
        assert_eq!(len, input.len());
        request.destination.to_string()
    }

    #[test]
    fn request_carries_each_address_type() {
        assert_eq!(
            destination_of(&[5, 1, 0, 1, 10, 0, 0, 1, 0, 80]),
            "10.0.0.1:80"
        );
        assert_eq!(
            destination_of(b"\x05\x01\x00\x03\x04host\x01\xbb"),
            "host:443"
        );
        let mut v6 = vec![5, 1, 0, 4];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend([0, 80]);
        assert_eq!(destination_of(&v6), "[::1]:80");
    }

    #[test]
    fn request_is_incomplete_one_byte_early() {
        let whole = b"\x05\x03\x00\x03\x04host\x01\xbb";
        for end in 0..whole.len() {
            assert_eq!(parse_request(&whole[..end]), Ok(None), "{end}");
        }
        let (request, _) = parse_request(whole).unwrap().unwrap();
        assert_eq!(request.command, Command::UdpAssociate);
    }

    #[test]
    fn unknown_address_type_has_a_reply_code() {
        let error = parse_request(&[5, 1, 0, 2, 0, 0]).unwrap_err();
        assert_eq!(error.reply(), Some(Reply::AddressTypeNotSupported));
    }

    #[test]
    fn reply_names_the_bound_address() {
        let bound = "192.0.2.7:258".parse().unwrap();
        let message = Reply::Succeeded.encode(Some(bound));
        assert_eq!(message, [5, 0, 0, 1, 192, 0, 2, 7, 1, 2]);
        assert_eq!(
            Reply::ConnectionRefused.encode(None),
            [5, 5, 0, 1, 0, 0, 0, 0, 0, 0]
        );
    }

    proptest! {
        #[test]
        fn no_input_panics(tail in proptest::collection::vec(any::<u8>(), 0..300), atyp in 0u8..6) {
            let _ = parse_greeting(&tail, Method::Password);
            let _ = parse_password(&tail);
            let _ = parse_datagram(&tail);
            let mut datagram = vec![0, 0, 0, atyp];
            datagram.extend(&tail);
            let _ = parse_datagram(&datagram);
            let _ = parse_request(&tail);
            let mut with_version = vec![5, 1, 0, atyp];
            with_version.extend(&tail);
            if let Ok(Some((_, len))) = parse_request(&with_version) {
                prop_assert!(len <= with_version.len() && len <= MESSAGE_LEN_MAX);
            }
        }

        #[test]
        fn a_full_buffer_is_never_incomplete(tail in proptest::collection::vec(any::<u8>(), 262..300)) {
            let mut with_version = tail;
            with_version[0] = 5;
            prop_assert!(!matches!(parse_greeting(&with_version, Method::None), Ok(None)));
            prop_assert!(!matches!(parse_request(&with_version), Ok(None)));
        }
    }
}
