// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks decoded frames: the numbers of a segment or a datagram agree, and the opposite direction has the same connection. A
//! shorter snaplen leaves a segment unchanged except for options, or the frame is reported as too short. One more
//! tunnel changes nothing, or there are too many.
//!
//! The input is the link type, the wire length beyond the captured one in units of 256, the segment size in units of
//! 16, and the frame. Link types from 254 on are those that do not fit into a byte.

use longhaul_flow::decode::{self, Undecoded};
use longhaul_flow::segment::{FlowKey, Segment};
use longhaul_packet::capture::{Frame, LinkType};
use longhaul_packet::tunnel::UdpTunnels;

pub(crate) fn check(input: &[u8]) {
    let Some(([link_type, beyond, segment_size], bytes)) = input.split_first_chunk() else {
        return;
    };
    let frame = Frame {
        timestamp_ns: 1,
        interface: 0,
        link_type: LinkType::from_number(match *link_type {
            254 => 258,
            255 => 276,
            number => number.into(),
        }),
        wire_len: bytes.len() as u32 + u32::from(*beyond) * 256,
        bytes,
        segment_size: u16::from(*segment_size) * 16,
        emulator_record: None,
    };
    let whole = decode(&frame);
    if let Ok((key, segment)) = &whole {
        check_consistency(&frame, key, segment);
    }
    check_datagram(&frame, &whole);
    check_tunnelled(&frame, &whole);
    for len in 0..bytes.len() {
        let cut = Frame {
            bytes: &bytes[..len],
            ..frame
        };
        check_truncated(decode(&cut), &whole);
    }
}

fn decode(frame: &Frame<'_>) -> Decoded {
    decode::decode(frame, &UdpTunnels::default())
}

fn check_consistency(frame: &Frame<'_>, key: &FlowKey, segment: &Segment) {
    assert!(key.low <= key.high);
    let segments = u32::from(segment.wire_segments);
    match frame.segment_size {
        0 => assert_eq!(segments, 1),
        size => assert_eq!(segments, segment.payload.div_ceil(size.into()).max(1)),
    }
    assert!(segment.wire_bytes >= segment.payload + segments * 40);
    assert!(usize::from(segment.sack_blocks) <= segment.sack.len());
    assert!(segment.has_timestamps || (segment.tsval, segment.tsecr) == (0, 0));
}

/// Checks that a frame has a segment or a datagram, not both.
fn check_datagram(frame: &Frame<'_>, whole: &Decoded) {
    if let Ok((key, datagram)) = decode::decode_datagram(frame, &UdpTunnels::default()) {
        assert_eq!(*whole, Err(Undecoded::NotTcp));
        assert!(key.low <= key.high);
        let least = u64::from(datagram.payload_bytes) + u64::from(datagram.wire_datagrams) * 28;
        assert!(u64::from(datagram.wire_bytes) >= least);
    }
}

/// GRE with a key, on IPv4.
const TUNNEL: [u8; 28] = [
    0x45, 0, 0, 28, 0, 0, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x20, 0, 0x08, 0, 0, 0, 0,
    1,
];

fn check_tunnelled(frame: &Frame<'_>, whole: &Decoded) {
    let Ok(at) = frame.link_type.ip_offset(frame.bytes) else {
        return;
    };
    let tunnelled = Frame {
        link_type: LinkType::Raw,
        wire_len: frame.wire_len - at as u32 + TUNNEL.len() as u32,
        bytes: &[&TUNNEL[..], &frame.bytes[at..]].concat(),
        ..*frame
    };
    let tunnelled = decode(&tunnelled);
    assert!(tunnelled == *whole || tunnelled == Err(Undecoded::Nested));
}

type Decoded = Result<(FlowKey, Segment), Undecoded>;

fn check_truncated(cut: Decoded, whole: &Decoded) {
    match (cut, whole) {
        (Err(Undecoded::Short), _) => {}
        (Err(reason), whole) => assert_eq!(Some(reason), whole.as_ref().err().copied()),
        (Ok((key, cut)), Ok((whole_key, whole))) => {
            assert_eq!(key, *whole_key);
            assert_eq!(without_options(cut), without_options(*whole));
        }
        (Ok(_), Err(reason)) => panic!("only the truncated part is {reason:?}"),
    }
}

fn without_options(segment: Segment) -> Segment {
    Segment {
        sack_blocks: 0,
        options_cut: false,
        reported_ce_bytes: None,
        window_scale: 0xff,
        mss: 0,
        sack_permitted: false,
        has_timestamps: false,
        tsval: 0,
        tsecr: 0,
        sack: Default::default(),
        ..segment
    }
}
