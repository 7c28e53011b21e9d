// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an IP packet carries, and why there is no segment in a frame.

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
    /// Tunnels in each other, more than [`TUNNELS_MAX`].
    Nested,
    /// Encrypted by IPsec (RFC 4303).
    Encrypted,
    /// An 802.11 frame that is encrypted.
    EncryptedWifi,
    /// An 802.11 frame with several packets in it (A-MSDU), not looked into.
    AggregatedWifi,
    /// A later fragment of an 802.11 frame, without a TCP header. The first one counts, with its packet's payload.
    WifiFragment,
    /// PPP with something compressed or encrypted.
    CompressedPpp,
    /// A later fragment of an IP packet, without a TCP header. The first one counts, with its own payload.
    Fragment,
    /// The capture ends within the headers, before the first 20 bytes of TCP's are over.
    Short,
    /// Lengths in the headers that contradict each other.
    Lengths,
}

/// Most tunnels in each other that are looked into.
pub const TUNNELS_MAX: usize = 8;

impl From<NoIp> for Undecoded {
    fn from(reason: NoIp) -> Self {
        match reason {
            NoIp::LinkType => Self::LinkType,
            NoIp::Protocol => Self::NotIp,
            NoIp::Short => Self::Short,
            NoIp::EncryptedWifi => Self::EncryptedWifi,
            NoIp::AggregatedWifi => Self::AggregatedWifi,
            NoIp::WifiFragment => Self::WifiFragment,
            NoIp::CompressedPpp => Self::CompressedPpp,
        }
    }
}

/// The protocol that an IP packet carries, and where.
pub(super) struct Carried {
    pub(super) protocol: u8,
    pub(super) at: usize,
}

impl Carried {
    /// Behind options, extension headers and an authentication header.
    pub(super) fn of(packet: &[u8]) -> Result<Self, Undecoded> {
        let transport = ip::transport(packet).ok_or(missing(packet))?;
        if transport.fragment {
            return Err(Undecoded::Fragment);
        }
        let carried = Self {
            protocol: transport.protocol,
            at: transport.offset,
        };
        match carried.protocol {
            AUTHENTICATION => carried.behind_authentication(packet),
            ENCRYPTED => Err(Undecoded::Encrypted),
            _ => Ok(carried),
        }
    }

    /// That header says its length in words of four bytes, less two (RFC 4302 §2.2).
    fn behind_authentication(self, packet: &[u8]) -> Result<Self, Undecoded> {
        let header = packet.get(self.at..self.at + 2).ok_or(Undecoded::Short)?;
        Ok(Self {
            protocol: header[0],
            at: self.at + (usize::from(header[1]) + 2) * 4,
        })
    }
}

/// Why no transport header was found.
fn missing(packet: &[u8]) -> Undecoded {
    match packet.first() {
        Some(0x40..=0x44) if packet.len() >= 20 => Undecoded::Lengths,
        _ => Undecoded::Short,
    }
}

/// IP's protocol numbers (IANA).
const ENCRYPTED: u8 = 50;
const AUTHENTICATION: u8 = 51;
