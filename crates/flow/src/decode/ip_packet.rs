// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where TCP's header is in an IP packet, and why there is none.

use longhaul_packet::{capture::NoIp, ip};
use serde::{Deserialize, Serialize};

/// Why there is no segment in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecoded {
    /// Nobody knows here what frames of this kind begin with.
    LinkType,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Another protocol on IP.
    NotTcp,
    /// An IP packet in an IP packet (RFC 2003, RFC 2473, RFC 4213), not looked into.
    IpInIp,
    /// GRE (RFC 2784), not looked into.
    Gre,
    /// VXLAN (RFC 7348), not looked into.
    Vxlan,
    /// Encrypted by IPsec (RFC 4303).
    Encrypted,
    /// A later fragment of an IP packet, without a TCP header. The first one counts, with its own payload.
    Fragment,
    /// The capture ends within the headers, before the first 20 bytes of TCP's are over.
    Short,
    /// Lengths in the headers that contradict each other.
    Lengths,
}

impl From<NoIp> for Undecoded {
    fn from(reason: NoIp) -> Self {
        match reason {
            NoIp::LinkType => Self::LinkType,
            NoIp::Protocol => Self::NotIp,
            NoIp::Short => Self::Short,
        }
    }
}

pub(super) fn behind_extension_headers(packet: &[u8]) -> Result<usize, Undecoded> {
    let transport = ip::transport(packet).ok_or(Undecoded::Short)?;
    match transport {
        ip::Transport { fragment: true, .. } => Err(Undecoded::Fragment),
        ip::Transport {
            protocol, offset, ..
        } => behind_authentication(packet, protocol, offset),
    }
}

/// Where TCP's header is, `protocol` being what is at `at`: there, or behind an authentication header, which
/// says its length in words of four bytes, less two (RFC 4302 §2.2).
#[cold]
pub(super) fn behind_authentication(
    packet: &[u8],
    protocol: u8,
    at: usize,
) -> Result<usize, Undecoded> {
    match protocol {
        ip::TCP => Ok(at),
        protocol::AUTHENTICATION => match packet.get(at..at + 2).ok_or(Undecoded::Short)? {
            &[ip::TCP, words] => Ok(at + (usize::from(words) + 2) * 4),
            _ => Err(Undecoded::NotTcp),
        },
        protocol::IPV4 | protocol::IPV6 => Err(Undecoded::IpInIp),
        protocol::GRE => Err(Undecoded::Gre),
        protocol::ENCRYPTED => Err(Undecoded::Encrypted),
        ip::UDP => Err(datagram(packet.get(at..at + 4).ok_or(Undecoded::Short)?)),
        _ => Err(Undecoded::NotTcp),
    }
}

/// A UDP header's ports say what it is.
fn datagram(ports: &[u8]) -> Undecoded {
    match u16::from_be_bytes([ports[2], ports[3]]) {
        VXLAN_PORT => Undecoded::Vxlan,
        _ => Undecoded::NotTcp,
    }
}

/// RFC 7348 §5.
const VXLAN_PORT: u16 = 4789;

/// IP's protocol numbers (IANA).
mod protocol {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const GRE: u8 = 47;
    pub(super) const ENCRYPTED: u8 = 50;
    pub(super) const AUTHENTICATION: u8 = 51;
}
