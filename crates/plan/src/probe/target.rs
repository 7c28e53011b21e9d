// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host to measure the path to.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::net::{SocketAddr, ToSocketAddrs};

/// Protocol of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Method {
    /// UDP, then TCP, with a port; else ICMP.
    #[default]
    Auto,
    /// The responder of `plan measure --serve`.
    Udp,
    /// Echo by the kernel of the remote host.
    Icmp,
    /// Time to open connections; refused ones count too.
    Tcp,
}

/// Target of the form `[NAME=]HOST[:PORT]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Name of the site; by default the host's.
    pub(super) name: String,
    host: String,
    pub(super) port: Option<u16>,
}

impl Target {
    pub(super) fn parse(text: &str, method: Method) -> Result<Self> {
        let (name, place) = text.split_once('=').unwrap_or(("", text));
        let (host, port) = host_and_port(place).ok_or_else(|| {
            Refusal::usage(format!(
                "{text:?} is not [NAME=]HOST[:PORT], as in osaka=192.0.2.7:5990 or [2001:db8::7]:5990"
            ))
        })?;
        if port == Some(0) {
            return Err(Refusal::usage(format!(
                "{text:?}: port 0 cannot be reached; give the port of plan measure --serve, or none for ICMP"
            )));
        }
        if port.is_none() && matches!(method, Method::Udp | Method::Tcp) {
            return Err(Refusal::usage(format!(
                "{text:?} has no port, which udp and tcp need"
            )));
        }
        let name = if name.is_empty() { &host } else { name };
        Ok(Self {
            name: name.to_owned(),
            host,
            port,
        })
    }

    /// Resolves the first address of the host.
    pub(super) fn resolve(&self) -> Result<SocketAddr> {
        let found = (self.host.as_str(), self.port.unwrap_or(0)).to_socket_addrs();
        let first = found.map(|mut all| all.next());
        match first {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err(Refusal::usage(format!("{:?} has no address", self.host))),
            Err(error) => Err(Refusal::usage(format!("{:?}: {error}", self.host))),
        }
    }
}

/// Splits host and port; a bare IPv6 address has colons and no port.
fn host_and_port(place: &str) -> Option<(String, Option<u16>)> {
    if let Ok(ip) = place.parse::<std::net::IpAddr>() {
        return Some((ip.to_string(), None));
    }
    if let Ok(address) = place.parse::<SocketAddr>() {
        return Some((address.ip().to_string(), Some(address.port())));
    }
    match place.split_once(':') {
        Some((host, port)) => {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            (!host.is_empty()).then(|| (host.to_owned(), Some(port)))
        }
        None => (!place.is_empty()).then(|| (place.to_owned(), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, String, Option<u16>) {
        let target = Target::parse(text, Method::Auto).unwrap();
        (target.name, target.host, target.port)
    }

    #[test]
    fn parses_names_hosts_and_ports() {
        assert_eq!(read("a=h:1"), ("a".into(), "h".into(), Some(1)));
        assert_eq!(read("h"), ("h".into(), "h".into(), None));
        assert_eq!(
            read("2001:db8::7"),
            ("2001:db8::7".into(), "2001:db8::7".into(), None)
        );
        assert_eq!(read("[::1]:5990"), ("::1".into(), "::1".into(), Some(5990)));
        for wrong in ["", "a=", "h:", "h:0", "h:70000", ":1"] {
            assert!(Target::parse(wrong, Method::Auto).is_err(), "{wrong}");
        }
        assert!(Target::parse("h", Method::Udp).is_err());
    }
}
