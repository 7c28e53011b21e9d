// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPP (RFC 1661), with and without HDLC-like framing (RFC 1662).

use super::ip_start::{IpNotFound, ip_at, read_bytes, read_u16};
use super::mpls::ip_in_mpls;

/// Protocol numbers (IANA).
mod protocol {
    pub(super) const IPV4: u16 = 0x0021;
    /// RFC 5072.
    pub(super) const IPV6: u16 = 0x0057;
    /// RFC 3032 §4.3.
    pub(super) const MPLS: [u16; 2] = [0x0281, 0x0283];
    /// Compressed TCP headers (RFC 1144) and IP headers (RFC 2509). Datagrams that are compressed (RFC 1962; MPPE, RFC
    /// 3078) or encrypted (RFC 1968), for a whole multilink bundle or for a single link.
    pub(super) const COMPRESSED: [u16; 8] = [
        0x002d, 0x002f, 0x0061, 0x0069, 0x00fb, 0x00fd, 0x0053, 0x0055,
    ];
}

/// Address and control fields of HDLC-like framing.
const ALL_STATIONS: [u8; 2] = [0xff, 0x03];

/// Returns the offset of the IP packet in a PPP frame at `at`, with or without HDLC-like framing.
pub(crate) fn ip_in_ppp(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    match read_bytes(frame, at)? {
        ALL_STATIONS => ip_in_unframed_ppp(frame, at + 2),
        _ => ip_in_unframed_ppp(frame, at),
    }
}

/// Returns the offset of the IP packet in a PPP frame whose protocol field is at `at`. The field is compressed to one
/// byte if that byte is odd (RFC 1661 §6.5).
pub(super) fn ip_in_unframed_ppp(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let first = *frame.get(at).ok_or(IpNotFound::Short)?;
    match first & 1 {
        1 => ip_after_protocol(frame, first.into(), at + 1),
        _ => ip_after_protocol(frame, read_u16(frame, at)?, at + 2),
    }
}

fn ip_after_protocol(frame: &[u8], protocol: u16, at: usize) -> Result<usize, IpNotFound> {
    match protocol {
        protocol::IPV4 | protocol::IPV6 => ip_at(frame, at),
        _ if protocol::MPLS.contains(&protocol) => ip_in_mpls(frame, at),
        _ if protocol::COMPRESSED.contains(&protocol) => Err(IpNotFound::CompressedPpp),
        _ => Err(IpNotFound::Protocol),
    }
}
