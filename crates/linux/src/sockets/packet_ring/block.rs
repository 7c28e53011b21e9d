// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser of TPACKET_V3 blocks. Offsets come from the kernel; they are checked against the block's end
//! nevertheless.

use longhaul_packet::{
    capture::{Frame, LinkType, writer::PacketDirection},
    ip, tcp, vnet,
};
use std::mem::offset_of;

/// Offset of `block_status` in a block, after version and offset to private data.
pub(super) const STATUS: usize = BLOCK_HEADER + offset_of!(libc::tpacket_hdr_v1, block_status);
const BLOCK_HEADER: usize = 8;
const PACKET_COUNT: usize = BLOCK_HEADER + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST_PACKET: usize = BLOCK_HEADER + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

const NEXT_PACKET: usize = offset_of!(libc::tpacket3_hdr, tp_next_offset);
const SECONDS: usize = offset_of!(libc::tpacket3_hdr, tp_sec);
const NANOSECONDS: usize = offset_of!(libc::tpacket3_hdr, tp_nsec);
const SNAP_LEN: usize = offset_of!(libc::tpacket3_hdr, tp_snaplen);
const WIRE_LEN: usize = offset_of!(libc::tpacket3_hdr, tp_len);
const PACKET_STATUS: usize = offset_of!(libc::tpacket3_hdr, tp_status);
const LINK_HEADER: usize = offset_of!(libc::tpacket3_hdr, tp_mac);
const NETWORK_HEADER: usize = offset_of!(libc::tpacket3_hdr, tp_net);
const VLAN_TCI: usize = offset_of!(libc::tpacket3_hdr, hv1) + 4;
const VLAN_TPID: usize = VLAN_TCI + 4;
/// Offset of the packet type in the sockaddr_ll after the header, aligned to 16.
const PACKET_TYPE: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16)
    + offset_of!(libc::sockaddr_ll, sll_pkttype);

/// Offsets in virtio_net_hdr (include/uapi/linux/virtio_net.h).
const GSO_TYPE: usize = 1;
const GSO_SIZE: usize = 4;

/// Length of the addresses in an Ethernet header. The VLAN tag that the kernel removes stands after them.
const ADDRESSES: usize = 12;
const VLAN_TAG: usize = 4;
const UDP_HEADER: usize = 8;

/// A captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970, UTC.
    pub timestamp_ns: u64,
    /// Whether the timestamp is the network card's.
    pub hardware_timestamp: bool,
    /// Length on the wire in bytes, without the removed VLAN tag. For a super-packet it is the total.
    pub wire_len: u32,
    /// Payload of each segment of a super-packet except the last, in bytes; 0 for a single packet.
    pub segment_size: u16,
    /// Direction of the packet.
    pub direction: PacketDirection,
    /// Captured bytes, from the link-layer header on.
    pub bytes: &'a [u8],
    /// VLAN tag that the kernel removed: TPID and TCI, as on the wire.
    pub vlan: Option<[u8; VLAN_TAG]>,
    /// Offset of the IP header in `bytes`.
    network_offset: usize,
}

impl<'a> Packet<'a> {
    /// Returns the frame as it was on the wire. A frame whose VLAN tag is restored is built in `space`.
    pub fn frame<'b>(
        &self,
        interface: u32,
        link_type: LinkType,
        space: &'b mut Vec<u8>,
    ) -> Frame<'b>
    where
        'a: 'b,
    {
        let (bytes, added) = match self.vlan {
            Some(tag) if link_type == LinkType::Ethernet && self.bytes.len() >= ADDRESSES => {
                let (addresses, rest) = self.bytes.split_at(ADDRESSES);
                space.clear();
                space.extend_from_slice(addresses);
                space.extend_from_slice(&tag);
                space.extend_from_slice(rest);
                (space.as_slice(), VLAN_TAG as u32)
            }
            _ => (self.bytes, 0),
        };
        Frame {
            timestamp_ns: self.timestamp_ns,
            interface,
            link_type,
            wire_len: self.wire_len + added,
            bytes,
            segment_size: self.segment_size,
            emulator_record: None,
        }
    }

    /// Returns the number of packets on the wire: 1, or more for a super-packet.
    #[must_use]
    pub fn wire_segments(&self) -> u32 {
        if self.segment_size == 0 {
            return 1;
        }
        let headers = self.headers_len().unwrap_or(self.network_offset) as u32;
        let payload = self.wire_len.saturating_sub(headers);
        payload.div_ceil(self.segment_size.into()).max(1)
    }

    /// Returns the number of bytes before the payload; `None` if the headers are truncated.
    fn headers_len(&self) -> Option<usize> {
        let packet = self.bytes.get(self.network_offset..)?;
        let transport = ip::transport(packet)?;
        let length = match transport.protocol {
            ip::UDP => UDP_HEADER,
            _ => tcp::Header::at(packet.get(transport.offset..)?)?.len(),
        };
        Some(self.network_offset + transport.offset + length)
    }
}

/// Iterator over the packets of a block.
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    block: &'a [u8],
    next: usize,
    left: u32,
}

impl<'a> Packets<'a> {
    /// Iterates over a block from its first byte; a truncated or damaged one ends early.
    pub(super) fn of(block: &'a [u8]) -> Self {
        Self {
            block,
            next: u32_at(block, FIRST_PACKET).unwrap_or_default() as usize,
            left: u32_at(block, PACKET_COUNT).unwrap_or_default(),
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        self.left = self.left.checked_sub(1)?;
        let at = self.block.get(self.next..)?;
        self.next += u32_at(at, NEXT_PACKET)? as usize;
        parse_packet(at)
    }
}

/// Parses the packet whose header is at the start of `at`.
fn parse_packet(at: &[u8]) -> Option<Packet<'_>> {
    let status = u32_at(at, PACKET_STATUS)?;
    let link = usize::from(u16_at(at, LINK_HEADER)?);
    let seconds = u64::from(u32_at(at, SECONDS)?);
    Some(Packet {
        timestamp_ns: seconds * 1_000_000_000 + u64::from(u32_at(at, NANOSECONDS)?),
        hardware_timestamp: status & libc::TP_STATUS_TS_RAW_HARDWARE != 0,
        wire_len: u32_at(at, WIRE_LEN)?,
        segment_size: segment_size(at.get(link.checked_sub(vnet::LEN)?..link)?)?,
        direction: match *at.get(PACKET_TYPE)? {
            libc::PACKET_OUTGOING => PacketDirection::Outbound,
            _ => PacketDirection::Inbound,
        },
        bytes: at.get(link..)?.get(..u32_at(at, SNAP_LEN)? as usize)?,
        vlan: vlan(at, status)?,
        network_offset: usize::from(u16_at(at, NETWORK_HEADER)?).saturating_sub(link),
    })
}

/// Parses the segment size, in native byte order: the socket's vnet header is a legacy one.
fn segment_size(vnet: &[u8]) -> Option<u16> {
    match vnet.get(GSO_TYPE)? {
        0 => Some(0),
        _ => u16_at(vnet, GSO_SIZE),
    }
}

fn vlan(at: &[u8], status: u32) -> Option<Option<[u8; VLAN_TAG]>> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return Some(None);
    }
    let tpid = match status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => libc::ETH_P_8021Q as u16,
        _ => u16_at(at, VLAN_TPID)?,
    };
    let [a, b] = tpid.to_be_bytes();
    let [c, d] = (u32_at(at, VLAN_TCI)? as u16).to_be_bytes();
    Some(Some([a, b, c, d]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*four))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*two))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_AT: usize = 48;
    const LINK_AT: usize = 92;

    fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
        block[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// An outgoing TCP super-packet of 4,000 bytes payload in segments of 1,448, in VLAN 7.
    fn block() -> Vec<u8> {
        let mut block = vec![0; 512];
        put(&mut block, PACKET_COUNT, &1_u32.to_ne_bytes());
        put(&mut block, FIRST_PACKET, &(FIRST_AT as u32).to_ne_bytes());
        let packet = &mut block[FIRST_AT..];
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_TS_SOFTWARE;
        for (at, value) in [
            (SECONDS, 3),
            (NANOSECONDS, 4),
            (SNAP_LEN, 128),
            (WIRE_LEN, 14 + 20 + 32 + 4_000),
            (PACKET_STATUS, status),
            (VLAN_TCI, 7),
        ] {
            put(packet, at, &value.to_ne_bytes());
        }
        put(packet, LINK_HEADER, &(LINK_AT as u16).to_ne_bytes());
        put(packet, NETWORK_HEADER, &(LINK_AT as u16 + 14).to_ne_bytes());
        packet[PACKET_TYPE] = libc::PACKET_OUTGOING;
        packet[LINK_AT - vnet::LEN + GSO_TYPE] = 1;
        put(
            packet,
            LINK_AT - vnet::LEN + GSO_SIZE,
            &1448_u16.to_ne_bytes(),
        );
        packet[LINK_AT..LINK_AT + 12].fill(2);
        put(packet, LINK_AT + 12, &[8, 0, 0x45]);
        packet[LINK_AT + 14 + 9] = ip::TCP;
        packet[LINK_AT + 14 + 20 + 12] = 0x80;
        block
    }

    #[test]
    fn parses_a_super_packet_with_a_vlan_tag() {
        let block = block();
        let packet = Packets::of(&block).next().unwrap();
        assert_eq!(
            (packet.timestamp_ns, packet.hardware_timestamp),
            (3_000_000_004, false)
        );
        assert_eq!((packet.segment_size, packet.wire_segments()), (1448, 3));
        assert_eq!(packet.direction, PacketDirection::Outbound);
        let mut space = Vec::new();
        let frame = packet.frame(2, LinkType::Ethernet, &mut space);
        assert_eq!((frame.wire_len, frame.bytes.len()), (4_070, 132));
        assert_eq!(frame.bytes[10..19], [2, 2, 0x81, 0, 0, 7, 8, 0, 0x45]);
    }

    #[test]
    fn packets_without_gso_are_one_segment() {
        let mut block = block();
        block[FIRST_AT + LINK_AT - vnet::LEN + GSO_TYPE] = 0;
        let packet = Packets::of(&block).next().unwrap();
        assert_eq!((packet.segment_size, packet.wire_segments()), (0, 1));
    }

    #[test]
    fn a_damaged_block_ends_early() {
        let whole = block();
        for length in 0..whole.len() {
            let _ = Packets::of(&whole[..length]).count();
        }
        for at in 0..FIRST_AT + 60 {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            for packet in Packets::of(&damaged).take(1_000) {
                assert!(packet.bytes.len() <= whole.len());
                assert!(packet.wire_segments() > 0);
            }
        }
    }
}
