// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload of an IP packet, the innermost packet of tunnels, and the reasons why a frame has no segment.

use longhaul_packet::{
    capture::IpNotFound,
    ip,
    tunnel::{self, UdpTunnels},
};
use serde::{Deserialize, Serialize};

/// Reasons why a frame has no TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecoded {
    /// Unsupported link type, with its number in the registry.
    LinkType(u16),
    /// Not an IPv4 or IPv6 packet.
    NotIp,
    /// IP protocol other than TCP.
    NotTcp,
    /// More than [`TUNNELS_MAX`] nested tunnels.
    Nested,
    /// Encrypted by IPsec (RFC 4303).
    Encrypted,
    /// Encrypted 802.11 frame.
    EncryptedWifi,
    /// Aggregated 802.11 frame (A-MSDU) with several packets, not decoded.
    AggregatedWifi,
    /// Later fragment of an 802.11 frame, without a TCP header. The first fragment counts, with the whole packet's
    /// payload.
    WifiFragment,
    /// Compressed or encrypted PPP.
    CompressedPpp,
    /// Later fragment of an IP packet, without a TCP header. The first fragment counts, with its own payload only.
    Fragment,
    /// Frame that was cut within the headers: less than the first 20 bytes of the TCP header is left.
    Short,
    /// Inconsistent lengths in the headers.
    Lengths,
}

/// Most nested tunnels that are decoded.
pub const TUNNELS_MAX: usize = 8;

impl From<IpNotFound> for Undecoded {
    fn from(reason: IpNotFound) -> Self {
        match reason {
            IpNotFound::LinkType(number) => Self::LinkType(number),
            IpNotFound::Protocol => Self::NotIp,
            IpNotFound::Short => Self::Short,
            IpNotFound::EncryptedWifi => Self::EncryptedWifi,
            IpNotFound::AggregatedWifi => Self::AggregatedWifi,
            IpNotFound::WifiFragment => Self::WifiFragment,
            IpNotFound::CompressedPpp => Self::CompressedPpp,
        }
    }
}

/// IP packet that is no tunnel packet, with its length on the wire and its payload.
pub(super) struct InnermostPacket<'a> {
    pub(super) packet: &'a [u8],
    pub(super) wire_len: u32,
    pub(super) payload: IpPayload,
}

impl<'a> InnermostPacket<'a> {
    /// Returns the innermost packet of the tunnels in `packet`, or `packet` itself.
    pub(super) fn find(
        packet: &'a [u8],
        wire_len: u32,
        udp_tunnels: &UdpTunnels,
    ) -> Result<Self, Undecoded> {
        let (mut packet, mut wire_len) = (packet, wire_len);
        for _ in 0..=TUNNELS_MAX {
            let payload = IpPayload::of(packet)?;
            let inner = tunnel::inner_ip(packet, payload.protocol, payload.offset, udp_tunnels)?;
            let Some(inner) = inner else {
                return Ok(Self {
                    packet,
                    wire_len,
                    payload,
                });
            };
            packet = &packet[inner..];
            wire_len = wire_len.saturating_sub(inner as u32);
        }
        Err(Undecoded::Nested)
    }
}

/// Protocol and offset of an IP packet's payload.
pub(super) struct IpPayload {
    pub(super) protocol: u8,
    pub(super) offset: usize,
}

impl IpPayload {
    /// Returns the payload after options, extension headers and an authentication header.
    pub(super) fn of(packet: &[u8]) -> Result<Self, Undecoded> {
        let payload = match ip::version(packet) {
            Some(ip::Version::V4) => Self::of_v4(packet)?,
            _ => Self::of_v6(packet)?,
        };
        match payload.protocol {
            AH => payload.skip_authentication(packet),
            ESP => Err(Undecoded::Encrypted),
            _ => Ok(payload),
        }
    }

    fn of_v4(packet: &[u8]) -> Result<Self, Undecoded> {
        let header = packet.first_chunk::<20>().ok_or(Undecoded::Short)?;
        let offset = header_len_v4(header)?;
        let protocol = header[9];
        Ok(Self { protocol, offset })
    }

    fn of_v6(packet: &[u8]) -> Result<Self, Undecoded> {
        match ip::transport(packet).ok_or(Undecoded::Short)? {
            ip::Transport { fragment: true, .. } => Err(Undecoded::Fragment),
            ip::Transport {
                protocol, offset, ..
            } => Ok(Self { protocol, offset }),
        }
    }

    /// Skips an authentication header, whose length field counts words of four bytes, less two (RFC 4302 §2.2).
    fn skip_authentication(self, packet: &[u8]) -> Result<Self, Undecoded> {
        let header = packet
            .get(self.offset..self.offset + 2)
            .ok_or(Undecoded::Short)?;
        Ok(Self {
            protocol: header[0],
            offset: self.offset + (usize::from(header[1]) + 2) * 4,
        })
    }
}

/// Returns the length of an IPv4 header with its options. Refuses a later fragment.
#[inline(always)]
pub(super) fn header_len_v4(header: &[u8; 20]) -> Result<usize, Undecoded> {
    let header_len = usize::from(header[0] & 0xf) * 4;
    if header_len < 20 {
        return Err(Undecoded::Lengths);
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return Err(Undecoded::Fragment);
    }
    Ok(header_len)
}

/// IP protocol numbers (IANA).
const ESP: u8 = 50;
const AH: u8 = 51;
