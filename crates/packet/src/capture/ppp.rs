// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPP (RFC 1661), with and without its framing like HDLC's (RFC 1662).

use super::ip_start::{NoIp, bytes, is_ip, word};
use super::mpls::mpls;

/// Protocol numbers (IANA).
mod protocol {
    pub(super) const IPV4: u16 = 0x0021;
    /// RFC 5072.
    pub(super) const IPV6: u16 = 0x0057;
    /// RFC 3032 §4.3.
    pub(super) const MPLS: [u16; 2] = [0x0281, 0x0283];
    /// TCP's headers compressed (RFC 1144), IP's (RFC 2509), datagrams compressed (RFC 1962, also MPPE, RFC 3078) and
    /// encrypted (RFC 1968), on all links and on one of several.
    pub(super) const COMPRESSED: [u16; 8] = [
        0x002d, 0x002f, 0x0061, 0x0069, 0x00fb, 0x00fd, 0x0053, 0x0055,
    ];
}

/// Address and control of a frame like HDLC's.
const ALL_STATIONS: [u8; 2] = [0xff, 0x03];

/// With that frame or without.
pub(crate) fn ppp(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    match bytes(frame, at)? {
        ALL_STATIONS => unframed(frame, at + 2),
        _ => unframed(frame, at),
    }
}

/// From the protocol field on, which is one byte where that is odd (RFC 1661 §6.5).
pub(super) fn unframed(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    let first = *frame.get(at).ok_or(NoIp::Short)?;
    match first & 1 {
        1 => carries(frame, first.into(), at + 1),
        _ => carries(frame, word(frame, at)?, at + 2),
    }
}

fn carries(frame: &[u8], protocol: u16, at: usize) -> Result<usize, NoIp> {
    match protocol {
        protocol::IPV4 | protocol::IPV6 => is_ip(frame, at),
        _ if protocol::MPLS.contains(&protocol) => mpls(frame, at),
        _ if protocol::COMPRESSED.contains(&protocol) => Err(NoIp::CompressedPpp),
        _ => Err(NoIp::Protocol),
    }
}
