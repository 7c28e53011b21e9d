// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::segment::{CE, ECT_1, NO_SCALE};
use longhaul_packet::capture::{EmulatorRecord, LinkType, Verdict};
use longhaul_packet::tcp;

const DATA: u32 = 1448;

/// Decodes a frame with the usual tunnels in UDP.
fn decode(frame: &Frame<'_>) -> Decoded {
    super::decode(frame, &UdpTunnels::default())
}

/// Returns a TCP header with these options and flags, from port 5000 to 80.
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
    (packet[0], packet[6], packet[7]) = (0x60, next, 63);
    let len = (rest.len() as u32 + payload) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    (packet[23], packet[39]) = (1, 2);
    packet.extend(rest);
    packet
}

fn frame(packet: &[u8]) -> Frame<'_> {
    Frame {
        timestamp_ns: 77,
        interface: 0,
        link_type: LinkType::Raw,
        wire_len: 9000,
        bytes: packet,
        segment_size: 0,
        emulator_record: None,
    }
}

fn segment(packet: &[u8]) -> Segment {
    decode(&frame(packet)).expect("a segment").1
}

fn undecoded(packet: &[u8]) -> Undecoded {
    decode(&frame(packet)).expect_err("no segment")
}

/// A snaplen of 72 bytes leaves one of three blocks whole.
#[test]
fn counts_whole_blocks_of_cut_sack_option() {
    let mut options = vec![1, 1, 5, 26];
    for number in 1..=6u32 {
        options.extend(number.to_be_bytes());
    }
    let packet = v4(&tcp(tcp::ACK, &options), 0);
    let blocks = |len: usize| {
        let segment = segment(&packet[..len]);
        (segment.sack_blocks, segment.sack[0])
    };
    let found = [packet.len(), 40 + 4 + 15, 40 + 4 + 8, 40 + 4 + 7, 40 + 3].map(blocks);
    assert_eq!(
        found,
        [
            (3, (1, 2)),
            (1, (1, 2)),
            (1, (1, 2)),
            (0, (0, 0)),
            (0, (0, 0))
        ]
    );
    // Longer than the header: damage, not a short snaplen.
    options[3] = 34;
    assert_eq!(segment(&v4(&tcp(tcp::ACK, &options), 0)).sack_blocks, 0);
}

const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0];

#[test]
fn decodes_ipv4_segment() {
    let mut packet = v4(&tcp(tcp::ACK | tcp::PSH, &STAMPS), DATA);
    packet[4..6].copy_from_slice(&[0x12, 0x34]);
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
        window_scale: NO_SCALE,
        has_timestamps: true,
        tsval: 256,
        tsecr: 512,
        ip_id: 0x1234,
        ttl: 64,
        ..Segment::default()
    };
    assert_eq!(segment, expected);
}

#[test]
fn reads_ecn_of_ip_and_tcp() {
    let mut header = tcp(tcp::ACK | tcp::CWR, &[]);
    header[12] |= 1;
    let mut v4 = v4(&header, 0);
    v4[1] = 0b1011_1000 | CE;
    let mut v6 = v6(6, &header, 0);
    (v6[0], v6[1]) = (0x6b, 0x8f | ECT_1 << 4);
    for (packet, ecn) in [(v4, CE), (v6, ECT_1)] {
        let segment = segment(&packet);
        assert_eq!((segment.ecn, segment.ae), (ecn, true));
        assert_eq!(segment.flags, tcp::ACK | tcp::CWR);
    }
}

/// The option of RFC 9768 §3.2.3 may end after any of its three counters.
#[test]
fn reads_bytes_with_ce_from_accecn_option() {
    let option = |kind: u8, counters: &[u8]| {
        let mut options = vec![kind, 2 + counters.len() as u8];
        options.extend(counters);
        options.resize(options.len().next_multiple_of(4), 1);
        segment(&v4(&tcp(tcp::ACK, &options), 0)).reported_ce_bytes
    };
    let counters = [0, 0, 1, 2, 0, 3, 0, 0, 9];
    for kind in [172, 174] {
        let found = [9, 6, 3, 0].map(|length| option(kind, &counters[..length]));
        assert_eq!(found, [Some(0x02_0003), Some(0x02_0003), None, None]);
    }
}

#[test]
fn both_directions_have_same_key() {
    let forward = v4(&tcp(tcp::ACK, &[]), 0);
    let mut backward = forward.clone();
    backward[12..20].rotate_left(4);
    backward[20..24].rotate_left(2);
    let (key, segment) = decode(&frame(&forward)).unwrap();
    let (backward_key, backward_segment) = decode(&frame(&backward)).unwrap();
    assert_eq!(key, backward_key);
    assert!(!segment.from_low && backward_segment.from_low);
}

#[test]
fn decodes_ipv6_segment_after_extension_headers() {
    let plain = segment(&v6(6, &tcp(tcp::ACK, &STAMPS), DATA));
    assert_eq!((plain.payload, plain.wire_bytes), (DATA, 40 + 32 + DATA));
    assert_eq!((plain.ip_id, plain.ttl), (0, 63));
    let hop_by_hop = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(tcp::ACK, &STAMPS)].concat();
    let behind = segment(&v6(0, &hop_by_hop, DATA));
    assert_eq!((behind.payload, behind.wire_bytes), (DATA, 48 + 32 + DATA));
    assert!(behind.has_timestamps && behind.from_low);
}

#[test]
fn decodes_segment_after_authentication_header() {
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
fn excludes_ipv4_options_from_payload() {
    let mut packet = v4(&[&[1; 4][..], &tcp(tcp::ACK, &[])].concat(), DATA);
    packet[0] = 0x46;
    assert_eq!(segment(&packet).payload, DATA);
}

#[test]
fn excludes_ethernet_padding_from_payload() {
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
fn uses_wire_length_if_ip_length_is_zero() {
    let mut packet = v4(&tcp(tcp::ACK, &[]), 0);
    packet[2..4].fill(0);
    assert_eq!(segment(&packet).payload, 9000 - 40);
    let mut packet = v6(6, &tcp(tcp::ACK, &[]), 0);
    packet[4..6].fill(0);
    assert_eq!(segment(&packet).payload, 9000 - 60);
}

/// Mirrors that cut packets write the cut length into the outer headers only, and some programs write the captured length
/// as that of the wire.
#[test]
fn keeps_lengths_of_ip_beyond_the_frame() {
    let packet = v4(&tcp(tcp::ACK, &STAMPS), DATA);
    let on_wire = |wire_len, packet: &[u8]| {
        let frame = Frame {
            wire_len,
            ..frame(packet)
        };
        let (_, segment) = decode(&frame).unwrap();
        (segment.payload, segment.exceeds_frame)
    };
    assert_eq!(on_wire(1500, &packet), (DATA, false));
    assert_eq!(on_wire(1499, &packet), (DATA, true));
    let packet = v6(6, &tcp(tcp::ACK, &STAMPS), DATA);
    assert_eq!(on_wire(1520, &packet), (DATA, false));
    assert_eq!(on_wire(1519, &packet), (DATA, true));
    let tunnelled = around(47, &GRE_KEYED, &packet);
    assert_eq!(on_wire(28 + 1520, &tunnelled), (DATA, false));
    assert_eq!(on_wire(28 + 1519, &tunnelled), (DATA, true));
}

#[test]
fn counts_repeated_headers_of_super_packets() {
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
fn parses_syn_options() {
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
fn marks_cut_options_and_reads_none_in_part() {
    let linux = [
        2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    let windows = [2, 4, 5, 180, 1, 3, 3, 7, 1, 1, 4, 2];
    for (options, scale_from) in [(&linux[..], 60), (&windows[..], 48)] {
        let whole = v4(&tcp(tcp::SYN, options), 0);
        for captured in 40..=whole.len() {
            let syn = segment(&whole[..captured]);
            assert_eq!(syn.options_cut, captured < whole.len());
            let scale = if captured < scale_from { NO_SCALE } else { 7 };
            assert_eq!(syn.window_scale, scale, "{captured} bytes");
            assert_eq!(syn.mss, if captured < 44 { 0 } else { 1460 });
            assert!(!syn.has_timestamps || captured >= 56);
        }
    }
}

#[test]
fn parses_sack_with_and_without_timestamps() {
    let blocks = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2, 0];
    for options in [&[&STAMPS[..], &blocks].concat()[..], &blocks] {
        let ack = segment(&v4(&tcp(tcp::ACK, options), 0));
        assert_eq!(ack.sack_blocks, 2);
        assert_eq!(ack.sack[..3], [(1, 2), (256, 512), (0, 0)]);
        assert_eq!(ack.has_timestamps, options.len() > 20);
    }
}

#[test]
fn stops_at_damaged_option() {
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
fn accepts_cut_options_but_not_cut_header() {
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
fn reports_why_frame_has_no_segment() {
    let ack = tcp(tcp::ACK, &[]);
    let with = |at: usize, byte: u8| {
        let mut packet = v4(&ack, 0);
        packet[at] = byte;
        packet
    };
    assert_eq!(undecoded(&with(0, 0x55)), Undecoded::NotIp);
    assert_eq!(undecoded(&with(9, 17)), Undecoded::NotTcp);
    assert_eq!(undecoded(&with(9, 17)[..23]), Undecoded::Short);
    assert_eq!(undecoded(&with(9, 50)), Undecoded::Encrypted);
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
    assert_eq!(decode(&unknown), Err(Undecoded::LinkType(147)));
}

#[test]
fn decodes_first_fragment() {
    let mut packet = v4(&tcp(tcp::ACK, &[]), 560);
    packet[6] = 0x20;
    assert_eq!(segment(&packet).payload, 560);
    let first = [&[6, 0, 0, 1, 0, 0, 0, 1][..], &tcp(tcp::ACK, &[])].concat();
    assert_eq!(segment(&v6(44, &first, 560)).payload, 560);
}

/// Returns an IPv4 packet of this protocol around `between` and `inner`.
fn around(protocol: u8, between: &[u8], inner: &[u8]) -> Vec<u8> {
    let mut packet = v4(&[between, inner].concat(), 0);
    packet[9] = protocol;
    packet
}

const GRE_KEYED: [u8; 8] = [0x20, 0, 8, 0, 0, 0, 0, 9];

#[test]
fn decodes_innermost_packet_of_nested_tunnels() {
    let inner = v4(&tcp(tcp::ACK, &STAMPS), DATA);
    let plain = decode(&frame(&inner)).unwrap();
    let mut tunnelled = inner;
    for depth in 1..=TUNNELS_MAX {
        tunnelled = match depth % 3 {
            0 => around(4, &[], &tunnelled),
            1 => around(47, &GRE_KEYED, &tunnelled),
            _ => v6(4, &tunnelled, 0),
        };
        assert_eq!(decode(&frame(&tunnelled)), Ok(plain), "{depth} deep");
    }
    assert_eq!(undecoded(&around(4, &[], &tunnelled)), Undecoded::Nested);
}

#[test]
fn decodes_tunnels_at_ports_that_were_set() {
    let ethernet = [&[2; 12][..], &[8, 0]].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet].concat();
    let datagram = [&[0x30, 0x39, 0x15, 0xb3, 0, 0, 0, 0][..], &vxlan].concat();
    let tunnelled = around(17, &datagram, &v4(&tcp(tcp::ACK, &STAMPS), DATA));
    assert_eq!(undecoded(&tunnelled), Undecoded::NotTcp);
    let mut udp_tunnels = UdpTunnels::default();
    udp_tunnels.set(5555, longhaul_packet::tunnel::UdpTunnel::Vxlan);
    let (_, segment) = super::decode(&frame(&tunnelled), &udp_tunnels).unwrap();
    assert_eq!(segment.payload, DATA);
}

#[test]
fn reports_why_tunnel_has_no_segment() {
    let mut datagram = v4(&tcp(tcp::ACK, &[]), 0);
    datagram[9] = 17;
    assert_eq!(undecoded(&around(4, &[], &datagram)), Undecoded::NotTcp);
    assert_eq!(
        undecoded(&around(47, &[0, 0, 8, 6], &[0; 28])),
        Undecoded::NotIp
    );
    let mut bad_length = v4(&tcp(tcp::ACK, &[]), 0);
    bad_length[0] = 0x44;
    assert_eq!(undecoded(&around(4, &[], &bad_length)), Undecoded::Lengths);
    for len in 20..44 {
        let cut = &around(47, &GRE_KEYED, &v4(&tcp(tcp::ACK, &[]), 0))[..len];
        assert_eq!(undecoded(cut), Undecoded::Short, "{len}");
    }
}

/// The first fragment of a tunnel packet has the whole inner header.
#[test]
fn decodes_first_fragment_of_tunnel_packet() {
    let inner = v4(&tcp(tcp::ACK, &STAMPS), DATA);
    let mut first = around(47, &GRE_KEYED, &inner);
    (first[2], first[3], first[6]) = (2, 0, 0x20);
    assert_eq!(segment(&first).payload, DATA);
    let mut later = first;
    later[7] = 61;
    assert_eq!(undecoded(&later), Undecoded::Fragment);
}

#[test]
fn uses_wire_length_inside_tunnel() {
    let mut inner = v4(&tcp(tcp::ACK, &[]), 0);
    inner[2..4].fill(0);
    let payload = segment(&around(47, &GRE_KEYED, &inner)).payload;
    assert_eq!(payload, 9000 - 28 - 40);
}

#[test]
fn passes_emulator_record_on() {
    let packet = v4(&tcp(tcp::ACK, &[]), 0);
    let record = Some(EmulatorRecord {
        queue_bytes: 9,
        verdict: Verdict::Lost,
    });
    let frame = Frame {
        emulator_record: record,
        ..frame(&packet)
    };
    assert_eq!(decode(&frame).unwrap().1.emulator_record, record);
}
