// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a connection shall go, as clients and relays say it: an address or a name, and a port.

use std::{fmt, net::IpAddr, net::SocketAddr, str::FromStr};

/// A host name of 1 to 255 bytes of letters, digits, `-`, `_` and `.` (RFC 1123 §2.1, plus the
/// underscore that the field uses). Whether it exists is for the resolver to say.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// The longest name that SOCKS5 and DNS can carry.
    pub const LEN_MAX: usize = 255;

    /// `name` if it could be a host name.
    pub fn new(name: &str) -> Result<Self, DestinationError> {
        let plausible = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let fits = (1..=Self::LEN_MAX).contains(&name.len());
        if fits && name.bytes().all(plausible) {
            return Ok(Self(name.to_owned()));
        }
        Err(DestinationError::Host(name.escape_debug().to_string()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The far end that a client asks for. Parses `10.0.0.1:80`, `[2001:db8::1]:443`, `host.test:80`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An address: IPv4 or IPv6, never an IPv4-mapped one.
    Address(SocketAddr),
    /// A name, to be resolved where the connection leaves for it.
    Name(HostName, u16),
}

/// Why a text is not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// No port, or not 1 to 65535 (RFC 9110 §9.3.6: a bad port is the client's error).
    #[error("{0:?} names no port from 1 to 65535 (for example host.example:443)")]
    Port(String),
    /// Neither an address nor a host name.
    #[error("{0:?} is neither an IP address nor a host name")]
    Host(String),
}

impl Destination {
    /// From a host without brackets, as text, and a port.
    pub fn from_host(host: &str, port: u16) -> Result<Self, DestinationError> {
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(Self::from_ip(ip, port)),
            Err(_) => Ok(Self::Name(HostName::new(host)?, port)),
        }
    }

    /// From an address, taking the IPv4 address out of an IPv4-mapped one.
    #[must_use]
    pub fn from_ip(ip: IpAddr, port: u16) -> Self {
        Self::Address(SocketAddr::new(ip.to_canonical(), port))
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name(_, port) => *port,
        }
    }
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
    fn reads_what_it_prints() {
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
    fn unmaps_ipv4() {
        let mapped = "[::ffff:192.0.2.1]:80".parse::<Destination>().unwrap();
        assert_eq!(mapped.to_string(), "192.0.2.1:80");
    }
}
