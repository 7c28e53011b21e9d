// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tunnels in UDP, and the ports that tell them.

use super::gre::{ip_after_protocol_type, ip_in_gre};
use super::gtp::ip_in_gtp;
use super::l2tp::ip_in_l2tp;
use crate::capture::IpNotFound;
use crate::capture::ether_type::ip_in_ethernet;
use crate::capture::ip_start::{ip_at, read_bytes, read_u16};

/// Tunnel protocol in UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpTunnel {
    /// GENEVE (RFC 8926).
    Geneve,
    /// GRE (RFC 8086).
    Gre,
    /// GTP-U (3GPP TS 29.281).
    Gtp,
    /// L2TP version 2 (RFC 2661).
    L2tp,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// VXLAN with other payloads than Ethernet (draft-ietf-nvo3-vxlan-gpe).
    VxlanGpe,
}

impl UdpTunnel {
    /// Every tunnel, in order of name.
    pub const ALL: [Self; 6] = [
        Self::Geneve,
        Self::Gre,
        Self::Gtp,
        Self::L2tp,
        Self::Vxlan,
        Self::VxlanGpe,
    ];

    /// Returns the name, which is that of `tshark -d`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Gtp => "gtp",
            Self::L2tp => "l2tp",
            Self::Vxlan => "vxlan",
            Self::VxlanGpe => "vxlan_gpe",
        }
    }

    /// Returns the tunnel that is usual at a port: those that IANA registered, and 8472, which Linux and flannel use
    /// for VXLAN.
    const fn usual_at(port: u16) -> Option<Self> {
        match port {
            1701 => Some(Self::L2tp),
            2152 => Some(Self::Gtp),
            4754 => Some(Self::Gre),
            4789 | 8472 => Some(Self::Vxlan),
            4790 => Some(Self::VxlanGpe),
            6081 => Some(Self::Geneve),
            _ => None,
        }
    }

    fn ip_in(self, packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
        match self {
            Self::Geneve => ip_in_geneve(packet, at),
            Self::Gre => ip_in_gre(packet, at),
            Self::Gtp => ip_in_gtp(packet, at),
            Self::L2tp => ip_in_l2tp(packet, at),
            Self::Vxlan => ip_in_vxlan(packet, at),
            Self::VxlanGpe => ip_in_vxlan_gpe(packet, at),
        }
    }
}

/// Tunnels in UDP by port. The default has the usual ports only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UdpTunnels {
    /// Ports that were set, few of them.
    set: Vec<(u16, UdpTunnel)>,
}

impl UdpTunnels {
    /// Sets the tunnel at a port. The last setting of a port counts.
    pub fn set(&mut self, port: u16, tunnel: UdpTunnel) {
        self.set.retain(|(set, _)| *set != port);
        self.set.push((port, tunnel));
    }

    fn at(&self, port: u16) -> Option<UdpTunnel> {
        let set = self.set.iter().find(|(set, _)| *set == port);
        set.map(|(_, tunnel)| *tunnel)
            .or_else(|| UdpTunnel::usual_at(port))
    }
}

const UDP_HEADER: usize = 8;

/// Returns the offset of the inner IP packet of a UDP tunnel, whose UDP header begins at `at`; `None` if neither port is
/// that of a tunnel. The destination's port counts first.
pub(super) fn ip_in_udp(
    packet: &[u8],
    at: usize,
    tunnels: &UdpTunnels,
) -> Result<Option<usize>, IpNotFound> {
    let (source, destination) = (read_u16(packet, at)?, read_u16(packet, at + 2)?);
    let tunnel = tunnels.at(destination).or_else(|| tunnels.at(source));
    tunnel
        .map(|tunnel| tunnel.ip_in(packet, at + UDP_HEADER))
        .transpose()
}

/// Length of the header of VXLAN (RFC 7348) and of its generic extension.
const VXLAN_HEADER: usize = 8;

fn ip_in_vxlan(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    ip_in_ethernet(packet, at + VXLAN_HEADER)
}

/// Reads the next protocol from the fourth byte of the header (draft-ietf-nvo3-vxlan-gpe).
fn ip_in_vxlan_gpe(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [.., next] = read_bytes::<4>(packet, at)?;
    match next {
        1 | 2 => ip_at(packet, at + VXLAN_HEADER),
        3 => ip_in_ethernet(packet, at + VXLAN_HEADER),
        _ => Err(IpNotFound::Protocol),
    }
}

fn ip_in_geneve(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [first, _, high, low] = read_bytes(packet, at)?;
    let options = usize::from(first & 0x3f) * 4;
    ip_after_protocol_type(packet, u16::from_be_bytes([high, low]), at + 8 + options)
}

#[cfg(test)]
mod tests {
    use super::super::inner_ip;
    use super::super::tests::ethernet_header;
    use super::*;
    use crate::ip::UDP;

    /// Finds the inner packet in a datagram between these ports.
    fn inner_ip_between(
        [source, destination]: [u16; 2],
        header: &[u8],
        tunnels: &UdpTunnels,
    ) -> Result<Option<usize>, IpNotFound> {
        let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
        let datagram = [&ports, &[0; 4][..], header, &[0x45]].concat();
        inner_ip(&datagram, UDP, 0, tunnels)
    }

    fn inner_ip_to(port: u16, header: &[u8]) -> Result<Option<usize>, IpNotFound> {
        inner_ip_between([12345, port], header, &UdpTunnels::default())
    }

    fn vxlan() -> Vec<u8> {
        [&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet_header()].concat()
    }

    #[test]
    fn finds_ip_in_tunnels_at_usual_ports() {
        assert_eq!(inner_ip_to(4789, &vxlan()), Ok(Some(30)));
        assert_eq!(inner_ip_to(8472, &vxlan()), Ok(Some(30)));
        assert_eq!(inner_ip_to(4790, &[12, 0, 0, 1, 0, 0, 7, 0]), Ok(Some(16)));
        let geneve = [
            &[1, 0, 0x65, 0x58, 0, 0, 7, 0][..],
            &[0; 4],
            &ethernet_header(),
        ];
        assert_eq!(inner_ip_to(6081, &geneve.concat()), Ok(Some(34)));
        assert_eq!(inner_ip_to(4754, &[0, 0, 8, 0]), Ok(Some(12)));
        let gtp = [0x30, 255, 0, 1, 0, 0, 0, 7];
        assert_eq!(inner_ip_to(2152, &gtp), Ok(Some(16)));
        let l2tp = [0, 2, 0, 1, 0, 2, 0, 0x21];
        assert_eq!(inner_ip_to(1701, &l2tp), Ok(Some(16)));
        assert_eq!(inner_ip_to(53, &vxlan()), Ok(None));
    }

    /// An L2TP server answers from its own port to any port of the client (RFC 2661 §8.1).
    #[test]
    fn finds_tunnels_by_source_port_too() {
        let between = |ports| inner_ip_between(ports, &vxlan(), &UdpTunnels::default());
        assert_eq!(between([4789, 40_000]), Ok(Some(30)));
        assert_eq!(between([4789, 4790]), Err(IpNotFound::Protocol));
    }

    #[test]
    fn finds_tunnels_at_ports_that_were_set() {
        let mut tunnels = UdpTunnels::default();
        for tunnel in [UdpTunnel::Geneve, UdpTunnel::Vxlan] {
            tunnels.set(5555, tunnel);
            tunnels.set(6081, tunnel);
        }
        for port in [5555, 6081, 4789] {
            let found = inner_ip_between([9, port], &vxlan(), &tunnels);
            assert_eq!(found, Ok(Some(30)), "{port}");
        }
        assert_eq!(tunnels.set.len(), 2);
    }

    #[test]
    fn names_are_in_order_and_unique() {
        assert!(UdpTunnel::ALL.is_sorted_by(|one, next| one.name() < next.name()));
    }
}
