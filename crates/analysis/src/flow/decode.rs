// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a captured frame to a segment of a connection. The hot path: one call a packet.

use super::segment::{Endpoint, FlowKey, NO_SCALE, SACK_BLOCKS_MAX, SCALE_CUT, Segment};
use longhaul_packet::capture::{Frame, NoIp};
use longhaul_packet::ip;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The segment in a frame, and of which connection it is. Lengths are those that IP says, so that neither
/// a short snaplen nor Ethernet's padding changes them; if it says 0, as it does of packets above 64 KB and
/// of those that a card will yet cut, that on the wire. Of TCP options, what was captured counts.
///
/// # Errors
///
/// If there is none: see [`Undecoded`].
#[inline(always)]
pub fn decode(frame: &Frame<'_>) -> Result<(FlowKey, Segment), Undecoded> {
    let at = frame.link_type.ip_offset(frame.bytes)?;
    let packet = &frame.bytes[at..];
    let wire_len = frame.wire_len.saturating_sub(at as u32);
    match packet.first().map(|first| first >> 4) {
        Some(4) => decode_v4(frame, packet, wire_len),
        _ => decode_v6(frame, packet, wire_len),
    }
}

/// All of this way is inlined, so that a segment is put together where it shall be: what is written field by
/// field and copied as a whole soon after makes the processor wait, for as long as all the rest takes.
#[inline(always)]
fn decode_v4(
    frame: &Frame<'_>,
    packet: &[u8],
    wire_len: u32,
) -> Result<(FlowKey, Segment), Undecoded> {
    let header = packet.first_chunk::<20>().ok_or(Undecoded::Short)?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    if header_len < 20 {
        return Err(Undecoded::Lengths);
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return Err(Undecoded::Fragment);
    }
    let headers_len = match header[9] {
        ip::TCP => header_len,
        protocol => behind_authentication(packet, protocol, header_len)?,
    };
    let total = match u16::from_be_bytes([header[2], header[3]]) {
        0 => wire_len,
        total => u32::from(total),
    };
    let tcp = Tcp::parse(packet, headers_len, total)?;
    let (key, from_low) = key_v4(header, &tcp);
    Ok((key, segment(frame, &tcp, from_low)))
}

#[inline(always)]
fn decode_v6(
    frame: &Frame<'_>,
    packet: &[u8],
    wire_len: u32,
) -> Result<(FlowKey, Segment), Undecoded> {
    let header = packet.first_chunk::<40>().ok_or(Undecoded::Short)?;
    let headers_len = match header[6] {
        ip::TCP => 40,
        _ => behind_extension_headers(packet)?,
    };
    let total = match u16::from_be_bytes([header[4], header[5]]) {
        0 => wire_len,
        payload => 40 + u32::from(payload),
    };
    let tcp = Tcp::parse(packet, headers_len, total)?;
    let (key, from_low) = key_v6(header, &tcp);
    Ok((key, segment(frame, &tcp, from_low)))
}

fn behind_extension_headers(packet: &[u8]) -> Result<usize, Undecoded> {
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
fn behind_authentication(packet: &[u8], protocol: u8, at: usize) -> Result<usize, Undecoded> {
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

/// A TCP header, and lengths in bytes.
struct Tcp<'a> {
    fixed: &'a [u8; 20],
    /// As far as they were captured.
    options: &'a [u8],
    /// They were not captured whole.
    options_cut: bool,
    /// Of the packet from the IP header on.
    total: u32,
    /// Of IP's and TCP's headers.
    headers: u32,
}

impl<'a> Tcp<'a> {
    #[inline(always)]
    fn parse(packet: &'a [u8], at: usize, total: u32) -> Result<Self, Undecoded> {
        let (fixed, rest) = packet
            .get(at..)
            .and_then(|tcp| tcp.split_first_chunk::<20>())
            .ok_or(Undecoded::Short)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let headers = (at + header_len) as u32;
        if header_len < 20 || total < headers {
            return Err(Undecoded::Lengths);
        }
        let options = &rest[..rest.len().min(header_len - 20)];
        Ok(Self {
            fixed,
            options,
            options_cut: options.len() < header_len - 20,
            total,
            headers,
        })
    }

    /// Source and destination.
    #[inline]
    fn ports(&self) -> (u16, u16) {
        (be16(self.fixed, 0), be16(self.fixed, 2))
    }
}

#[inline]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The connection, and whether its lesser end sent this. Both ends are numbers as long as they are compared:
/// which is the lesser changes with every other packet, and no guess of the processor's would do.
#[inline(always)]
fn key_v4(header: &[u8; 20], tcp: &Tcp<'_>) -> (FlowKey, bool) {
    let (source_port, destination_port) = tcp.ports();
    let number = |address: u32, port: u16| u64::from(address) << 16 | u64::from(port);
    let source = number(be32(header, 12), source_port);
    let destination = number(be32(header, 16), destination_port);
    let end = |number: u64| Endpoint {
        address: IpAddr::V4(Ipv4Addr::from_bits((number >> 16) as u32)),
        port: number as u16,
    };
    let key = FlowKey {
        low: end(source.min(destination)),
        high: end(source.max(destination)),
    };
    (key, source <= destination)
}

#[inline(always)]
fn key_v6(header: &[u8; 40], tcp: &Tcp<'_>) -> (FlowKey, bool) {
    let (source_port, destination_port) = tcp.ports();
    let end = |at: usize, port| {
        let octets: [u8; 16] = std::array::from_fn(|octet| header[at + octet]);
        let address = IpAddr::V6(Ipv6Addr::from(octets));
        Endpoint { address, port }
    };
    let (source, destination) = (end(8, source_port), end(24, destination_port));
    let from_low = source <= destination;
    let (low, high) = match from_low {
        true => (source, destination),
        false => (destination, source),
    };
    (FlowKey { low, high }, from_low)
}

#[inline(always)]
fn segment(frame: &Frame<'_>, tcp: &Tcp<'_>, from_low: bool) -> Segment {
    let payload = tcp.total - tcp.headers;
    let wire_segments = wire_segments(payload, frame.segment_size);
    let repeated = tcp.headers.saturating_mul(u32::from(wire_segments) - 1);
    let options = Options::parse(tcp.options);
    Segment {
        at_ns: frame.at_ns,
        seq: be32(tcp.fixed, 4),
        ack: be32(tcp.fixed, 8),
        payload,
        wire_bytes: tcp.total.saturating_add(repeated),
        wire_segments,
        window: be16(tcp.fixed, 14),
        flags: tcp.fixed[13],
        sack_blocks: options.sack_blocks,
        from_low,
        window_scale: match options.window_scale {
            NO_SCALE if tcp.options_cut => SCALE_CUT,
            scale => scale,
        },
        mss: options.mss,
        sack_permitted: options.sack_permitted,
        has_timestamps: options.timestamps.is_some(),
        tsval: options.timestamps.map_or(0, |(tsval, _)| tsval),
        tsecr: options.timestamps.map_or(0, |(_, tsecr)| tsecr),
        truth: frame.truth,
        sack: options.sack,
    }
}

/// As many as carry the payload, if the size of each is known.
#[inline]
fn wire_segments(payload: u32, segment_size: u16) -> u16 {
    match u32::from(segment_size) {
        0 => 1,
        size if payload <= size => 1,
        size => u16::try_from(payload.div_ceil(size)).unwrap_or(u16::MAX),
    }
}

/// Option kinds (RFC 9293 §3.2, RFC 7323, RFC 2018).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// What TCP's options say, as [`Segment`] has it.
struct Options {
    timestamps: Option<(u32, u32)>,
    sack_blocks: u8,
    sack: [(u32, u32); SACK_BLOCKS_MAX],
    window_scale: u8,
    mss: u16,
    sack_permitted: bool,
}

impl Options {
    const NONE: Self = Self {
        timestamps: None,
        sack_blocks: 0,
        sack: [(0, 0); SACK_BLOCKS_MAX],
        window_scale: NO_SCALE,
        mss: 0,
        sack_permitted: false,
    };

    /// Nearly every segment has time stamps and nothing else, behind two bytes of padding (RFC 7323
    /// appendix A).
    #[inline(always)]
    fn parse(bytes: &[u8]) -> Self {
        match bytes {
            [] => Self::NONE,
            [1, 1, 8, 10, a, b, c, d, e, f, g, h] => Self {
                timestamps: Some((
                    u32::from_be_bytes([*a, *b, *c, *d]),
                    u32::from_be_bytes([*e, *f, *g, *h]),
                )),
                ..Self::NONE
            },
            _ => Self::walk(bytes),
        }
    }

    /// Up to the end mark, or the first that is damaged or cut off.
    #[inline(never)]
    fn walk(bytes: &[u8]) -> Self {
        let (mut options, mut rest) = (Self::NONE, bytes);
        while let [kind, tail @ ..] = rest {
            match *kind {
                option::END => break,
                option::NOP => rest = tail,
                kind => {
                    let len = tail.first().copied().map_or(0, usize::from);
                    let Some((option, after)) = rest.split_at_checked(len).filter(|_| len >= 2)
                    else {
                        break;
                    };
                    options.take(kind, &option[2..]);
                    rest = after;
                }
            }
        }
        options
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (option::MSS, [high, low]) => self.mss = u16::from_be_bytes([*high, *low]),
            (option::WINDOW_SCALE, [shift]) => self.window_scale = (*shift).min(SCALE_CUT - 1),
            (option::SACK_PERMITTED, []) => self.sack_permitted = true,
            (option::SACK, blocks) => self.take_sack(blocks),
            (option::TIMESTAMPS, stamps) => {
                let stamps = <&[u8; 8]>::try_from(stamps).ok();
                let numbers = stamps.map(|stamps| (be32(stamps, 0), be32(stamps, 4)));
                self.timestamps = numbers.or(self.timestamps);
            }
            _ => {}
        }
    }

    fn take_sack(&mut self, blocks: &[u8]) {
        let (blocks, _) = blocks.as_chunks::<8>();
        let blocks = &blocks[..blocks.len().min(SACK_BLOCKS_MAX)];
        self.sack_blocks = blocks.len() as u8;
        for (into, block) in self.sack.iter_mut().zip(blocks) {
            *into = (be32(block, 0), be32(block, 4));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_packet::capture::{Fate, LinkType, Truth};
    use longhaul_packet::tcp;

    const DATA: u32 = 1448;

    /// A TCP header with these options and flags, from port 5000 to 80.
    fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut header = vec![
            0x13, 0x88, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0, flags, 1, 0, 0, 0, 0, 0,
        ];
        header.extend(options);
        header[12] = (header.len() / 4 * 16) as u8;
        header
    }

    fn v4(transport: &[u8], payload: u32) -> Vec<u8> {
        let total = (20 + transport.len() as u32 + payload) as u16;
        let mut packet = vec![
            0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1,
        ];
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet.extend(transport);
        packet
    }

    fn v6(next: u8, rest: &[u8], payload: u32) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, next);
        let len = (rest.len() as u32 + payload) as u16;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
        (packet[23], packet[39]) = (1, 2);
        packet.extend(rest);
        packet
    }

    fn frame(packet: &[u8]) -> Frame<'_> {
        Frame {
            at_ns: 77,
            interface: 0,
            link_type: LinkType::Raw,
            wire_len: 9000,
            bytes: packet,
            segment_size: 0,
            truth: None,
        }
    }

    fn segment(packet: &[u8]) -> Segment {
        decode(&frame(packet)).expect("a segment").1
    }

    fn undecoded(packet: &[u8]) -> Undecoded {
        decode(&frame(packet)).expect_err("no segment")
    }

    const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0];

    #[test]
    fn an_ipv4_segment() {
        let packet = v4(&tcp(tcp::ACK | tcp::PSH, &STAMPS), DATA);
        let (key, segment) = decode(&frame(&packet)).unwrap();
        let end = |last, port| Endpoint {
            address: IpAddr::from([10, 0, 0, last]),
            port,
        };
        assert_eq!((key.low, key.high), (end(1, 80), end(2, 5000)));
        let expected = Segment {
            at_ns: 77,
            seq: 7,
            ack: 9,
            payload: DATA,
            wire_bytes: 1500,
            wire_segments: 1,
            window: 256,
            flags: 0x18,
            sack_blocks: 0,
            from_low: false,
            window_scale: 0xff,
            mss: 0,
            sack_permitted: false,
            has_timestamps: true,
            tsval: 256,
            tsecr: 512,
            truth: None,
            sack: [(0, 0); SACK_BLOCKS_MAX],
        };
        assert_eq!(segment, expected);
    }

    #[test]
    fn both_directions_have_one_key() {
        let there = v4(&tcp(tcp::ACK, &[]), 0);
        let mut back = there.clone();
        back[12..20].rotate_left(4);
        back[20..24].rotate_left(2);
        let (key, segment) = decode(&frame(&there)).unwrap();
        let (key_back, segment_back) = decode(&frame(&back)).unwrap();
        assert_eq!(key, key_back);
        assert!(!segment.from_low && segment_back.from_low);
    }

    #[test]
    fn an_ipv6_segment_behind_extension_headers() {
        let plain = segment(&v6(6, &tcp(tcp::ACK, &STAMPS), DATA));
        assert_eq!((plain.payload, plain.wire_bytes), (DATA, 40 + 32 + DATA));
        let hop_by_hop = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(tcp::ACK, &STAMPS)].concat();
        let behind = segment(&v6(0, &hop_by_hop, DATA));
        assert_eq!((behind.payload, behind.wire_bytes), (DATA, 48 + 32 + DATA));
        assert!(behind.has_timestamps && behind.from_low);
    }

    #[test]
    fn a_segment_behind_an_authentication_header() {
        let authentication = [
            6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
        ];
        let behind = [&authentication[..], &tcp(tcp::ACK, &STAMPS)].concat();
        let mut packet = v4(&behind, DATA);
        packet[9] = 51;
        for packet in [packet, v6(51, &behind, DATA)] {
            let segment = segment(&packet);
            assert_eq!((segment.payload, segment.seq), (DATA, 7));
            assert!(segment.has_timestamps);
        }
        let mut other = v4(&behind, 0);
        (other[9], other[20]) = (51, 58);
        assert_eq!(undecoded(&other), Undecoded::NotTcp);
    }

    #[test]
    fn ipv4_options_are_no_payload() {
        let mut packet = v4(&[&[1; 4][..], &tcp(tcp::ACK, &[])].concat(), DATA);
        packet[0] = 0x46;
        assert_eq!(segment(&packet).payload, DATA);
    }

    #[test]
    fn ethernet_padding_is_no_payload() {
        let ack = v4(&tcp(tcp::ACK, &[]), 0);
        let padded = [&[0; 12][..], &[8, 0], &ack, &[0xff; 6]].concat();
        let frame = Frame {
            link_type: LinkType::Ethernet,
            wire_len: 60,
            ..frame(&padded)
        };
        let (_, segment) = decode(&frame).unwrap();
        assert_eq!((segment.payload, segment.wire_bytes), (0, 40));
    }

    #[test]
    fn where_ip_has_no_length_the_wire_has() {
        let mut packet = v4(&tcp(tcp::ACK, &[]), 0);
        packet[2..4].fill(0);
        assert_eq!(segment(&packet).payload, 9000 - 40);
        let mut packet = v6(6, &tcp(tcp::ACK, &[]), 0);
        packet[4..6].fill(0);
        assert_eq!(segment(&packet).payload, 9000 - 60);
    }

    #[test]
    fn super_packets_repeat_their_headers() {
        let packet = v4(&tcp(tcp::ACK, &STAMPS), 4 * DATA + 1);
        let count = |segment_size| {
            let frame = Frame {
                segment_size,
                ..frame(&packet)
            };
            let (_, segment) = decode(&frame).unwrap();
            (segment.wire_segments, segment.wire_bytes)
        };
        assert_eq!(count(0), (1, 52 + 4 * DATA + 1));
        assert_eq!(count(1448), (5, 5 * 52 + 4 * DATA + 1));
        assert_eq!(count(9000), (1, 52 + 4 * DATA + 1));
        let ack = v4(&tcp(tcp::ACK, &STAMPS), 0);
        let frame = Frame {
            segment_size: 1448,
            ..frame(&ack)
        };
        assert_eq!(decode(&frame).unwrap().1.wire_segments, 1);
    }

    #[test]
    fn options_of_a_syn() {
        let options = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let syn = segment(&v4(&tcp(tcp::SYN, &options), 0));
        assert_eq!(
            (syn.mss, syn.window_scale, syn.sack_permitted),
            (1460, 7, true)
        );
        assert_eq!((syn.has_timestamps, syn.tsval, syn.payload), (true, 1, 0));
    }

    #[test]
    fn options_that_the_snaplen_cut_do_not_say_that_there_is_no_window_scale() {
        let options = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let whole = v4(&tcp(tcp::SYN, &options), 0);
        for captured in 40..=60 {
            let syn = segment(&whole[..captured]);
            let expected = if captured < 60 { SCALE_CUT } else { 7 };
            assert_eq!(syn.window_scale, expected, "{captured} bytes");
        }
    }

    #[test]
    fn sack_behind_timestamps_and_alone() {
        let blocks = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2, 0];
        for options in [&[&STAMPS[..], &blocks].concat()[..], &blocks] {
            let ack = segment(&v4(&tcp(tcp::ACK, options), 0));
            assert_eq!(ack.sack_blocks, 2);
            assert_eq!(ack.sack[..3], [(1, 2), (256, 512), (0, 0)]);
            assert_eq!(ack.has_timestamps, options.len() > 20);
        }
    }

    #[test]
    fn damaged_options_end_the_walk() {
        for options in [
            [1, 1, 1, 0, 2, 4, 5, 180],
            [3, 0, 2, 4, 5, 180, 1, 1],
            [3, 1, 2, 4, 5, 180, 1, 1],
            [1, 1, 1, 1, 5, 99, 2, 4],
        ] {
            let syn = segment(&v4(&tcp(tcp::SYN, &options), 0));
            assert_eq!((syn.mss, syn.sack_blocks), (0, 0), "{options:?}");
        }
    }

    #[test]
    fn the_snaplen_may_cut_options_but_not_the_rest() {
        let packet = v4(&tcp(tcp::ACK, &STAMPS), DATA);
        let whole = segment(&packet);
        for len in 0..packet.len() {
            match decode(&frame(&packet[..len])) {
                Err(reason) => assert!(len < 40 && reason == Undecoded::Short, "{len}"),
                Ok((_, cut)) => {
                    assert!(len >= 40 && !cut.has_timestamps, "{len}");
                    assert_eq!((cut.payload, cut.seq), (whole.payload, whole.seq));
                }
            }
        }
    }

    #[test]
    fn what_is_no_segment_says_why() {
        let ack = tcp(tcp::ACK, &[]);
        let with = |at: usize, byte: u8| {
            let mut packet = v4(&ack, 0);
            packet[at] = byte;
            packet
        };
        assert_eq!(undecoded(&with(0, 0x55)), Undecoded::NotIp);
        assert_eq!(undecoded(&with(9, 17)), Undecoded::NotTcp);
        assert_eq!(undecoded(&with(9, 17)[..23]), Undecoded::Short);
        assert_eq!(undecoded(&with(9, 4)), Undecoded::IpInIp);
        assert_eq!(undecoded(&with(9, 41)), Undecoded::IpInIp);
        assert_eq!(undecoded(&with(9, 47)), Undecoded::Gre);
        assert_eq!(undecoded(&with(9, 50)), Undecoded::Encrypted);
        let mut vxlan = with(9, 17);
        vxlan[22..24].copy_from_slice(&4789u16.to_be_bytes());
        assert_eq!(undecoded(&vxlan), Undecoded::Vxlan);
        assert_eq!(undecoded(&with(0, 0x44)), Undecoded::Lengths);
        assert_eq!(undecoded(&with(3, 39)), Undecoded::Lengths);
        assert_eq!(undecoded(&with(32, 0x40)), Undecoded::Lengths);
        assert_eq!(undecoded(&with(32, 0x60)), Undecoded::Lengths);
        assert_eq!(undecoded(&with(7, 1)), Undecoded::Fragment);
        assert_eq!(undecoded(&v6(58, &ack, 0)), Undecoded::NotTcp);
        let later = [&[6, 0, 0, 8, 0, 0, 0, 1][..], &ack].concat();
        assert_eq!(undecoded(&v6(44, &later, 0)), Undecoded::Fragment);
        let unknown = Frame {
            link_type: LinkType::Other(147),
            ..frame(&ack)
        };
        assert_eq!(decode(&unknown), Err(Undecoded::LinkType));
    }

    #[test]
    fn a_first_fragment_counts_by_its_header() {
        let mut packet = v4(&tcp(tcp::ACK, &[]), 560);
        packet[6] = 0x20;
        assert_eq!(segment(&packet).payload, 560);
        let first = [&[6, 0, 0, 1, 0, 0, 0, 1][..], &tcp(tcp::ACK, &[])].concat();
        assert_eq!(segment(&v6(44, &first, 560)).payload, 560);
    }

    #[test]
    fn truth_is_passed_on() {
        let packet = v4(&tcp(tcp::ACK, &[]), 0);
        let truth = Some(Truth {
            queue_bytes: 9,
            fate: Fate::Lost,
        });
        let frame = Frame {
            truth,
            ..frame(&packet)
        };
        assert_eq!(decode(&frame).unwrap().1.truth, truth);
    }
}
