// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of a site: `longhaul://HOST[:PORT]`.

use std::{fmt, str::FromStr};

/// Default TCP port of a site.
pub const PORT: u16 = 7311;

/// URL prefix of a site's address.
pub const SCHEME: &str = "longhaul://";

/// A host, by name or address, and a TCP port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Returns the host and the port, as a resolver takes them.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

/// Parses `HOST` or `HOST:PORT`, where an IPv6 address is in brackets.
impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?}: want HOST[:PORT], an IPv6 address in brackets");
        let (host, rest) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(invalid)?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0),
            None => rest.is_empty().then_some(PORT),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        match port {
            Some(port) if !host.is_empty() && host.chars().all(plain) => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            _ => Err(invalid()),
        }
    }
}

/// Writes the form that is parsed, without the default port.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        match self.port {
            PORT => Ok(()),
            port => write!(f, ":{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_displays_addresses() {
        for (text, host, port) in [
            ("far", "far", PORT),
            ("far.example:7000", "far.example", 7000),
            ("192.0.2.1", "192.0.2.1", PORT),
            ("[2001:db8::1]", "2001:db8::1", PORT),
            ("[2001:db8::1]:9", "2001:db8::1", 9),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.host_and_port(), (host, port));
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("far:7311".parse::<Address>().unwrap().to_string(), "far");
    }

    #[test]
    fn rejects_invalid_addresses() {
        for text in [
            "",
            ":1",
            "far:",
            "far:0",
            "far:70000",
            "2001:db8::1",
            "[::1",
            "[::1]x",
            "a b",
            "me@far",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
