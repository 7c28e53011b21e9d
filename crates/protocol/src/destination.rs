// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of connections, as clients and relays write them: an address or a name, and a port.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

/// A host name of 1 to 255 bytes of letters, digits, `-`, `_` and `.` (RFC 1123 §2.1, plus the
/// underscore that real names have). The resolver decides whether it exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// The longest name that SOCKS5 and DNS can carry.
    pub const LEN_MAX: usize = 255;

    /// Checks the length and the characters of `name`.
    pub fn new(name: &str) -> Result<Self, DestinationError> {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let fits = (1..=Self::LEN_MAX).contains(&name.len());
        if fits && name.bytes().all(is_allowed) {
            return Ok(Self(name.to_owned()));
        }
        Err(DestinationError::Host(name.escape_debug().to_string()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Destination that a client asks for. Parses `10.0.0.1:80`, `[2001:db8::1]:443`, `host.test:80`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An address: IPv4 or IPv6, never an IPv4-mapped one.
    Address(SocketAddr),
    /// A name and a port. The relay that connects to the destination resolves the name.
    Name(HostName, u16),
}

/// Reason why a text is not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// No port, or a port that is not 1 to 65535 (RFC 9110 §9.3.6: a bad port is the client's error).
    #[error("{0:?} names no port from 1 to 65535 (for example host.example:443)")]
    Port(String),
    /// A host that is neither an address nor a name.
    #[error("{0:?} is neither an IP address nor a host name")]
    Host(String),
}

impl Destination {
    /// Creates a destination from a host, as text without brackets, and a port. A host in any form that inet_aton(3)
    /// accepts becomes an IPv4 address. Otherwise such a host would evade the rules for addresses.
    pub fn from_host(host: &str, port: u16) -> Result<Self, DestinationError> {
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(Self::from_ip(ip, port)),
            Err(_) => Ok(Self::from_name(HostName::new(host)?, port)),
        }
    }

    /// Creates a destination from a name and a port. The name may be an IPv4 address, as in [`Self::from_host`].
    #[must_use]
    pub fn from_name(name: HostName, port: u16) -> Self {
        match parse_inet_aton(name.as_str()) {
            Some(ip) => Self::from_ip(ip.into(), port),
            None => Self::Name(name, port),
        }
    }

    /// Creates a destination from an address and a port. An IPv4-mapped address becomes the IPv4 address.
    #[must_use]
    pub fn from_ip(ip: IpAddr, port: u16) -> Self {
        Self::Address(SocketAddr::new(ip.to_canonical(), port))
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name(_, port) => *port,
        }
    }
}

/// Parses an IPv4 address as inet_aton(3) does: one to four numbers, each decimal, octal (`0177`) or hexadecimal
/// (`0x7f`). The last number fills all remaining bytes. A final dot is ignored.
fn parse_inet_aton(text: &str) -> Option<Ipv4Addr> {
    let parts = text.strip_suffix('.').unwrap_or(text).split('.');
    let numbers: Vec<u32> = parts.map(parse_number).collect::<Option<_>>()?;
    let (last, bytes) = numbers.split_last()?;
    let bits_left = 32 - 8 * u32::try_from(bytes.len()).ok()?.min(4);
    let fits = u64::from(*last) >> bits_left == 0 && bytes.iter().all(|byte| *byte < 256);
    let shifted = |(n, byte): (usize, &u32)| byte << (24 - 8 * n);
    fits.then(|| Ipv4Addr::from_bits(bytes.iter().enumerate().map(shifted).sum::<u32>() | last))
}

fn parse_number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(""), _) | (_, Some("")) => return Some(0),
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) => (digits, 8),
        (None, None) => (text, 10),
    };
    // `from_str_radix` would accept a sign.
    let has_only_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    has_only_digits.then(|| u32::from_str_radix(digits, radix).ok())?
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let no_port = || DestinationError::Port(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|p| *p > 0)
            .ok_or_else(no_port)?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        Self::from_host(bare.unwrap_or(host), port)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{}:{port}", name.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints() {
        for text in ["10.0.0.1:80", "[2001:db8::1]:443", "host.test:65535"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_bad_ports_and_hosts() {
        for bad in [
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:-1",
            ":80",
            "a b:80",
            "h\0:1",
        ] {
            assert!(bad.parse::<Destination>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parses_numeric_hosts_as_addresses() {
        for (text, ip) in [
            ("0", "0.0.0.0"),
            ("1", "0.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("127.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0X7F.1", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("0x7f.0x0.0x0.0x1", "127.0.0.1"),
            ("0xa9.0xfe.43518", "169.254.169.254"),
            ("4294967295", "255.255.255.255"),
        ] {
            let found = Destination::from_host(text, 80).unwrap();
            assert_eq!(found.to_string(), format!("{ip}:80"), "{text}");
        }
    }

    #[test]
    fn keeps_names_that_are_not_addresses() {
        for text in [
            "4294967296",
            "256.1",
            "1.2.3.256",
            "1.2.3.4.5",
            "08.1",
            "0x7g",
            "1..2",
            ".",
            "-1",
            "a.1",
            "1.a",
            "127.0.0.1..",
        ] {
            let found = Destination::from_host(text, 80).unwrap();
            assert!(matches!(found, Destination::Name(..)), "{text}: {found}");
        }
    }

    #[test]
    fn unmaps_ipv4() {
        let mapped = "[::ffff:192.0.2.1]:80".parse::<Destination>().unwrap();
        assert_eq!(mapped.to_string(), "192.0.2.1:80");
    }
}
