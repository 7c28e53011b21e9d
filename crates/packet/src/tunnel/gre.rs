// SPDX-License-Identifier: MIT OR Apache-2.0
//! GRE (RFC 2784, RFC 2890) with IP, Ethernet, PPP (PPTP), ERSPAN or WCCP in it.

use crate::capture::IpNotFound;
use crate::capture::ether_type::{ip_after_ether_type, ip_in_ethernet};
use crate::capture::ip_start::{ip_at, read_bytes, read_u16};
use crate::capture::ppp::ip_in_ppp;

/// Values of the protocol type field, which are EtherTypes.
mod protocol_type {
    /// Transparent Ethernet bridging, and an older number for it.
    pub(super) const ETHERNET: [u16; 2] = [0x6558, 0x6400];
    pub(super) const PPP: u16 = 0x880b;
    pub(super) const ERSPAN_2: u16 = 0x88be;
    pub(super) const ERSPAN_3: u16 = 0x22eb;
    /// draft-mclaggan-wccp-v2rev1 §5.9.
    pub(super) const WCCP: u16 = 0x883e;
}

/// Returns the offset of the IP packet in a payload whose type is a field of GRE or GENEVE.
pub(super) fn ip_after_protocol_type(
    packet: &[u8],
    protocol_type: u16,
    at: usize,
) -> Result<usize, IpNotFound> {
    if protocol_type::ETHERNET.contains(&protocol_type) {
        ip_in_ethernet(packet, at)
    } else {
        ip_after_ether_type(packet, protocol_type, at)
    }
}

/// Bits of the first word of a GRE header.
mod gre_flag {
    pub(super) const CHECKSUM: u16 = 0x8000;
    /// Source routing (RFC 1701).
    pub(super) const ROUTING: u16 = 0x4000;
    pub(super) const KEY: u16 = 0x2000;
    pub(super) const SEQUENCE: u16 = 0x1000;
    /// Acknowledgment number of PPTP (RFC 2637).
    pub(super) const ACKNOWLEDGMENT: u16 = 0x0080;
    pub(super) const VERSION: u16 = 0x0007;
}

/// Skips a GRE header (RFC 2784, RFC 2890), or that of PPTP, which is version 1 (RFC 2637). Each optional field has
/// four bytes.
pub(super) fn ip_in_gre(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let (flags, protocol_type) = (read_u16(packet, at)?, read_u16(packet, at + 2)?);
    let optional = match flags & gre_flag::VERSION {
        0 => gre_flag::CHECKSUM | gre_flag::KEY | gre_flag::SEQUENCE,
        1 => gre_flag::KEY | gre_flag::SEQUENCE | gre_flag::ACKNOWLEDGMENT,
        _ => return Err(IpNotFound::Protocol),
    };
    if flags & gre_flag::ROUTING != 0 {
        return Err(IpNotFound::Protocol);
    }
    let inner = at + 4 + 4 * (flags & optional).count_ones() as usize;
    match protocol_type {
        protocol_type::PPP => ip_in_ppp(packet, inner),
        protocol_type::ERSPAN_2 => ip_in_ethernet(packet, inner + erspan_2_len(flags)),
        protocol_type::ERSPAN_3 => ip_in_ethernet(packet, inner + erspan_3_len(packet, inner)?),
        protocol_type::WCCP => ip_in_wccp(packet, inner),
        _ => ip_after_protocol_type(packet, protocol_type, inner),
    }
}

/// Length of the ERSPAN header (draft-foschiano-erspan). Type I has no sequence number in GRE and no header.
fn erspan_2_len(flags: u16) -> usize {
    match flags & gre_flag::SEQUENCE {
        0 => 0,
        _ => 8,
    }
}

/// Length of the ERSPAN type III header. Its last bit announces a subheader of eight bytes.
fn erspan_3_len(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let header: [u8; 12] = read_bytes(packet, at)?;
    Ok(12 + 8 * usize::from(header[11] & 1))
}

/// Skips the redirect header of WCCP version 2, which has four bytes. Version 1 has no such header, and IPv4 only. No
/// field tells the versions apart, but the first four bits of IPv4 do.
fn ip_in_wccp(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    match packet.get(at).ok_or(IpNotFound::Short)? >> 4 {
        4 => Ok(at),
        _ => ip_at(packet, at + 4),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ethernet_header, inner_ip_after};
    use super::super::{UdpTunnels, inner_ip, protocol};
    use super::*;

    fn inner_ip_of_gre(header: &[u8]) -> Result<Option<usize>, IpNotFound> {
        inner_ip_after(protocol::GRE, header)
    }

    #[test]
    fn skips_optional_gre_fields() {
        for (flags, len) in [
            (0, 4),
            (0x80, 8),
            (0x20, 8),
            (0x10, 8),
            (0xa0, 12),
            (0xb0, 16),
        ] {
            let mut header = vec![0; len];
            (header[0], header[2]) = (flags, 8);
            assert_eq!(inner_ip_of_gre(&header), Ok(Some(len)), "{flags:#x}");
        }
        assert_eq!(inner_ip_of_gre(&[0, 0, 0x86, 0xdd]), Ok(Some(4)));
        assert_eq!(
            inner_ip_of_gre(&[0x40, 0, 8, 0, 0, 0, 0, 0]),
            Err(IpNotFound::Protocol)
        );
        assert_eq!(inner_ip_of_gre(&[0, 2, 8, 0]), Err(IpNotFound::Protocol));
        assert_eq!(inner_ip_of_gre(&[0, 0, 8, 6]), Err(IpNotFound::Protocol));
    }

    #[test]
    fn finds_ip_in_ethernet_erspan_and_ppp_over_gre() {
        let frame = ethernet_header();
        let with = |header: &[u8]| {
            inner_ip_of_gre(&[header, &frame].concat())
                .unwrap()
                .unwrap()
        };
        assert_eq!(with(&[0, 0, 0x65, 0x58]), 18);
        assert_eq!(with(&[0, 0, 0x88, 0xbe]), 18, "type I");
        assert_eq!(with(&[&[0x10, 0, 0x88, 0xbe][..], &[0; 12]].concat()), 30);
        assert_eq!(with(&[&[0x10, 0, 0x22, 0xeb][..], &[0; 16]].concat()), 34);
        let with_platform = [&[0x10, 0, 0x22, 0xeb][..], &[0; 15], &[1], &[0; 8]].concat();
        assert_eq!(with(&with_platform), 42);
        let pptp = [0x30, 0x81, 0x88, 0x0b, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
        let framed = [&pptp[..], &[0xff, 3, 0, 0x21]].concat();
        assert_eq!(inner_ip_of_gre(&framed), Ok(Some(20)));
        let encrypted = [&pptp[..], &[0, 0xfd]].concat();
        assert_eq!(inner_ip_of_gre(&encrypted), Err(IpNotFound::CompressedPpp));
    }

    #[test]
    fn finds_ip_in_both_versions_of_wccp() {
        let gre = [0, 0, 0x88, 0x3e];
        assert_eq!(inner_ip_of_gre(&gre), Ok(Some(4)), "version 1");
        let redirect = [&gre[..], &[0x80, 0, 7, 1]].concat();
        assert_eq!(inner_ip_of_gre(&redirect), Ok(Some(8)), "version 2");
        let other = [&gre[..], &[0; 4], &[0x15]].concat();
        assert_eq!(inner_ip_of_gre(&other), Err(IpNotFound::Protocol));
    }

    #[test]
    fn reports_captures_that_end_before_the_inner_packet() {
        let erspan = [
            &[0xb0, 0, 0x22, 0xeb][..],
            &[0; 23],
            &[1],
            &[0; 8],
            &ethernet_header(),
        ];
        let erspan = erspan.concat();
        for len in 0..=erspan.len() {
            let found = inner_ip(&erspan[..len], protocol::GRE, 0, &UdpTunnels::default());
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }
}
