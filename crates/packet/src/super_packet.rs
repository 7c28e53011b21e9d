// SPDX-License-Identifier: MIT OR Apache-2.0
//! Super-packets: up to 64 KB that GSO hands over as one packet, to be seen as the segments that
//! would be on the wire, and to be written back as any run of them.
//!
//! Payload is never touched: a run is new headers in front of a slice of the old payload. What
//! changes from segment to segment follows `tcp_gso_segment` (`net/ipv4/tcp_offload.c`) and
//! `__udp_gso_segment` (`net/ipv4/udp_offload.c`).

use crate::{
    checksum,
    ip::{self, Version},
    tcp,
    vnet::{self, Gso, VnetHeader},
};
use std::ops::Range;

/// Longest IP and transport header that is cut; longer ones (IPv6 extension headers beyond any
/// sane chain) are refused.
const HEADERS_MAX: usize = 256;
const UDP_HEADER: usize = 8;

/// Where things are in one packet from a device with vnet_hdr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperPacket {
    vnet: VnetHeader,
    version: Version,
    headers: u16,
    payload: u32,
    /// Payload bytes of each segment but the last; all of it without GSO.
    stride: u32,
    segments: u16,
}

/// Headers of a run of segments, ready to be written before `payload` of the original packet.
#[derive(Debug)]
pub struct Run {
    head: [u8; vnet::LEN + HEADERS_MAX],
    head_len: usize,
    /// Which bytes of the original packet follow.
    pub payload: Range<usize>,
}

impl Run {
    /// vnet header, IP header, transport header.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

impl SuperPacket {
    /// Understands a packet; `None` if it is not IP or its GSO headers are damaged.
    #[must_use]
    pub fn parse(vnet: &[u8; vnet::LEN], packet: &[u8]) -> Option<Self> {
        let vnet = VnetHeader::read(vnet)?;
        let version = ip::version(packet)?;
        let headers = match vnet.gso {
            Gso::None => return Some(Self::whole(vnet, version, packet.len())),
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
        // As virtio_net_hdr_to_skb has it (include/linux/virtio_net.h): a checksum that is somewhere
        // else would be written over another field.
        let checksum_at = if vnet.gso == Gso::Udp { 6 } else { 16 };
        let sound = vnet.needs_csum
            && vnet.csum_offset == checksum_at
            && vnet.gso_size > 0
            && (ip_header..=HEADERS_MAX).contains(&usize::from(vnet.csum_start))
            && headers < packet.len()
            && headers <= HEADERS_MAX;
        sound.then(|| Self::cut(vnet, version, headers, packet.len() - headers))
    }

    fn whole(vnet: VnetHeader, version: Version, len: usize) -> Self {
        Self {
            vnet,
            version,
            headers: 0,
            payload: len as u32,
            stride: len as u32,
            segments: 1,
        }
    }

    fn cut(vnet: VnetHeader, version: Version, headers: usize, payload: usize) -> Self {
        let stride = usize::from(vnet.gso_size);
        Self {
            vnet,
            version,
            headers: headers as u16,
            payload: payload as u32,
            stride: stride as u32,
            segments: payload.div_ceil(stride) as u16,
        }
    }

    /// How many packets this is on the wire: 1 or more.
    #[must_use]
    pub const fn segments(&self) -> u16 {
        self.segments
    }

    /// Bytes of segment `index` on the wire, from its IP header on.
    #[must_use]
    pub fn segment_len(&self, index: u16) -> u32 {
        let payload = self.payload_of(index..index + 1);
        u32::from(self.headers) + payload.len() as u32
    }

    /// Bytes on the wire of all segments, IP headers included.
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        self.run_len(0..self.segments)
    }

    /// Bytes on the wire of a run of segments.
    #[must_use]
    pub fn run_len(&self, run: Range<u16>) -> u64 {
        u64::from(self.headers) * run.len() as u64 + self.payload_of(run).len() as u64
    }

    /// The payload of a run, as offsets from the end of the headers.
    fn payload_of(&self, run: Range<u16>) -> Range<usize> {
        let begin = u32::from(run.start) * self.stride;
        let end = (u32::from(run.end) * self.stride).min(self.payload);
        begin as usize..end as usize
    }

    /// The headers that turn segments `run` of `packet` into a packet of its own.
    ///
    /// `run` must not be empty nor reach beyond [`segments`](Self::segments).
    #[must_use]
    pub fn run(&self, packet: &[u8], run: Range<u16>) -> Run {
        let headers = usize::from(self.headers);
        let slice = self.payload_of(run.clone());
        let mut out = Run {
            head: [0; vnet::LEN + HEADERS_MAX],
            head_len: vnet::LEN + headers,
            payload: headers + slice.start..headers + slice.end,
        };
        out.head[..vnet::LEN].copy_from_slice(&self.vnet_of(&run).bytes());
        let head = &mut out.head[vnet::LEN..vnet::LEN + headers];
        head.copy_from_slice(&packet[..headers]);
        if run.len() < usize::from(self.segments) {
            self.rewrite(head, &run, slice.len());
        }
        out
    }

    /// How many bytes of `packet`, from its IP header on, are headers; all of them where it is neither
    /// TCP nor UDP.
    #[must_use]
    pub fn headers_len(&self, packet: &[u8]) -> usize {
        match self.headers {
            0 => whole_headers(packet).min(packet.len()),
            headers => usize::from(headers),
        }
    }

    /// Appends the headers of segment `index` to `out`, as they would be on the wire but for the
    /// transport checksum, which may be unfinished. Of `packet` it takes only the
    /// [headers](Self::headers_len).
    pub fn segment_headers(&self, packet: &[u8], index: u16, out: &mut Vec<u8>) {
        match self.segments {
            1 => out.extend_from_slice(&packet[..self.headers_len(packet)]),
            _ => out.extend_from_slice(&self.run(packet, index..index + 1).head()[vnet::LEN..]),
        }
    }

    fn vnet_of(&self, run: &Range<u16>) -> VnetHeader {
        match run.len() {
            1 if self.vnet.gso != Gso::None => VnetHeader {
                gso: Gso::None,
                gso_size: 0,
                ecn: false,
                header_len: self.headers,
                ..self.vnet
            },
            _ => self.vnet,
        }
    }

    fn rewrite(&self, head: &mut [u8], run: &Range<u16>, payload: usize) {
        let start = usize::from(self.vnet.csum_start);
        let total = head.len() + payload;
        let old_len = head.len() + self.payload as usize - start;
        ip::set_length(head, self.version, total as u16, run.start);
        match self.vnet.gso {
            Gso::Udp => set_udp_length(&mut head[start..], total - start),
            _ => self.rewrite_tcp(&mut head[start..], run),
        }
        self.adjust_pseudo_sum(&mut head[start..], old_len, total - start);
    }

    fn rewrite_tcp(&self, tcp: &mut [u8], run: &Range<u16>) {
        let step = u32::from(run.start) * self.stride;
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(step);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if run.end < self.segments {
            tcp[13] &= !(tcp::FIN | tcp::PSH);
        }
        // With AccECN the flag is part of a counter and stays on every segment.
        if run.start > 0 && self.vnet.ecn {
            tcp[13] &= !tcp::CWR;
        }
    }

    /// The checksum field holds the pseudo-header's sum, of which only the length changes.
    fn adjust_pseudo_sum(&self, transport: &mut [u8], old_len: usize, new_len: usize) {
        let at = usize::from(self.vnet.csum_offset);
        let sum = u16::from_be_bytes([transport[at], transport[at + 1]]);
        let new = checksum::replace_word(sum, old_len as u16, new_len as u16);
        transport[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }

    /// Writes segment `index` with all checksums complete into `out` (cleared first) and then flips
    /// one bit of it, chosen by `entropy`: what a damaged frame whose link has no check looks like.
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
            // RFC 768: a UDP checksum of zero means none, so zero is sent as its complement.
            0 => 0xffff,
            value => value,
        };
        segment[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
}

fn whole_headers(packet: &[u8]) -> usize {
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

    /// A TCP super-packet as the kernel hands it over: NEEDS_CSUM with the pseudo-header sum.
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

    /// What a receiver does: completes the checksum and verifies it over the pseudo-header.
    fn verified(head: &[u8], payload: &[u8], version: Version) -> Vec<u8> {
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
    fn headers_of_a_segment_are_those_of_its_run_of_one() {
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
    fn headers_of_a_whole_packet_end_where_its_payload_begins() {
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
    fn each_run_is_a_sound_packet_of_its_own() {
        for version in [Version::V4, Version::V6] {
            let (vnet, packet) = super_packet(version, 3 * MSS + 500, tcp::ACK | tcp::PSH);
            let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
            assert_eq!(parsed.segments(), 4);
            for start in 0..4 {
                for end in start + 1..=4 {
                    let run = parsed.run(&packet, start..end);
                    let out = verified(run.head(), &packet[run.payload.clone()], version);
                    let tcp = tcp::Header::at(&out[out.len() - run.payload.len() - 20..]).unwrap();
                    let step = u32::from(start) * MSS as u32;
                    assert_eq!(tcp.seq(), 0xffff_ff00_u32.wrapping_add(step));
                    assert_eq!(tcp.flags() & tcp::PSH != 0, end == 4);
                }
            }
        }
    }

    #[test]
    fn flags_go_where_the_kernel_puts_them() {
        let flags = tcp::ACK | tcp::FIN | tcp::PSH | tcp::CWR;
        let (vnet, packet) = super_packet(Version::V4, 3 * MSS, flags);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let of = |index: u16| {
            let run = parsed.run(&packet, index..index + 1);
            tcp::Header::at(&run.head()[vnet::LEN + 20..])
                .unwrap()
                .flags()
        };
        assert_eq!(of(0), tcp::ACK | tcp::CWR);
        assert_eq!(of(1), tcp::ACK);
        assert_eq!(of(2), tcp::ACK | tcp::FIN | tcp::PSH);
    }

    #[test]
    fn identification_counts_on_and_wraps() {
        let (vnet, packet) = super_packet(Version::V4, 3 * MSS, tcp::ACK);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let id = |index: u16| {
            let run = parsed.run(&packet, index..index + 1);
            u16::from_be_bytes([run.head()[vnet::LEN + 4], run.head()[vnet::LEN + 5]])
        };
        assert_eq!((id(0), id(1), id(2)), (0xfffe, 0xffff, 0));
    }

    #[test]
    fn a_checksum_over_another_field_is_refused() {
        let (mut vnet, packet) = super_packet(Version::V4, 3 * MSS, tcp::ACK);
        assert!(SuperPacket::parse(&vnet, &packet).is_some());
        vnet[8] = 4;
        assert!(SuperPacket::parse(&vnet, &packet).is_none());
    }

    #[test]
    fn lengths_add_up() {
        let (vnet, packet) = super_packet(Version::V6, 2 * MSS + 1, tcp::ACK);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let lens: Vec<u32> = (0..3).map(|i| parsed.segment_len(i)).collect();
        assert_eq!(lens, [1060, 1060, 61]);
        assert_eq!(parsed.wire_len(), 1060 + 1060 + 61);
    }

    #[test]
    fn a_corrupt_segment_has_exactly_one_wrong_bit() {
        let (vnet, packet) = super_packet(Version::V4, 2 * MSS, tcp::ACK);
        let parsed = SuperPacket::parse(&vnet, &packet).unwrap();
        let run = parsed.run(&packet, 1..2);
        let mut sound = verified(run.head(), &packet[run.payload.clone()], Version::V4);
        parsed.complete_checksum(&mut sound);
        let mut damaged = Vec::new();
        parsed.corrupt_into(&packet, 1, 777, &mut damaged);
        let wrong: u32 = sound
            .iter()
            .zip(&damaged[vnet::LEN..])
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert_eq!((damaged.len() - vnet::LEN, wrong), (sound.len(), 1));
    }

    #[test]
    fn damaged_gso_headers_are_refused() {
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
