// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a captured frame to a segment of a connection. The hot path: one call a packet.

use super::segment::{Endpoint, FlowKey, SACK_BLOCKS_MAX, Segment};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::capture::{Frame, NoIp};
use wire::ip;

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
#[inline]
pub fn decode(frame: &Frame<'_>) -> Result<(FlowKey, Segment), Undecoded> {
    let at = frame.link_type.ip_offset(frame.bytes)?;
    let packet = Packet {
        bytes: &frame.bytes[at..],
        wire_len: frame.wire_len.saturating_sub(at as u32),
    };
    match packet.bytes.first().map(|first| first >> 4) {
        Some(4) => decode_v4(frame, &packet),
        _ => decode_v6(frame, &packet),
    }
}

/// From the IP header on.
struct Packet<'a> {
    bytes: &'a [u8],
    wire_len: u32,
}

/// An IP packet's lengths in bytes.
#[derive(Clone, Copy)]
struct Lengths {
    /// With all headers.
    total: u32,
    /// Of what is before TCP's header.
    before_tcp: usize,
}

#[inline]
fn decode_v4(frame: &Frame<'_>, packet: &Packet<'_>) -> Result<(FlowKey, Segment), Undecoded> {
    let header = packet.bytes.first_chunk::<20>().ok_or(Undecoded::Short)?;
    let before_tcp = usize::from(header[0] & 0xf) * 4;
    if before_tcp < 20 {
        return Err(Undecoded::Lengths);
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return Err(Undecoded::Fragment);
    }
    if header[9] != ip::TCP {
        return Err(Undecoded::NotTcp);
    }
    let total = match u16::from_be_bytes([header[2], header[3]]) {
        0 => packet.wire_len,
        total => u32::from(total),
    };
    let address = |at: usize| {
        let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        IpAddr::V4(Ipv4Addr::from(octets))
    };
    let lengths = Lengths { total, before_tcp };
    decode_tcp(frame, packet, lengths, [address(12), address(16)])
}

#[inline]
fn decode_v6(frame: &Frame<'_>, packet: &Packet<'_>) -> Result<(FlowKey, Segment), Undecoded> {
    let header = packet.bytes.first_chunk::<40>().ok_or(Undecoded::Short)?;
    let before_tcp = match header[6] {
        ip::TCP => 40,
        _ => behind_extension_headers(packet.bytes)?,
    };
    let total = match u16::from_be_bytes([header[4], header[5]]) {
        0 => packet.wire_len,
        payload => 40 + u32::from(payload),
    };
    let address = |octets: Option<&[u8; 16]>| {
        let octets = octets.copied().unwrap_or_default();
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let lengths = Lengths { total, before_tcp };
    let ends = [
        address(header[8..24].first_chunk()),
        address(header[24..40].first_chunk()),
    ];
    decode_tcp(frame, packet, lengths, ends)
}

fn behind_extension_headers(packet: &[u8]) -> Result<usize, Undecoded> {
    let transport = ip::transport(packet).ok_or(Undecoded::Short)?;
    match transport {
        ip::Transport { fragment: true, .. } => Err(Undecoded::Fragment),
        ip::Transport {
            protocol: ip::TCP,
            offset,
            ..
        } => Ok(offset),
        _ => Err(Undecoded::NotTcp),
    }
}

#[inline]
fn decode_tcp(
    frame: &Frame<'_>,
    packet: &Packet<'_>,
    lengths: Lengths,
    [source, destination]: [IpAddr; 2],
) -> Result<(FlowKey, Segment), Undecoded> {
    let tcp = packet.bytes.get(lengths.before_tcp..);
    let tcp = tcp.ok_or(Undecoded::Short)?;
    let (fixed, rest) = tcp.split_first_chunk::<20>().ok_or(Undecoded::Short)?;
    let header_len = usize::from(fixed[12] >> 4) * 4;
    let headers = (lengths.before_tcp + header_len) as u32;
    if header_len < 20 || lengths.total < headers {
        return Err(Undecoded::Lengths);
    }
    let payload = lengths.total - headers;
    let wire_segments = wire_segments(payload, frame.segment_size);
    let (key, from_low) = key(
        Endpoint {
            address: source,
            port: u16::from_be_bytes([fixed[0], fixed[1]]),
        },
        Endpoint {
            address: destination,
            port: u16::from_be_bytes([fixed[2], fixed[3]]),
        },
    );
    let mut segment = Segment {
        at_ns: frame.at_ns,
        seq: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        ack: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        payload,
        wire_bytes: lengths
            .total
            .saturating_add(headers.saturating_mul(u32::from(wire_segments) - 1)),
        wire_segments,
        window: u16::from_be_bytes([fixed[14], fixed[15]]),
        flags: fixed[13],
        sack_blocks: 0,
        from_low,
        window_scale: 0xff,
        mss: 0,
        sack_permitted: false,
        has_timestamps: false,
        tsval: 0,
        tsecr: 0,
        truth: frame.truth,
        sack: [(0, 0); SACK_BLOCKS_MAX],
    };
    take_options(&mut segment, &rest[..rest.len().min(header_len - 20)]);
    Ok((key, segment))
}

/// Which end is the lesser, and whether that is the first.
#[inline]
fn key(source: Endpoint, destination: Endpoint) -> (FlowKey, bool) {
    let from_low = source <= destination;
    let (low, high) = match from_low {
        true => (source, destination),
        false => (destination, source),
    };
    (FlowKey { low, high }, from_low)
}

/// As many as carry the payload, if the size of each is known.
#[inline]
fn wire_segments(payload: u32, segment_size: u16) -> u16 {
    match (payload, segment_size) {
        (0, _) | (_, 0) => 1,
        _ => u16::try_from(payload.div_ceil(u32::from(segment_size))).unwrap_or(u16::MAX),
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

/// Nearly every segment has time stamps first, behind two bytes of padding (RFC 7323 appendix A).
#[inline]
fn take_options(segment: &mut Segment, options: &[u8]) {
    match options.split_first_chunk::<12>() {
        Some(([1, 1, 8, 10, stamps @ ..], rest)) => {
            take_timestamps(segment, stamps);
            if !rest.is_empty() {
                walk_options(segment, rest);
            }
        }
        _ => walk_options(segment, options),
    }
}

#[inline]
fn take_timestamps(segment: &mut Segment, stamps: &[u8; 8]) {
    let [a, b, c, d, e, f, g, h] = *stamps;
    segment.has_timestamps = true;
    segment.tsval = u32::from_be_bytes([a, b, c, d]);
    segment.tsecr = u32::from_be_bytes([e, f, g, h]);
}

/// Up to the end mark, or the first that is damaged or cut off.
fn walk_options(segment: &mut Segment, options: &[u8]) {
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        match *kind {
            option::END => return,
            option::NOP => rest = tail,
            kind => {
                let len = tail.first().copied().map_or(0, usize::from);
                let Some((option, after)) = rest.split_at_checked(len).filter(|_| len >= 2) else {
                    return;
                };
                take_option(segment, kind, &option[2..]);
                rest = after;
            }
        }
    }
}

fn take_option(segment: &mut Segment, kind: u8, body: &[u8]) {
    match (kind, body) {
        (option::MSS, [high, low]) => segment.mss = u16::from_be_bytes([*high, *low]),
        (option::WINDOW_SCALE, [shift]) => segment.window_scale = *shift,
        (option::SACK_PERMITTED, []) => segment.sack_permitted = true,
        (option::SACK, blocks) => take_sack(segment, blocks),
        (option::TIMESTAMPS, stamps) => {
            if let Ok(stamps) = stamps.try_into() {
                take_timestamps(segment, stamps);
            }
        }
        _ => {}
    }
}

fn take_sack(segment: &mut Segment, blocks: &[u8]) {
    let edge = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |edge, byte| edge << 8 | u32::from(*byte))
    };
    let blocks = blocks.chunks_exact(8).take(SACK_BLOCKS_MAX);
    segment.sack_blocks = blocks.len() as u8;
    for (into, block) in segment.sack.iter_mut().zip(blocks) {
        *into = (edge(&block[..4]), edge(&block[4..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::capture::{Fate, LinkType, Truth};
    use wire::tcp;

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
