// SPDX-License-Identifier: MIT OR Apache-2.0
//! nf_tables and NFQUEUE of this network namespace. Whole tables are written as scripts for the nft
//! program. Frequent operations, and those that nft does not support, use netlink.

pub mod marks;
mod message;

pub mod changes;
pub mod conntrack;
pub mod counter;
pub mod input;
pub mod lease;
pub mod nft;
pub mod queue;
pub mod table;
pub mod target;

/// The address family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

impl Family {
    /// Returns the family of an address.
    #[must_use]
    pub fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() {
            Self::Ip
        } else {
            Self::Ip6
        }
    }

    /// Returns nft's name of the family.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        }
    }

    /// Returns `NFPROTO_*` of include/uapi/linux/netfilter.h.
    fn number(self) -> u8 {
        match self {
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }
}
