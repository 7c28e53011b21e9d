// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder from a captured frame to a UDP datagram.

use super::ip_packet::{InnermostPacket, IpPayload, Undecoded};
use super::tcp_header::be16;
use crate::segment::{Endpoint, FlowKey};
use crate::udp::{Datagram, quic::Header};
use longhaul_packet::{capture::Frame, ip, tunnel::UdpTunnels};
use std::net::IpAddr;

/// Length of the UDP header, bytes (RFC 768).
const UDP_HEADER_LEN: usize = 8;

/// Decodes the UDP datagram in a frame and its flow; in nested tunnels, that of the innermost packet. Datagrams that
/// carry one of `udp_tunnels` are tunnels. The first fragment of a datagram counts, with its own payload. Lengths are
/// those of IP, as for [`decode`](super::decode).
///
/// # Errors
///
/// Returns the reason if the frame has no datagram: [`Undecoded::NotTcp`] if it has another protocol.
#[cold]
#[inline(never)]
pub fn decode_datagram(
    frame: &Frame<'_>,
    udp_tunnels: &UdpTunnels,
) -> Result<(FlowKey, Datagram), Undecoded> {
    let at = frame.link_type.ip_offset(frame.bytes)?;
    let wire_len = frame.wire_len.saturating_sub(at as u32);
    let innermost = InnermostPacket::find(&frame.bytes[at..], wire_len, udp_tunnels)?;
    let InnermostPacket {
        packet,
        wire_len,
        payload: IpPayload { protocol, offset },
    } = innermost;
    if protocol != ip::UDP {
        return Err(Undecoded::NotTcp);
    }
    let (header, payload) = packet
        .get(offset..)
        .and_then(|udp| udp.split_first_chunk::<UDP_HEADER_LEN>())
        .ok_or(Undecoded::Short)?;
    let (source, destination) = addresses(packet);
    let (key, from_low) = key(
        Endpoint {
            address: source,
            port: be16(header, 0),
        },
        Endpoint {
            address: destination,
            port: be16(header, 2),
        },
    );
    let total = total_len(packet, wire_len);
    let header_bytes = (offset + UDP_HEADER_LEN) as u32;
    let payload_bytes = total.checked_sub(header_bytes).ok_or(Undecoded::Lengths)?;
    let wire_datagrams = wire_datagrams(payload_bytes, frame.segment_size);
    let datagram = Datagram {
        at_ns: frame.timestamp_ns,
        from_low,
        wire_datagrams,
        wire_bytes: total.saturating_add(header_bytes.saturating_mul(wire_datagrams - 1)),
        payload_bytes,
        quic: Header::parse(payload),
    };
    Ok((key, datagram))
}

/// Returns source and destination of an IP packet, whose header was captured.
fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    let v4 = |at: usize| IpAddr::from(std::array::from_fn::<u8, 4, _>(|octet| packet[at + octet]));
    let v6 = |at: usize| IpAddr::from(std::array::from_fn::<u8, 16, _>(|octet| packet[at + octet]));
    match ip::version(packet) {
        Some(ip::Version::V4) => (v4(12), v4(16)),
        _ => (v6(8), v6(24)),
    }
}

/// Returns the flow of a datagram, and whether its lesser end is the sender.
fn key(source: Endpoint, destination: Endpoint) -> (FlowKey, bool) {
    let key = FlowKey {
        low: source.min(destination),
        high: source.max(destination),
    };
    (key, source <= destination)
}

/// Returns the length of an IP packet from its header on, bytes.
fn total_len(packet: &[u8], wire_len: u32) -> u32 {
    let (at, header) = match ip::version(packet) {
        Some(ip::Version::V4) => (2, 0),
        _ => (4, 40),
    };
    match u16::from_be_bytes([packet[at], packet[at + 1]]) {
        0 => wire_len,
        length => header + u32::from(length),
    }
}

/// Returns how many datagrams on the wire carry the payload, if their size is known.
fn wire_datagrams(payload_bytes: u32, segment_size: u16) -> u32 {
    match segment_size {
        0 => 1,
        size => payload_bytes.div_ceil(size.into()).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_packet::capture::LinkType;

    /// Returns a datagram from port 50000 to 443, with `payload` and `missing` bytes that were not captured.
    fn udp(payload: &[u8], missing: usize) -> Vec<u8> {
        let len = (8 + payload.len() + missing) as u16;
        let header = [0xc3, 0x50, 1, 0xbb].into_iter().chain(len.to_be_bytes());
        header
            .chain([0, 0])
            .chain(payload.iter().copied())
            .collect()
    }

    fn v4(protocol: u8, transport: &[u8], missing: usize) -> Vec<u8> {
        let [high, low] = ((20 + transport.len() + missing) as u16).to_be_bytes();
        let header = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0];
        [&header[..], &[10, 0, 0, 2, 10, 0, 0, 1], transport].concat()
    }

    fn v6(transport: &[u8], missing: usize) -> Vec<u8> {
        let [high, low] = ((transport.len() + missing) as u16).to_be_bytes();
        let mut packet = [&[0x60, 0, 0, 0, high, low, 17, 64][..], &[0; 32], transport].concat();
        (packet[23], packet[39]) = (2, 1);
        packet
    }

    fn decode(packet: &[u8], segment_size: u16) -> Result<(FlowKey, Datagram), Undecoded> {
        let frame = Frame {
            timestamp_ns: 77,
            interface: 0,
            link_type: LinkType::Raw,
            wire_len: 9_000,
            bytes: packet,
            segment_size,
            emulator_record: None,
        };
        decode_datagram(&frame, &UdpTunnels::default())
    }

    #[test]
    fn decodes_datagrams_of_both_ip_versions() {
        let payload = [0x61; 4];
        for (packet, header) in [
            (v4(17, &udp(&payload, 96), 96), 28),
            (v6(&udp(&payload, 96), 96), 48),
        ] {
            let (key, datagram) = decode(&packet, 0).unwrap();
            assert_eq!((key.low.port, key.high.port), (443, 50_000));
            let expected = Datagram {
                at_ns: 77,
                from_low: false,
                wire_datagrams: 1,
                wire_bytes: header + 100,
                payload_bytes: 100,
                quic: Some(Header::Short { spin: true }),
            };
            assert_eq!(datagram, expected);
        }
    }

    #[test]
    fn counts_datagrams_of_super_packets() {
        let packet = v4(17, &udp(&[], 2_501), 2_501);
        let (_, datagram) = decode(&packet, 1_200).unwrap();
        assert_eq!(
            (datagram.wire_datagrams, datagram.wire_bytes),
            (3, 2_501 + 3 * 28)
        );
        assert_eq!(
            decode(&v4(17, &udp(&[], 0), 0), 1_200)
                .unwrap()
                .1
                .wire_datagrams,
            1
        );
    }

    /// VXLAN in IPv4 with a datagram in it.
    #[test]
    fn finds_datagrams_in_tunnels_and_not_the_tunnel() {
        let inner = v4(17, &udp(&[], 100), 100);
        let ethernet = [&[2; 12][..], &[8, 0], &inner].concat();
        let mut outer = udp(&[&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet].concat(), 100);
        outer[2..4].copy_from_slice(&4_789u16.to_be_bytes());
        let (key, datagram) = decode(&v4(17, &outer, 100), 0).unwrap();
        assert_eq!((key.low.port, datagram.wire_bytes), (443, 128));
        let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
        let mut outer = udp(&[&[8, 0, 0, 0, 0, 0, 7, 0][..], &arp].concat(), 0);
        outer[2..4].copy_from_slice(&4_789u16.to_be_bytes());
        assert_eq!(decode(&v4(17, &outer, 0), 0), Err(Undecoded::NotIp));
    }

    #[test]
    fn reports_why_frame_has_no_datagram() {
        assert_eq!(decode(&v4(1, &udp(&[], 0), 0), 0), Err(Undecoded::NotTcp));
        let mut lengths = v4(17, &udp(&[], 0), 0);
        lengths[3] = 27;
        assert_eq!(decode(&lengths, 0), Err(Undecoded::Lengths));
        let whole = v4(17, &udp(&[], 0), 0);
        for len in 0..whole.len() {
            assert!(decode(&whole[..len], 0).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn first_fragment_counts_with_its_own_payload() {
        let mut packet = v4(17, &udp(&[], 2_000), 992);
        packet[6] = 0x20;
        assert_eq!(decode(&packet, 0).unwrap().1.payload_bytes, 992);
        packet[7] = 125;
        assert_eq!(decode(&packet, 0), Err(Undecoded::Fragment));
    }
}
