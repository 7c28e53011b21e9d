// SPDX-License-Identifier: MIT OR Apache-2.0
//! IP packets inside of IP packets: IP in IP, GRE with what it carries, VXLAN and GENEVE, at the ports that Wireshark
//! knows them by.

use crate::capture::NoIp;
use crate::capture::ether_type::{by_type, ethernet};
use crate::capture::ip_start::{bytes, is_ip, word};
use crate::capture::ppp::ppp;
use crate::ip::UDP;

/// IP's protocol numbers (IANA).
mod protocol {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const GRE: u8 = 47;
}

/// UDP's ports (IANA).
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

/// Where the IP packet begins that an IP packet carries, whose payload at `at` is of this protocol; none if that is no
/// tunnel. How long it is, its own header says.
///
/// # Errors
///
/// If the tunnel carries something else, or the capture ends before it.
pub fn inner_ip(packet: &[u8], protocol: u8, at: usize) -> Result<Option<usize>, NoIp> {
    match protocol {
        protocol::IPV4 | protocol::IPV6 => is_ip(packet, at).map(Some),
        protocol::GRE => gre(packet, at).map(Some),
        UDP => in_udp(packet, word(packet, at + 2)?, at + UDP_HEADER),
        _ => Ok(None),
    }
}

/// What a datagram carries to this port.
fn in_udp(packet: &[u8], port: u16, at: usize) -> Result<Option<usize>, NoIp> {
    match port {
        port::GRE => gre(packet, at).map(Some),
        port::VXLAN => ethernet(packet, at + VXLAN_HEADER).map(Some),
        port::VXLAN_GPE => vxlan_gpe(packet, at).map(Some),
        port::GENEVE => geneve(packet, at).map(Some),
        _ => Ok(None),
    }
}

const VXLAN_HEADER: usize = 8;

/// Its fourth byte says what comes next.
fn vxlan_gpe(packet: &[u8], at: usize) -> Result<usize, NoIp> {
    let [.., next] = bytes::<4>(packet, at)?;
    match next {
        1 | 2 => is_ip(packet, at + VXLAN_HEADER),
        3 => ethernet(packet, at + VXLAN_HEADER),
        _ => Err(NoIp::Protocol),
    }
}

/// What GRE and GENEVE say that they carry: EtherTypes, and those of GRE's users.
mod carried {
    /// Transparent Ethernet bridging, and what came before it.
    pub(super) const ETHERNET: [u16; 2] = [0x6558, 0x6400];
    pub(super) const PPP: u16 = 0x880b;
    pub(super) const ERSPAN_2: u16 = 0x88be;
    pub(super) const ERSPAN_3: u16 = 0x22eb;
}

fn geneve(packet: &[u8], at: usize) -> Result<usize, NoIp> {
    let [first, _, high, low] = bytes(packet, at)?;
    let options = usize::from(first & 0x3f) * 4;
    ethernet_or(packet, u16::from_be_bytes([high, low]), at + 8 + options)
}

fn ethernet_or(packet: &[u8], carried: u16, at: usize) -> Result<usize, NoIp> {
    match carried::ETHERNET.contains(&carried) {
        true => ethernet(packet, at),
        false => by_type(packet, carried, at),
    }
}

/// First word of GRE's header.
mod gre_flag {
    pub(super) const CHECKSUM: u16 = 0x8000;
    /// Source routes (RFC 1701).
    pub(super) const ROUTING: u16 = 0x4000;
    pub(super) const KEY: u16 = 0x2000;
    pub(super) const SEQUENCE: u16 = 0x1000;
    /// PPTP's acknowledgment (RFC 2637).
    pub(super) const ACKNOWLEDGMENT: u16 = 0x0080;
    pub(super) const VERSION: u16 = 0x0007;
}

/// RFC 2784 and RFC 2890, and with another version PPTP (RFC 2637): each field that a flag announces is four bytes.
fn gre(packet: &[u8], at: usize) -> Result<usize, NoIp> {
    let (flags, carried) = (word(packet, at)?, word(packet, at + 2)?);
    let optional = match flags & gre_flag::VERSION {
        0 => gre_flag::CHECKSUM | gre_flag::KEY | gre_flag::SEQUENCE,
        1 => gre_flag::KEY | gre_flag::SEQUENCE | gre_flag::ACKNOWLEDGMENT,
        _ => return Err(NoIp::Protocol),
    };
    if flags & gre_flag::ROUTING != 0 {
        return Err(NoIp::Protocol);
    }
    let inner = at + 4 + 4 * (flags & optional).count_ones() as usize;
    match carried {
        carried::PPP => ppp(packet, inner),
        carried::ERSPAN_2 => ethernet(packet, inner + erspan_2_len(flags)),
        carried::ERSPAN_3 => ethernet(packet, inner + erspan_3_len(packet, inner)?),
        _ => ethernet_or(packet, carried, inner),
    }
}

/// draft-foschiano-erspan: type I has no sequence number and no header.
fn erspan_2_len(flags: u16) -> usize {
    match flags & gre_flag::SEQUENCE {
        0 => 0,
        _ => 8,
    }
}

/// Its last bit announces eight bytes more.
fn erspan_3_len(packet: &[u8], at: usize) -> Result<usize, NoIp> {
    let header: [u8; 12] = bytes(packet, at)?;
    Ok(12 + 8 * usize::from(header[11] & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: [u8; 1] = [0x45];

    /// What is found behind these bytes, if it is right behind them.
    fn behind(protocol: u8, header: &[u8]) -> Result<Option<usize>, NoIp> {
        let found = inner_ip(&[header, &IP].concat(), protocol, 0);
        assert!(!matches!(found, Ok(Some(at)) if at != header.len()));
        found
    }

    fn in_gre(header: &[u8]) -> Result<Option<usize>, NoIp> {
        behind(protocol::GRE, header)
    }

    fn ethernet_frame() -> Vec<u8> {
        [&[2; 12][..], &[8, 0]].concat()
    }

    #[test]
    fn ip_in_ip() {
        assert_eq!(behind(4, &[]), Ok(Some(0)));
        assert_eq!(behind(41, &[]), Ok(Some(0)));
        assert_eq!(behind(6, &[]), Ok(None));
        assert_eq!(inner_ip(&[0x55], 4, 0), Err(NoIp::Protocol));
        assert_eq!(inner_ip(&[], 41, 0), Err(NoIp::Short));
    }

    #[test]
    fn gre_with_each_field() {
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
            assert_eq!(in_gre(&header), Ok(Some(len)), "{flags:#x}");
        }
        assert_eq!(in_gre(&[0, 0, 0x86, 0xdd]), Ok(Some(4)));
        assert_eq!(in_gre(&[0x40, 0, 8, 0, 0, 0, 0, 0]), Err(NoIp::Protocol));
        assert_eq!(in_gre(&[0, 2, 8, 0]), Err(NoIp::Protocol));
        assert_eq!(in_gre(&[0, 0, 8, 6]), Err(NoIp::Protocol));
    }

    #[test]
    fn gre_with_ethernet_erspan_and_ppp() {
        let frame = ethernet_frame();
        let with = |header: &[u8]| in_gre(&[header, &frame].concat()).unwrap().unwrap();
        assert_eq!(with(&[0, 0, 0x65, 0x58]), 18);
        assert_eq!(with(&[0, 0, 0x88, 0xbe]), 18, "type I");
        assert_eq!(with(&[&[0x10, 0, 0x88, 0xbe][..], &[0; 12]].concat()), 30);
        assert_eq!(with(&[&[0x10, 0, 0x22, 0xeb][..], &[0; 16]].concat()), 34);
        let with_platform = [&[0x10, 0, 0x22, 0xeb][..], &[0; 15], &[1], &[0; 8]].concat();
        assert_eq!(with(&with_platform), 42);
        let pptp = [0x30, 0x81, 0x88, 0x0b, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
        let framed = [&pptp[..], &[0xff, 3, 0, 0x21]].concat();
        assert_eq!(in_gre(&framed), Ok(Some(20)));
        let encrypted = [&pptp[..], &[0, 0xfd]].concat();
        assert_eq!(in_gre(&encrypted), Err(NoIp::CompressedPpp));
    }

    fn in_datagram(port: u16, header: &[u8]) -> Result<Option<usize>, NoIp> {
        let ports = [[0x30, 0x39], port.to_be_bytes()].concat();
        behind(UDP, &[&ports, &[0; 4][..], header].concat())
    }

    #[test]
    fn what_is_on_udp() {
        let frame = ethernet_frame();
        let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame].concat();
        assert_eq!(in_datagram(4789, &vxlan), Ok(Some(30)));
        assert_eq!(in_datagram(4790, &[12, 0, 0, 1, 0, 0, 7, 0]), Ok(Some(16)));
        let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 4], &frame].concat();
        assert_eq!(in_datagram(6081, &geneve), Ok(Some(34)));
        assert_eq!(in_datagram(4754, &[0, 0, 8, 0]), Ok(Some(12)));
        assert_eq!(in_datagram(53, &vxlan), Ok(None));
    }

    #[test]
    fn captures_may_end_anywhere() {
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
            assert_eq!(found, Err(NoIp::Short), "{len}");
        }
    }
}
