// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder from a captured frame to a TCP segment. This is the hot path: one call a packet.

mod ip_packet;
mod tcp_header;
#[cfg(test)]
mod tests;
mod udp_header;

use crate::segment::{Endpoint, FlowKey, Segment};
use ip_packet::{InnermostPacket, header_len_v4};
pub use ip_packet::{TUNNELS_MAX, Undecoded};
use longhaul_packet::{capture::Frame, ip, tunnel::UdpTunnels};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcp_header::{Options, Tcp, be16, be32};
pub use udp_header::decode_datagram;

/// Result of decoding a frame.
type Decoded = Result<(FlowKey, Segment), Undecoded>;

/// Decodes the TCP segment in a frame and its connection; in nested tunnels, that of the innermost packet. Lengths are
/// those of IP, so that neither a short snaplen nor Ethernet's padding changes them. If IP's length is 0, as for
/// packets above 64 KB and for those that a card segments later, the length on the wire counts. Of TCP options, the
/// captured part counts. `udp_tunnels` are the tunnels in UDP that are read.
///
/// # Errors
///
/// Returns the reason if the frame has no segment: see [`Undecoded`].
#[inline(always)]
pub fn decode(frame: &Frame<'_>, udp_tunnels: &UdpTunnels) -> Decoded {
    let at = frame.link_type.ip_offset(frame.bytes)?;
    let packet = &frame.bytes[at..];
    let wire_len = frame.wire_len.saturating_sub(at as u32);
    match packet.first().map(|first| first >> 4) {
        Some(4) => decode_v4(frame, packet, wire_len, udp_tunnels),
        _ => decode_v6(frame, packet, wire_len, udp_tunnels),
    }
}

/// Decodes an IPv4 packet. All functions on this path are inlined, so that a segment is built in its final place.
/// Writing it field by field and then copying it as a whole stalls the processor for as long as all the rest takes.
#[inline(always)]
fn decode_v4(frame: &Frame<'_>, packet: &[u8], wire_len: u32, udp_tunnels: &UdpTunnels) -> Decoded {
    let header = packet.first_chunk::<20>().ok_or(Undecoded::Short)?;
    let header_len = header_len_v4(header)?;
    match header[9] {
        ip::TCP => tcp_v4(frame, packet, header_len, wire_len),
        _ => decode_innermost(frame, packet, wire_len, udp_tunnels),
    }
}

#[inline(always)]
fn decode_v6(frame: &Frame<'_>, packet: &[u8], wire_len: u32, udp_tunnels: &UdpTunnels) -> Decoded {
    let header = packet.first_chunk::<40>().ok_or(Undecoded::Short)?;
    match header[6] {
        ip::TCP => tcp_v6(frame, packet, 40, wire_len),
        _ => decode_innermost(frame, packet, wire_len, udp_tunnels),
    }
}

/// Decodes a packet with extension headers or in tunnels.
#[cold]
#[inline(never)]
fn decode_innermost(
    frame: &Frame<'_>,
    packet: &[u8],
    wire_len: u32,
    udp_tunnels: &UdpTunnels,
) -> Decoded {
    let innermost = InnermostPacket::find(packet, wire_len, udp_tunnels)?;
    let InnermostPacket {
        packet,
        wire_len,
        payload,
    } = innermost;
    match (payload.protocol, ip::version(packet)) {
        (ip::TCP, Some(ip::Version::V4)) => tcp_v4(frame, packet, payload.offset, wire_len),
        (ip::TCP, _) => tcp_v6(frame, packet, payload.offset, wire_len),
        _ => Err(Undecoded::NotTcp),
    }
}

#[inline(always)]
fn tcp_v4(frame: &Frame<'_>, packet: &[u8], at: usize, wire_len: u32) -> Decoded {
    let header = packet.first_chunk::<20>().ok_or(Undecoded::Short)?;
    let total = match u16::from_be_bytes([header[2], header[3]]) {
        0 => wire_len,
        total => u32::from(total),
    };
    let tcp = Tcp::parse(packet, at, total)?;
    let (key, from_low) = key_v4(header, &tcp);
    let ip = IpFields {
        id: be16(header, 4),
        ecn: header[1] & 3,
        ttl: header[8],
    };
    Ok((key, segment(frame, &tcp, ip, from_low, total > wire_len)))
}

#[inline(always)]
fn tcp_v6(frame: &Frame<'_>, packet: &[u8], at: usize, wire_len: u32) -> Decoded {
    let header = packet.first_chunk::<40>().ok_or(Undecoded::Short)?;
    let total = match u16::from_be_bytes([header[4], header[5]]) {
        0 => wire_len,
        payload => 40 + u32::from(payload),
    };
    let tcp = Tcp::parse(packet, at, total)?;
    let (key, from_low) = key_v6(header, &tcp);
    let ip = IpFields {
        id: 0,
        ecn: header[1] >> 4 & 3,
        ttl: header[7],
    };
    Ok((key, segment(frame, &tcp, ip, from_low, total > wire_len)))
}

/// Returns the connection, and whether its lesser end is the sender. Ends are compared as numbers without a branch: the
/// result alternates from packet to packet, so the processor could not predict it.
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
    let (low, high) = if from_low {
        (source, destination)
    } else {
        (destination, source)
    };
    (FlowKey { low, high }, from_low)
}

/// Fields of an IP header that are part of a segment.
#[derive(Clone, Copy)]
struct IpFields {
    id: u16,
    ecn: u8,
    ttl: u8,
}

#[inline(always)]
fn segment(
    frame: &Frame<'_>,
    tcp: &Tcp<'_>,
    ip: IpFields,
    from_low: bool,
    exceeds_frame: bool,
) -> Segment {
    let payload = tcp.total - tcp.headers;
    let wire_segments = wire_segments(payload, frame.segment_size);
    let repeated = tcp.headers.saturating_mul(u32::from(wire_segments) - 1);
    let options = Options::parse(tcp.options, tcp.options_cut);
    Segment {
        at_ns: frame.timestamp_ns,
        time_is_estimated: false,
        seq: be32(tcp.fixed, 4),
        ack: be32(tcp.fixed, 8),
        payload,
        wire_bytes: tcp.total.saturating_add(repeated),
        wire_segments,
        window: be16(tcp.fixed, 14),
        flags: tcp.fixed[13],
        ae: tcp.ae(),
        ecn: ip.ecn,
        sack_blocks: options.sack_blocks,
        from_low,
        exceeds_frame,
        options_cut: tcp.options_cut,
        window_scale: options.window_scale,
        mss: options.mss,
        sack_permitted: options.sack_permitted,
        has_timestamps: options.timestamps.is_some(),
        tsval: options.timestamps.map_or(0, |(tsval, _)| tsval),
        tsecr: options.timestamps.map_or(0, |(_, tsecr)| tsecr),
        reported_ce_bytes: options.reported_ce_bytes,
        ip_id: ip.id,
        ttl: ip.ttl,
        emulator_record: frame.emulator_record,
        sack: options.sack,
    }
}

/// Returns how many segments carry the payload, if their size is known.
#[inline]
fn wire_segments(payload: u32, segment_size: u16) -> u16 {
    match u32::from(segment_size) {
        0 => 1,
        size if payload <= size => 1,
        size => u16::try_from(payload.div_ceil(size)).unwrap_or(u16::MAX),
    }
}
