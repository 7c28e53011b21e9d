// SPDX-License-Identifier: MIT OR Apache-2.0
//! Super-packets: packets of up to 64 KB that GSO hands over whole. This module shows them as the segments that would
//! be on the wire, and writes any run of these segments as a packet of its own.
//!
//! A run does not change or copy payload: it is new headers before a slice of the original payload. Header fields
//! change from segment to segment as in `tcp_gso_segment` (`net/ipv4/tcp_offload.c`) and `__udp_gso_segment`
//! (`net/ipv4/udp_offload.c`).

use crate::{
    checksum,
    ip::{self, Version},
    tcp,
    vnet::{self, Gso, VnetHeader},
};
use std::ops::Range;

/// Most bytes of IP and transport headers of a super-packet. Longer headers are refused; only an absurd chain of IPv6
/// extension headers has them.
const HEADERS_MAX: usize = 256;
const UDP_HEADER: usize = 8;

/// Header positions and segments of a packet from a device with virtio-net headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperPacket {
    vnet: VnetHeader,
    version: Version,
    /// Length of all headers in bytes; 0 without GSO.
    headers_len: u16,
    payload_len: u32,
    /// Payload bytes of each segment but the last. The length of the packet without GSO.
    segment_size: u32,
    segments: u16,
}

/// Headers of a run of segments, to be written before `payload` of the original packet.
#[derive(Debug)]
pub struct Run {
    head: [u8; vnet::LEN + HEADERS_MAX],
    head_len: usize,
    /// Range of the original packet that follows the headers.
    pub payload: Range<usize>,
}

impl Run {
    /// Returns the virtio-net header, IP header and transport header.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

impl SuperPacket {
    /// Parses a packet with its virtio-net header; `None` if it is not IP or its GSO headers are damaged.
    #[must_use]
    pub fn parse(vnet: &[u8; vnet::LEN], packet: &[u8]) -> Option<Self> {
        let vnet = VnetHeader::read(vnet)?;
        let version = ip::version(packet)?;
        let headers_len = match vnet.gso {
            Gso::None => return Some(Self::without_gso(vnet, version, packet.len())),
            Gso::Tcp4 | Gso::Tcp6 => {
                let start = usize::from(vnet.csum_start);
                start + tcp::Header::at(packet.get(start..)?)?.len()
            }
            Gso::Udp => usize::from(vnet.csum_start) + UDP_HEADER,
        };
        let ip_header = match version {
            Version::V4 => (usize::from(packet[0] & 0xf) * 4).max(20),
            Version::V6 => 40,
        };
        // The check of virtio_net_hdr_to_skb (include/linux/virtio_net.h). A checksum at another offset would overwrite
        // another field.
        let checksum_at = if vnet.gso == Gso::Udp { 6 } else { 16 };
        let is_valid = vnet.needs_csum
            && vnet.csum_offset == checksum_at
            && vnet.gso_size > 0
            && (ip_header..=HEADERS_MAX).contains(&usize::from(vnet.csum_start))
            && headers_len < packet.len()
            && headers_len <= HEADERS_MAX;
        is_valid.then(|| Self::with_gso(vnet, version, headers_len, packet.len() - headers_len))
    }

    fn without_gso(vnet: VnetHeader, version: Version, len: usize) -> Self {
        Self {
            vnet,
            version,
            headers_len: 0,
            payload_len: len as u32,
            segment_size: len as u32,
            segments: 1,
        }
    }

    fn with_gso(
        vnet: VnetHeader,
        version: Version,
        headers_len: usize,
        payload_len: usize,
    ) -> Self {
        let segment_size = usize::from(vnet.gso_size);
        Self {
            vnet,
            version,
            headers_len: headers_len as u16,
            payload_len: payload_len as u32,
            segment_size: segment_size as u32,
            segments: payload_len.div_ceil(segment_size) as u16,
        }
    }

    /// Number of segments on the wire, at least 1.
    #[must_use]
    pub const fn segments(&self) -> u16 {
        self.segments
    }

    /// Length of segment `index` on the wire in bytes, from its IP header on.
    #[must_use]
    pub fn segment_len(&self, index: u16) -> u32 {
        let payload = self.payload_range(index..index + 1);
        u32::from(self.headers_len) + payload.len() as u32
    }

    /// Length of all segments on the wire in bytes, IP headers included.
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        self.run_len(0..self.segments)
    }

    /// Length of a run of segments on the wire in bytes, IP headers included.
    #[must_use]
    pub fn run_len(&self, run: Range<u16>) -> u64 {
        u64::from(self.headers_len) * run.len() as u64 + self.payload_range(run).len() as u64
    }

    /// Payload of a run, as offsets from the end of the headers.
    fn payload_range(&self, run: Range<u16>) -> Range<usize> {
        let begin = u32::from(run.start) * self.segment_size;
        let end = (u32::from(run.end) * self.segment_size).min(self.payload_len);
        begin as usize..end as usize
    }

    /// Returns the headers that make segments `run` of `packet` a packet of their own.
    ///
    /// `run` must not be empty and must not reach beyond [`segments`](Self::segments).
    #[must_use]
    pub fn run(&self, packet: &[u8], run: Range<u16>) -> Run {
        let headers_len = usize::from(self.headers_len);
        let slice = self.payload_range(run.clone());
        let mut out = Run {
            head: [0; vnet::LEN + HEADERS_MAX],
            head_len: vnet::LEN + headers_len,
            payload: headers_len + slice.start..headers_len + slice.end,
        };
        out.head[..vnet::LEN].copy_from_slice(&self.vnet_header(&run).bytes());
        let head = &mut out.head[vnet::LEN..vnet::LEN + headers_len];
        head.copy_from_slice(&packet[..headers_len]);
        if run.len() < usize::from(self.segments) {
            self.rewrite(head, &run, slice.len());
        }
        out
    }

    /// Length of the headers of `packet` in bytes, from its IP header on. The whole packet if it is neither TCP nor
    /// UDP.
    #[must_use]
    pub fn headers_len(&self, packet: &[u8]) -> usize {
        match self.headers_len {
            0 => plain_headers_len(packet).min(packet.len()),
            len => usize::from(len),
        }
    }

    /// Appends the headers of segment `index` to `out`, as they would be on the wire except for the transport
    /// checksum, which may be incomplete. Reads only the [headers](Self::headers_len) of `packet`.
    pub fn segment_headers(&self, packet: &[u8], index: u16, out: &mut Vec<u8>) {
        match self.segments {
            1 => out.extend_from_slice(&packet[..self.headers_len(packet)]),
            _ => out.extend_from_slice(&self.run(packet, index..index + 1).head()[vnet::LEN..]),
        }
    }

    fn vnet_header(&self, run: &Range<u16>) -> VnetHeader {
        match run.len() {
            1 if self.vnet.gso != Gso::None => VnetHeader {
                gso: Gso::None,
                gso_size: 0,
                ecn: false,
                header_len: self.headers_len,
                ..self.vnet
            },
            _ => self.vnet,
        }
    }

    /// Changes `head` to the headers of a run that is not the whole super-packet. `payload` is the run's payload in
    /// bytes.
    fn rewrite(&self, head: &mut [u8], run: &Range<u16>, payload: usize) {
        let start = usize::from(self.vnet.csum_start);
        let total = head.len() + payload;
        let old_len = head.len() + self.payload_len as usize - start;
        ip::set_length(head, self.version, total as u16, run.start);
        match self.vnet.gso {
            Gso::Udp => set_udp_length(&mut head[start..], total - start),
            _ => self.rewrite_tcp(&mut head[start..], run),
        }
        self.adjust_pseudo_sum(&mut head[start..], old_len, total - start);
    }

    fn rewrite_tcp(&self, tcp: &mut [u8], run: &Range<u16>) {
        let step = u32::from(run.start) * self.segment_size;
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(step);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if run.end < self.segments {
            tcp[13] &= !(tcp::FIN | tcp::PSH);
        }
        // With AccECN, CWR is part of a counter and stays on every segment.
        if run.start > 0 && self.vnet.ecn {
            tcp[13] &= !tcp::CWR;
        }
    }

    /// Updates the sum of the pseudo-header in the checksum field, of which only the length changes.
    fn adjust_pseudo_sum(&self, transport: &mut [u8], old_len: usize, new_len: usize) {
        let at = usize::from(self.vnet.csum_offset);
        let sum = u16::from_be_bytes([transport[at], transport[at + 1]]);
        let new = checksum::replace_word(sum, old_len as u16, new_len as u16);
        transport[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }

    /// Clears `out`, writes segment `index` with complete checksums into it, and then flips one bit, chosen by
    /// `entropy`. The result is a frame damaged on a link without a frame check.
    pub fn corrupt_into(&self, packet: &[u8], index: u16, entropy: u32, out: &mut Vec<u8>) {
        let run = self.run(packet, index..index + 1);
        out.clear();
        out.extend_from_slice(&VnetHeader::PLAIN.bytes());
        out.extend_from_slice(&run.head()[vnet::LEN..]);
        out.extend_from_slice(&packet[run.payload]);
        self.complete_checksum(&mut out[vnet::LEN..]);
        let bit = entropy as usize % ((out.len() - vnet::LEN) * 8);
        out[vnet::LEN + bit / 8] ^= 1 << (bit % 8);
    }

    fn complete_checksum(&self, segment: &mut [u8]) {
        let start = usize::from(self.vnet.csum_start);
        let field = start + usize::from(self.vnet.csum_offset);
        if !self.vnet.needs_csum || field + 2 > segment.len() {
            return;
        }
        let value = match checksum::checksum(&segment[start..]) {
            // RFC 768: a UDP checksum of zero means no checksum, so zero is sent as its complement.
            0 => 0xffff,
            value => value,
        };
        segment[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Length of the headers of a packet without GSO, in bytes.
fn plain_headers_len(packet: &[u8]) -> usize {
    let Some(transport) = ip::transport(packet) else {
        return packet.len();
    };
    let rest = &packet[transport.offset..];
    match transport.protocol {
        _ if transport.fragment => transport.offset,
        ip::TCP => transport.offset + tcp::Header::at(rest).map_or(rest.len(), |tcp| tcp.len()),
        ip::UDP => transport.offset + UDP_HEADER,
        _ => packet.len(),
    }
}

fn set_udp_length(udp: &mut [u8], len: usize) {
    udp[4..6].copy_from_slice(&(len as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1000;

    /// A TCP super-packet as from the kernel: NEEDS_CSUM, with the sum of the pseudo-header.
    fn super_packet(version: Version, payload: usize, flags: u8) -> ([u8; vnet::LEN], Vec<u8>) {
        let ip_len = if version == Version::V4 { 20 } else { 40 };
        let mut packet = vec![0u8; ip_len + 20 + payload];
        let total = packet.len();
        match version {
            Version::V4 => {
                packet[0] = 0x45;
                packet[9] = ip::TCP;
                packet[12..20].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
                packet[4..6].copy_from_slice(&0xfffe_u16.to_be_bytes());
            }
            Version::V6 => {
                packet[0] = 0x60;
                packet[6] = ip::TCP;
                packet[8..40]
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, byte)| *byte = i as u8);
            }
        }
        ip::set_length(&mut packet, version, total as u16, 0);
        let tcp = &mut packet[ip_len..];
        tcp[4..8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
        tcp[12] = 5 << 4;
        tcp[13] = flags;
        for (i, byte) in tcp[20..].iter_mut().enumerate() {
            *byte = (i * 7 + i / 256) as u8;
        }
        let pseudo = pseudo_sum(&packet, version, ip_len, packet.len() - ip_len);
        packet[ip_len + 16..ip_len + 18].copy_from_slice(&pseudo.to_be_bytes());
        let vnet = VnetHeader {
            needs_csum: true,
            gso: if version == Version::V4 {
                Gso::Tcp4
            } else {
                Gso::Tcp6
            },
            ecn: true,
            header_len: (ip_len + 20) as u16,
            gso_size: MSS as u16,
            csum_start: ip_len as u16,
            csum_offset: 16,
            ..VnetHeader::PLAIN
        };
        (vnet.bytes(), packet)
    }

    fn pseudo_sum(packet: &[u8], version: Version, ip_len: usize, tcp_len: usize) -> u16 {
        let addresses = if version == Version::V4 {
            &packet[12..20]
        } else {
            &packet[8..40]
        };
        let sum = checksum::sum(addresses, u64::from(ip::TCP) + tcp_len as u64);
        let _ = ip_len;
        checksum::fold(sum)
    }

    /// Checks the sum of the pseudo-header, the IPv4 header checksum and the lengths, as a receiver does. Returns the
    /// packet.
    fn verify(head: &[u8], payload: &[u8], version: Version) -> Vec<u8> {
        let vnet = VnetHeader::read(head[..vnet::LEN].try_into().unwrap()).unwrap();
        let mut packet = head[vnet::LEN..].to_vec();
        packet.extend_from_slice(payload);
        let start = usize::from(vnet.csum_start);
        let expected = pseudo_sum(&packet, version, start, packet.len() - start);
        let found = u16::from_be_bytes([packet[start + 16], packet[start + 17]]);
        assert_eq!(found, expected, "pseudo-header sum");
        if version == Version::V4 {
            assert_eq!(checksum::checksum(&packet[..20]), 0, "IPv4 header checksum");
            assert_eq!(
                usize::from(u16::from_be_bytes([packet[2], packet[3]])),
                packet.len()
            );
        } else {
            assert_eq!(
                usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40,
                packet.len()
            );
        }
        packet
    }

    #[test]
    fn segment_headers_equal_those_of_a_run_of_one() {
        for version in [Version::V4, Version::V6] {
            let (vnet, packet) = super_packet(version, 2 * MSS + 1, tcp::ACK | tcp::FIN);
            let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
            let headers = parsed.headers_len(&packet);
            for index in 0..3 {
                let mut alone = Vec::new();
                parsed.segment_headers(&packet[..headers], index, &mut alone);
                let run = parsed.run(&packet, index..index + 1);
                assert_eq!(alone, run.head()[vnet::LEN..]);
                assert_eq!(alone[headers - 7] & tcp::FIN != 0, index == 2);
            }
        }
    }

    #[test]
    fn headers_len_without_gso_ends_at_the_payload() {
        let (_, tcp) = super_packet(Version::V6, 700, tcp::ACK);
        let mut udp = super_packet(Version::V4, 700, 0).1;
        udp[9] = ip::UDP;
        let mut fragment = udp.clone();
        fragment[7] = 1;
        let mut icmp = udp.clone();
        icmp[9] = 1;
        for (packet, len) in [(tcp, 60), (udp, 28), (fragment, 20), (icmp, 740)] {
            let parsed = SuperPacket::parse(&VnetHeader::PLAIN.bytes(), &packet).unwrap();
            assert_eq!(parsed.headers_len(&packet), len);
            let mut headers = Vec::new();
            parsed.segment_headers(&packet[..len], 0, &mut headers);
            assert_eq!(headers, packet[..len]);
        }
    }

    #[test]
    fn every_run_is_a_valid_packet() {
        for version in [Version::V4, Version::V6] {
            let (vnet, packet) = super_packet(version, 3 * MSS + 500, tcp::ACK | tcp::PSH);
            let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
            assert_eq!(parsed.segments(), 4);
            for start in 0..4 {
                for end in start + 1..=4 {
                    let run = parsed.run(&packet, start..end);
                    let out = verify(run.head(), &packet[run.payload.clone()], version);
                    let tcp = tcp::Header::at(&out[out.len() - run.payload.len() - 20..]).unwrap();
                    let step = u32::from(start) * MSS as u32;
                    assert_eq!(tcp.seq(), 0xffff_ff00_u32.wrapping_add(step));
                    assert_eq!(tcp.flags() & tcp::PSH != 0, end == 4);
                }
            }
        }
    }

    #[test]
    fn sets_flags_on_the_same_segments_as_the_kernel() {
        let flags = tcp::ACK | tcp::FIN | tcp::PSH | tcp::CWR;
        let (vnet, packet) = super_packet(Version::V4, 3 * MSS, flags);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let flags_of = |index: u16| {
            let run = parsed.run(&packet, index..index + 1);
            tcp::Header::at(&run.head()[vnet::LEN + 20..])
                .unwrap()
                .flags()
        };
        assert_eq!(flags_of(0), tcp::ACK | tcp::CWR);
        assert_eq!(flags_of(1), tcp::ACK);
        assert_eq!(flags_of(2), tcp::ACK | tcp::FIN | tcp::PSH);
    }

    #[test]
    fn increments_identification_and_wraps() {
        let (vnet, packet) = super_packet(Version::V4, 3 * MSS, tcp::ACK);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let id = |index: u16| {
            let run = parsed.run(&packet, index..index + 1);
            u16::from_be_bytes([run.head()[vnet::LEN + 4], run.head()[vnet::LEN + 5]])
        };
        assert_eq!((id(0), id(1), id(2)), (0xfffe, 0xffff, 0));
    }

    #[test]
    fn rejects_a_checksum_over_another_field() {
        let (mut vnet, packet) = super_packet(Version::V4, 3 * MSS, tcp::ACK);
        assert!(SuperPacket::parse(&vnet, &packet).is_some());
        vnet[8] = 4;
        assert!(SuperPacket::parse(&vnet, &packet).is_none());
    }

    #[test]
    fn segment_lengths_add_up_to_the_wire_length() {
        let (vnet, packet) = super_packet(Version::V6, 2 * MSS + 1, tcp::ACK);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let lens: Vec<u32> = (0..3).map(|i| parsed.segment_len(i)).collect();
        assert_eq!(lens, [1060, 1060, 61]);
        assert_eq!(parsed.wire_len(), 1060 + 1060 + 61);
    }

    #[test]
    fn corrupts_exactly_one_bit() {
        let (vnet, packet) = super_packet(Version::V4, 2 * MSS, tcp::ACK);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let run = parsed.run(&packet, 1..2);
        let mut intact = verify(run.head(), &packet[run.payload.clone()], Version::V4);
        parsed.complete_checksum(&mut intact);
        let mut damaged = Vec::new();
        parsed.corrupt_into(&packet, 1, 777, &mut damaged);
        let flipped: u32 = intact
            .iter()
            .zip(&damaged[vnet::LEN..])
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert_eq!((damaged.len() - vnet::LEN, flipped), (intact.len(), 1));
    }

    #[test]
    fn rejects_damaged_gso_headers() {
        let (vnet, packet) = super_packet(Version::V4, 2 * MSS, tcp::ACK);
        for cut in 0..40 {
            assert_eq!(
                SuperPacket::parse(&vnet, &packet[..cut]),
                None,
                "{cut} bytes"
            );
        }
        let mut no_size = vnet;
        no_size[4..6].fill(0);
        assert_eq!(SuperPacket::parse(&no_size, &packet), None);
        let mut far_field = vnet;
        far_field[8] = 200;
        assert_eq!(SuperPacket::parse(&far_field, &packet), None);
    }
}
