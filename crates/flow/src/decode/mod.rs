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
#[inline]
pub fn decode(frame: &Frame<'_>, udp_tunnels: &UdpTunnels) -> Decoded {
    Ok(match TcpPacket::find(frame, udp_tunnels)? {
        TcpPacket::V4(headers) => headers.decode(frame),
        TcpPacket::V6(headers) => headers.decode(frame),
    })
}

/// A TCP packet that was found in a frame.
///
/// Its headers are decoded by a function for each version of IP, which is inlined. So a segment is built where the caller
/// puts it. Writing it field by field and then copying it as a whole stalls the processor for as long as all the rest
/// takes; that also happens to a connection that may be of either version.
#[derive(Debug, Clone, Copy)]
pub enum TcpPacket<'a> {
    /// TCP in IPv4.
    V4(Headers<'a, 20>),
    /// TCP in IPv6.
    V6(Headers<'a, 40>),
}

/// Headers of a TCP packet; `IP_LEN` is the length of the IP header without options, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'a, const IP_LEN: usize> {
    ip: &'a [u8; IP_LEN],
    tcp: Tcp<'a>,
    /// Whether IP's length reaches beyond the end of the frame on the wire.
    exceeds_frame: bool,
}

impl<'a> TcpPacket<'a> {
    /// Finds the TCP packet in a frame, as [`decode`] does.
    ///
    /// # Errors
    ///
    /// Returns the reason if the frame has none.
    #[inline(always)]
    pub fn find(frame: &Frame<'a>, udp_tunnels: &UdpTunnels) -> Result<Self, Undecoded> {
        let at = frame.link_type.ip_offset(frame.bytes)?;
        let packet = &frame.bytes[at..];
        let wire_len = frame.wire_len.saturating_sub(at as u32);
        match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let header = packet.first_chunk::<20>().ok_or(Undecoded::Short)?;
                let header_len = header_len_v4(header)?;
                if header[9] == ip::TCP {
                    return Headers::parse_v4(packet, header_len, wire_len).map(Self::V4);
                }
            }
            _ => {
                let header = packet.first_chunk::<40>().ok_or(Undecoded::Short)?;
                if header[6] == ip::TCP {
                    return Headers::parse_v6(packet, 40, wire_len).map(Self::V6);
                }
            }
        }
        Self::find_innermost(packet, wire_len, udp_tunnels)
    }

    /// Finds the TCP header behind extension headers or in tunnels.
    #[cold]
    #[inline(never)]
    fn find_innermost(
        packet: &'a [u8],
        wire_len: u32,
        udp_tunnels: &UdpTunnels,
    ) -> Result<Self, Undecoded> {
        let InnermostPacket {
            packet,
            wire_len,
            payload,
        } = InnermostPacket::find(packet, wire_len, udp_tunnels)?;
        match (payload.protocol, ip::version(packet)) {
            (ip::TCP, Some(ip::Version::V4)) => {
                Headers::parse_v4(packet, payload.offset, wire_len).map(Self::V4)
            }
            (ip::TCP, _) => Headers::parse_v6(packet, payload.offset, wire_len).map(Self::V6),
            _ => Err(Undecoded::NotTcp),
        }
    }
}

impl<'a, const IP_LEN: usize> Headers<'a, IP_LEN> {
    #[inline(always)]
    fn parse(
        packet: &'a [u8],
        at: usize,
        wire_len: u32,
        total_of: impl FnOnce(&[u8; IP_LEN]) -> Option<u32>,
    ) -> Result<Self, Undecoded> {
        let ip = packet.first_chunk().ok_or(Undecoded::Short)?;
        let total = total_of(ip).unwrap_or(wire_len);
        Ok(Self {
            ip,
            tcp: Tcp::parse(packet, at, total)?,
            exceeds_frame: total > wire_len,
        })
    }
}

impl<'a> Headers<'a, 20> {
    /// Parses an IPv4 packet with its TCP header at `at`.
    #[inline(always)]
    fn parse_v4(packet: &'a [u8], at: usize, wire_len: u32) -> Result<Self, Undecoded> {
        Self::parse(packet, at, wire_len, |ip| match be16(ip, 2) {
            0 => None,
            total => Some(total.into()),
        })
    }

    /// Returns the connection and the segment.
    #[inline(always)]
    #[must_use]
    pub fn decode(&self, frame: &Frame<'_>) -> (FlowKey, Segment) {
        let (key, from_low) = key_v4(self.ip, &self.tcp);
        let segment = Segment {
            from_low,
            ip_id: be16(self.ip, 4),
            ecn: self.ip[1] & 3,
            ttl: self.ip[8],
            exceeds_frame: self.exceeds_frame,
            ..segment(frame, &self.tcp)
        };
        (key, segment)
    }
}

impl<'a> Headers<'a, 40> {
    /// Parses an IPv6 packet with its TCP header at `at`.
    #[inline(always)]
    fn parse_v6(packet: &'a [u8], at: usize, wire_len: u32) -> Result<Self, Undecoded> {
        Self::parse(packet, at, wire_len, |ip| match be16(ip, 4) {
            0 => None,
            payload => Some(40 + u32::from(payload)),
        })
    }

    /// Returns the connection and the segment.
    #[inline(always)]
    #[must_use]
    pub fn decode(&self, frame: &Frame<'_>) -> (FlowKey, Segment) {
        let (key, from_low) = key_v6(self.ip, &self.tcp);
        let segment = Segment {
            from_low,
            ip_id: 0,
            ecn: self.ip[1] >> 4 & 3,
            ttl: self.ip[7],
            exceeds_frame: self.exceeds_frame,
            ..segment(frame, &self.tcp)
        };
        (key, segment)
    }
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

/// Returns the segment without the fields of IP.
#[inline(always)]
fn segment(frame: &Frame<'_>, tcp: &Tcp<'_>) -> Segment {
    let payload = tcp.total - tcp.headers;
    let wire_segments = wire_segments(payload, frame.segment_size);
    let repeated = tcp.headers.saturating_mul(u32::from(wire_segments) - 1);
    let options = Options::parse(tcp.options, tcp.options_cut);
    Segment {
        at_ns: frame.timestamp_ns,
        seq: be32(tcp.fixed, 4),
        ack: be32(tcp.fixed, 8),
        payload,
        wire_bytes: tcp.total.saturating_add(repeated),
        wire_segments,
        window: be16(tcp.fixed, 14),
        flags: tcp.fixed[13],
        ae: tcp.ae(),
        sack_blocks: options.sack_blocks,
        options_cut: tcp.options_cut,
        window_scale: options.window_scale,
        mss: options.mss,
        sack_permitted: options.sack_permitted,
        has_timestamps: options.timestamps.is_some(),
        tsval: options.timestamps.map_or(0, |(tsval, _)| tsval),
        tsecr: options.timestamps.map_or(0, |(_, tsecr)| tsecr),
        reported_ce_bytes: options.reported_ce_bytes,
        emulator_record: frame.emulator_record,
        sack: options.sack,
        ..Segment::default()
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
