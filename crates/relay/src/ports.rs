// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of port numbers.

use serde::{Deserialize, Deserializer};
use std::{fmt, ops::RangeInclusive, str::FromStr};

/// One port, or all from one to another: `443`, `8000-8999`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports(RangeInclusive<u16>);

impl Ports {
    /// From the first to the last.
    pub(crate) fn range(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }

    /// Whether `port` is one of these.
    pub(crate) fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!(
                "{text:?} is no port and no range of ports (for example 443 or 8000-8999)"
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// As a number or as text.
impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "want a port (443) or a range of ports (\"8000-8999\")"
        )]
        enum Written {
            One(i64),
            Text(String),
        }
        let text = match Written::deserialize(input)? {
            Written::One(port) => port.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_in() {
        let ports: Ports = "8000-8002".parse().unwrap();
        let inside: Vec<u16> = (7999..=8003).filter(|p| ports.contains(*p)).collect();
        assert_eq!(inside, [8000, 8001, 8002]);
        assert_eq!(ports.to_string(), "8000-8002");
        assert_eq!("443".parse::<Ports>().unwrap().to_string(), "443");
    }

    #[test]
    fn refuses_what_is_no_port() {
        for bad in ["0", "65536", "9-8", "http", "", "1-"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }
}
