// SPDX-License-Identifier: MIT OR Apache-2.0
//! VXLAN (RFC 7348), its generic extension, and GENEVE (RFC 8926).

use super::gre::ip_after_protocol_type;
use crate::capture::IpNotFound;
use crate::capture::ether_type::ip_in_ethernet;
use crate::capture::ip_start::{ip_at, read_bytes};

const VXLAN_HEADER: usize = 8;

pub(super) fn ip_in_vxlan(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    ip_in_ethernet(packet, at + VXLAN_HEADER)
}

/// Reads the next protocol from the fourth byte of the header (draft-ietf-nvo3-vxlan-gpe).
pub(super) fn ip_in_vxlan_gpe(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [.., next] = read_bytes::<4>(packet, at)?;
    match next {
        1 | 2 => ip_at(packet, at + VXLAN_HEADER),
        3 => ip_in_ethernet(packet, at + VXLAN_HEADER),
        _ => Err(IpNotFound::Protocol),
    }
}

pub(super) fn ip_in_geneve(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [first, _, high, low] = read_bytes(packet, at)?;
    let options = usize::from(first & 0x3f) * 4;
    ip_after_protocol_type(packet, u16::from_be_bytes([high, low]), at + 8 + options)
}
