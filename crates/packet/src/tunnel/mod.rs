// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inner IP packets of tunnels: IP in IP, GRE with its payloads, VXLAN and GENEVE. UDP tunnels are known by their
//! registered ports, as in Wireshark.

use crate::capture::IpNotFound;
use crate::capture::ether_type::{ip_after_ether_type, ip_in_ethernet};
use crate::capture::ip_start::{ip_at, read_bytes, read_u16};
use crate::capture::ppp::ip_in_ppp;
use crate::ip::UDP;

/// IP protocol numbers (IANA).
mod protocol {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const GRE: u8 = 47;
}

/// UDP ports (IANA).
mod port {
    /// RFC 8086.
    pub(super) const GRE: u16 = 4754;
    /// RFC 7348.
    pub(super) const VXLAN: u16 = 4789;
    /// draft-ietf-nvo3-vxlan-gpe.
    pub(super) const VXLAN_GPE: u16 = 4790;
    /// RFC 8926.
    pub(super) const GENEVE: u16 = 6081;
}

const UDP_HEADER: usize = 8;

/// Returns the offset of the inner IP packet of a tunnel; `None` if `protocol` is no tunnel. `protocol` is that of the
/// outer packet's payload, which begins at offset `at`. The length of the inner packet is in its own header.
///
/// # Errors
///
/// Fails if the tunnel carries another protocol than IP, or the capture ends before the inner packet.
pub fn inner_ip(packet: &[u8], protocol: u8, at: usize) -> Result<Option<usize>, IpNotFound> {
    match protocol {
        protocol::IPV4 | protocol::IPV6 => ip_at(packet, at).map(Some),
        protocol::GRE => ip_in_gre(packet, at).map(Some),
        UDP => ip_in_udp(packet, read_u16(packet, at + 2)?, at + UDP_HEADER),
        _ => Ok(None),
    }
}

/// Finds the inner IP packet of a UDP tunnel by its destination port. The datagram's payload begins at `at`.
fn ip_in_udp(packet: &[u8], port: u16, at: usize) -> Result<Option<usize>, IpNotFound> {
    match port {
        port::GRE => ip_in_gre(packet, at).map(Some),
        port::VXLAN => ip_in_ethernet(packet, at + VXLAN_HEADER).map(Some),
        port::VXLAN_GPE => ip_in_vxlan_gpe(packet, at).map(Some),
        port::GENEVE => ip_in_geneve(packet, at).map(Some),
        _ => Ok(None),
    }
}

const VXLAN_HEADER: usize = 8;

/// Reads the next protocol from the fourth byte of the header (draft-ietf-nvo3-vxlan-gpe).
fn ip_in_vxlan_gpe(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [.., next] = read_bytes::<4>(packet, at)?;
    match next {
        1 | 2 => ip_at(packet, at + VXLAN_HEADER),
        3 => ip_in_ethernet(packet, at + VXLAN_HEADER),
        _ => Err(IpNotFound::Protocol),
    }
}

/// Values of the protocol type field of GRE and GENEVE, which are EtherTypes.
mod protocol_type {
    /// Transparent Ethernet bridging, and an older number for it.
    pub(super) const ETHERNET: [u16; 2] = [0x6558, 0x6400];
    pub(super) const PPP: u16 = 0x880b;
    pub(super) const ERSPAN_2: u16 = 0x88be;
    pub(super) const ERSPAN_3: u16 = 0x22eb;
}

fn ip_in_geneve(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [first, _, high, low] = read_bytes(packet, at)?;
    let options = usize::from(first & 0x3f) * 4;
    ip_after_protocol_type(packet, u16::from_be_bytes([high, low]), at + 8 + options)
}

fn ip_after_protocol_type(
    packet: &[u8],
    protocol_type: u16,
    at: usize,
) -> Result<usize, IpNotFound> {
    match protocol_type::ETHERNET.contains(&protocol_type) {
        true => ip_in_ethernet(packet, at),
        false => ip_after_ether_type(packet, protocol_type, at),
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
fn ip_in_gre(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const IP: [u8; 1] = [0x45];

    /// Finds the inner packet after `header`, and checks that it begins right there.
    fn inner_ip_after(protocol: u8, header: &[u8]) -> Result<Option<usize>, IpNotFound> {
        let found = inner_ip(&[header, &IP].concat(), protocol, 0);
        assert!(!matches!(found, Ok(Some(at)) if at != header.len()));
        found
    }

    fn inner_ip_of_gre(header: &[u8]) -> Result<Option<usize>, IpNotFound> {
        inner_ip_after(protocol::GRE, header)
    }

    fn ethernet_frame() -> Vec<u8> {
        [&[2; 12][..], &[8, 0]].concat()
    }

    #[test]
    fn finds_ip_in_ip() {
        assert_eq!(inner_ip_after(4, &[]), Ok(Some(0)));
        assert_eq!(inner_ip_after(41, &[]), Ok(Some(0)));
        assert_eq!(inner_ip_after(6, &[]), Ok(None));
        assert_eq!(inner_ip(&[0x55], 4, 0), Err(IpNotFound::Protocol));
        assert_eq!(inner_ip(&[], 41, 0), Err(IpNotFound::Short));
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
        let frame = ethernet_frame();
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

    fn inner_ip_of_datagram(port: u16, header: &[u8]) -> Result<Option<usize>, IpNotFound> {
        let ports = [[0x30, 0x39], port.to_be_bytes()].concat();
        inner_ip_after(UDP, &[&ports, &[0; 4][..], header].concat())
    }

    #[test]
    fn finds_ip_in_udp_tunnels() {
        let frame = ethernet_frame();
        let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame].concat();
        assert_eq!(inner_ip_of_datagram(4789, &vxlan), Ok(Some(30)));
        assert_eq!(
            inner_ip_of_datagram(4790, &[12, 0, 0, 1, 0, 0, 7, 0]),
            Ok(Some(16))
        );
        let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 4], &frame].concat();
        assert_eq!(inner_ip_of_datagram(6081, &geneve), Ok(Some(34)));
        assert_eq!(inner_ip_of_datagram(4754, &[0, 0, 8, 0]), Ok(Some(12)));
        assert_eq!(inner_ip_of_datagram(53, &vxlan), Ok(None));
    }

    #[test]
    fn reports_captures_that_end_before_the_inner_packet() {
        let erspan = [
            &[0xb0, 0, 0x22, 0xeb][..],
            &[0; 23],
            &[1],
            &[0; 8],
            &ethernet_frame(),
        ];
        let erspan = erspan.concat();
        for len in 0..=erspan.len() {
            let found = inner_ip(&erspan[..len], protocol::GRE, 0);
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }
}
