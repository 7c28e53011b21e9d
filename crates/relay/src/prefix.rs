// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks in CIDR notation.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A network such as `10.0.0.0/8`, `2001:db8::/32`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    base: IpAddr,
    len: u8,
}

impl Prefix {
    pub(crate) fn is_ipv4(self) -> bool {
        self.base.is_ipv4()
    }

    /// A network of IPv4-mapped addresses is one of IPv4.
    fn plain(self) -> Self {
        let base = self.base.to_canonical();
        match base.is_ipv4() && !self.is_ipv4() && self.len >= MAPPED_LEN {
            true => Self {
                base,
                len: self.len - MAPPED_LEN,
            },
            false => self,
        }
    }

    /// All addresses of both families.
    pub(crate) const EVERYTHING: [Self; 2] = [
        Self {
            base: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            len: 0,
        },
        Self {
            base: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            len: 0,
        },
    ];

    /// Whether all of `other` is in this network.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.is_ipv4() == other.is_ipv4() && self.len <= other.len && self.contains(other.base)
    }

    /// Whether `ip`, taken out of an IPv4-mapped address if it is one, is in this network.
    pub(crate) fn contains(self, ip: IpAddr) -> bool {
        match (self.base, ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                agree(a.to_bits().into(), b.to_bits().into(), 32 - self.len)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => agree(a.to_bits(), b.to_bits(), 128 - self.len),
            _ => false,
        }
    }
}

/// Bits before the IPv4 address in an IPv4-mapped one.
const MAPPED_LEN: u8 = 96;

fn agree(a: u128, b: u128, ignored: u8) -> bool {
    (a ^ b).checked_shr(ignored.into()).unwrap_or(0) == 0
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is no network (for example 10.0.0.0/8 or 2001:db8::/32)");
        let (base, len) = text.split_once('/').unwrap_or((text, ""));
        let base: IpAddr = base.parse().map_err(|_| form())?;
        let len_max = if base.is_ipv4() { 32 } else { 128 };
        let len = match text.contains('/') {
            true => len
                .parse()
                .ok()
                .filter(|n| *n <= len_max)
                .ok_or_else(form)?,
            false => len_max,
        };
        Ok(Self { base, len }.plain())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.len)
    }
}

impl<'de> serde::Deserialize<'de> for Prefix {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        super::config::settings::text(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(prefix: &str, ip: &str) -> bool {
        prefix
            .parse::<Prefix>()
            .unwrap()
            .contains(ip.parse().unwrap())
    }

    #[test]
    fn both_sides_of_the_boundary() {
        assert!(contains("10.0.0.0/8", "10.255.255.255"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::"));
        assert!(!contains("2001:db8::/32", "2001:db9::"));
    }

    #[test]
    fn everything_and_mapped_addresses() {
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
    }

    #[test]
    fn refuses_what_is_no_network() {
        for bad in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "net",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }
}
