// SPDX-License-Identifier: MIT OR Apache-2.0
//! EtherTypes: finds the IP packet after one, past the headers that can come between Ethernet and IP.

use super::ip_start::{IpNotFound, ip_at, read_u16};
use super::{mpls::ip_in_mpls, ppp};

/// EtherTypes (IEEE 802.3 clause 3.2.6, registered with IANA).
mod number {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
    /// 802.1Q, 802.1ad, and two numbers that were used for stacked tags before 802.1ad.
    pub(super) const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
    pub(super) const MPLS: [u16; 2] = [0x8847, 0x8848];
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    /// Greatest value that is the length of an LLC frame instead of a type.
    pub(super) const LENGTH_MAX: u16 = 1500;
}

/// Most VLAN tags that are skipped.
pub(super) const TAGS_MAX: usize = 8;

/// Returns the offset of the IP packet in an Ethernet frame, which begins at `at` with its addresses.
#[inline]
pub(crate) fn ip_in_ethernet(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    ip_after_ether_type(frame, read_u16(frame, at + 12)?, at + 14)
}

/// Returns the offset of the IP packet in a payload of type `ether_type`, which begins at `at`.
#[inline]
pub(crate) fn ip_after_ether_type(
    frame: &[u8],
    ether_type: u16,
    at: usize,
) -> Result<usize, IpNotFound> {
    match ether_type {
        number::IPV4 | number::IPV6 => ip_at(frame, at),
        _ => skip_headers(frame, ether_type, at),
    }
}

/// Skips headers between the link layer and IP. Each iteration consumes bytes of the frame.
fn skip_headers(frame: &[u8], ether_type: u16, at: usize) -> Result<usize, IpNotFound> {
    let (mut ether_type, mut at) = (ether_type, at);
    for _ in 0..=TAGS_MAX {
        match ether_type {
            number::IPV4 | number::IPV6 => return ip_at(frame, at),
            // RFC 2516 §4: six bytes, then PPP.
            number::PPPOE_SESSION => return ppp::ip_in_unframed_ppp(frame, at + 6),
            ..=number::LENGTH_MAX => match llc_payload(frame, at)? {
                LlcPayload::Ip => return ip_at(frame, at + 3),
                LlcPayload::Snap(inner) => (ether_type, at) = (inner, at + 8),
            },
            _ if number::MPLS.contains(&ether_type) => return ip_in_mpls(frame, at),
            _ if number::VLAN.contains(&ether_type) => {
                (ether_type, at) = (read_u16(frame, at + 2)?, at + 4);
            }
            _ => break,
        }
    }
    Err(IpNotFound::Protocol)
}

/// Returns the offset of the IP packet after an LLC header, which begins at `at`.
pub(super) fn ip_after_llc(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    // Any type up to LENGTH_MAX means LLC.
    skip_headers(frame, 0, at)
}

/// Payload that an LLC header (IEEE 802.2) announces.
enum LlcPayload {
    /// IP, after three bytes (RFC 948).
    Ip,
    /// A SNAP payload of this EtherType, after eight bytes (RFC 1042).
    Snap(u16),
}

fn llc_payload(frame: &[u8], at: usize) -> Result<LlcPayload, IpNotFound> {
    let header = frame.get(at..at + 3).ok_or(IpNotFound::Short)?;
    match header {
        [0x06, 0x06, 0x03] => Ok(LlcPayload::Ip),
        [0xaa, 0xaa, 0x03] => match frame.get(at + 3..at + 6).ok_or(IpNotFound::Short)? {
            [0, 0, 0] => snap_payload(read_u16(frame, at + 6)?),
            _ => Err(IpNotFound::Protocol),
        },
        _ => Err(IpNotFound::Protocol),
    }
}

/// Checks the type field of SNAP, which is never a length.
fn snap_payload(ether_type: u16) -> Result<LlcPayload, IpNotFound> {
    match ether_type {
        ..=number::LENGTH_MAX => Err(IpNotFound::Protocol),
        ether_type => Ok(LlcPayload::Snap(ether_type)),
    }
}
