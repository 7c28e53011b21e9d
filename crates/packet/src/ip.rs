// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers, as far as an emulator or an analyser needs them.

use crate::checksum;

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Position and protocol of the transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// Version of the IP header before it.
    pub version: Version,
    /// The protocol number after all extension headers.
    pub protocol: u8,
    /// Offset of the transport header from the beginning of the packet, in bytes.
    pub offset: usize,
    /// The packet is a second or later fragment, so no transport header is at `offset`.
    pub fragment: bool,
}

/// Reads the version field; `None` if it is neither 4 nor 6, or the packet is empty.
#[must_use]
pub fn version(packet: &[u8]) -> Option<Version> {
    match packet.first()? >> 4 {
        4 => Some(Version::V4),
        6 => Some(Version::V6),
        _ => None,
    }
}

/// Finds the transport header; `None` if the packet is not IP or ends before that header.
#[must_use]
pub fn transport(packet: &[u8]) -> Option<Transport> {
    match version(packet)? {
        Version::V4 => transport_v4(packet),
        Version::V6 => transport_v6(packet),
    }
}

fn transport_v4(packet: &[u8]) -> Option<Transport> {
    let header = packet.get(..20)?;
    let offset = usize::from(header[0] & 0xf) * 4;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    (20..=packet.len()).contains(&offset).then_some(Transport {
        version: Version::V4,
        protocol: header[9],
        offset,
        fragment,
    })
}

/// Extension headers that can come before the transport header (RFC 8200 §4.1). The headers of IPsec are not among
/// them: the walk ends there, and their number is the protocol.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

fn transport_v6(packet: &[u8]) -> Option<Transport> {
    let mut protocol = *packet.get(6)?;
    let mut offset = 40;
    let mut fragment = false;
    // Each extension header has at least 8 bytes, so the loop ends with the packet.
    while matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
        let header = packet.get(offset..offset + 8)?;
        fragment |= protocol == FRAGMENT && u16::from_be_bytes([header[2], header[3]]) >> 3 != 0;
        let len = if protocol == FRAGMENT {
            8
        } else {
            8 + usize::from(header[1]) * 8
        };
        protocol = header[0];
        offset += len;
    }
    (offset <= packet.len()).then_some(Transport {
        version: Version::V6,
        protocol,
        offset,
        fragment,
    })
}

/// Writes a new total length into the IP header at the beginning of `header`. In an IPv4 header, also adds `id_step` to
/// the identification and computes the header checksum.
pub(crate) fn set_length(header: &mut [u8], version: Version, total: u16, id_step: u16) {
    match version {
        Version::V4 => set_length_v4(header, total, id_step),
        Version::V6 => header[4..6].copy_from_slice(&(total - 40).to_be_bytes()),
    }
}

fn set_length_v4(header: &mut [u8], total: u16, id_step: u16) {
    let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(id_step);
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[10..12].fill(0);
    let end = usize::from(header[0] & 0xf) * 4;
    let sum = checksum::checksum(&header[..end]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_ipv6_extension_headers() {
        let mut packet = vec![0; 40 + 8 + 16 + 20];
        packet[0] = 0x60;
        packet[6] = HOP_BY_HOP;
        packet[40] = DESTINATION;
        packet[48] = TCP;
        packet[49] = 1;
        let found = transport(&packet).unwrap();
        assert_eq!((found.protocol, found.offset), (TCP, 64));
    }

    #[test]
    fn reports_later_fragments() {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[7] = 1;
        assert!(transport(&packet).unwrap().fragment);
    }

    #[test]
    fn never_panics() {
        for len in 0..80 {
            for first in [0x00, 0x45, 0x4f, 0x60, 0xff] {
                let mut packet = vec![0; len];
                packet.iter_mut().take(1).for_each(|byte| *byte = first);
                let _ = transport(&packet);
            }
        }
    }
}
