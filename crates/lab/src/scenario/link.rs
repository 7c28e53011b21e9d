// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between two hosts, and the addresses of their ends.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use toml::Table;

/// Link between two hosts. Its name is the name of the interface on both.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Link {
    pub(crate) name: String,
    #[serde(deserialize_with = "super::notation::exactly_two")]
    #[cfg_attr(test, schemars(with = "[String; 2]"))]
    pub(crate) endpoints: [String; 2],
    #[serde(default)]
    pub(crate) kind: LinkKind,
    /// Address and prefix length of each end. If absent, each link gets its own subnet.
    #[serde(default, deserialize_with = "super::notation::optional_two")]
    #[cfg_attr(test, schemars(with = "Option<[String; 2]>"))]
    pub(crate) addresses: Option<[Address; 2]>,
    /// MTU in bytes, 1,280 to 9,000.
    #[serde(default = "standard_mtu")]
    pub(crate) mtu: u32,
    /// Name of another link that makes the same random decisions.
    pub(crate) same_losses_as: Option<String>,
    /// Whether its segments are captured into the raw records of each run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) capture: bool,
    /// Whether the capture file is kept after its analysis.
    #[serde(default = "super::notation::default_true")]
    pub(crate) keep_capture: bool,
    /// All other keys: options of `longhaul link`.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    pub(crate) options: Table,
}

fn standard_mtu() -> u32 {
    1500
}

/// Kind of link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LinkKind {
    /// Link emulator, `longhaul link`.
    #[default]
    Emulated,
    /// Plain veth pair: no delay, no limit.
    Veth,
}

/// IPv4 address with its prefix length, written `10.9.0.1/30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl Address {
    /// The address of the subnet itself.
    pub(crate) fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ip.to_bits() & self.mask())
    }

    /// Whether an interface may have it. Network and broadcast addresses are excluded (RFC 3021
    /// allows them in a /31), as are reserved ranges.
    pub(crate) fn is_host_address(self) -> bool {
        let host = self.ip.to_bits() & !self.mask();
        let of_the_subnet = self.prefix < 31 && (host == 0 || host == !self.mask());
        let [first, ..] = self.ip.octets();
        !of_the_subnet && !matches!(first, 0 | 127 | 224..)
    }

    /// Whether the subnets overlap.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        self.ip.to_bits() & mask == other.ip.to_bits() & mask
    }

    fn mask(self) -> u32 {
        u32::MAX
            .checked_shl(32 - u32::from(self.prefix))
            .unwrap_or(0)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(ip, prefix)| {
            let prefix = prefix
                .parse()
                .ok()
                .filter(|prefix| (1..=31).contains(prefix))?;
            Some(Self {
                ip: ip.parse().ok()?,
                prefix,
            })
        });
        parsed.ok_or_else(|| {
            format!("{text:?} is not an IPv4 address with a prefix such as 10.9.0.1/30")
        })
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
