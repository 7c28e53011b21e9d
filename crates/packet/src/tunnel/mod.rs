// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inner IP packets of tunnels: IP in IP, GRE with its payloads, and tunnels in UDP, which are known by their ports.

mod gre;
mod gtp;
mod l2tp;
mod udp;

use crate::capture::IpNotFound;
use crate::capture::ip_start::ip_at;
use crate::ip::UDP;
pub use udp::{UdpTunnel, UdpTunnels};

/// IP protocol numbers (IANA).
mod protocol {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const GRE: u8 = 47;
}

/// Returns the offset of the inner IP packet of a tunnel; `None` if `protocol` is no tunnel. `protocol` is that of the
/// outer packet's payload, which begins at offset `at`. `udp_tunnels` are the tunnels in UDP that are read. The length
/// of the inner packet is in its own header.
///
/// # Errors
///
/// Fails if the tunnel carries another protocol than IP, or the capture ends before the inner packet.
pub fn inner_ip(
    packet: &[u8],
    protocol: u8,
    at: usize,
    udp_tunnels: &UdpTunnels,
) -> Result<Option<usize>, IpNotFound> {
    match protocol {
        protocol::IPV4 | protocol::IPV6 => ip_at(packet, at).map(Some),
        protocol::GRE => gre::ip_in_gre(packet, at).map(Some),
        UDP => udp::ip_in_udp(packet, at, udp_tunnels),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the inner packet after `header`, and checks that it begins right there.
    pub(super) fn inner_ip_after(protocol: u8, header: &[u8]) -> Result<Option<usize>, IpNotFound> {
        let packet = [header, &[0x45]].concat();
        let found = inner_ip(&packet, protocol, 0, &UdpTunnels::default());
        assert!(!matches!(found, Ok(Some(at)) if at != header.len()));
        found
    }

    /// Ethernet header of an IPv4 packet.
    pub(super) fn ethernet_header() -> Vec<u8> {
        [&[2; 12][..], &[8, 0]].concat()
    }

    #[test]
    fn finds_ip_in_ip() {
        assert_eq!(inner_ip_after(4, &[]), Ok(Some(0)));
        assert_eq!(inner_ip_after(41, &[]), Ok(Some(0)));
        assert_eq!(inner_ip_after(6, &[]), Ok(None));
        let inner_ip_of = |packet: &[u8]| inner_ip(packet, 4, 0, &UdpTunnels::default());
        assert_eq!(inner_ip_of(&[0x55]), Err(IpNotFound::Protocol));
        assert_eq!(inner_ip_of(&[]), Err(IpNotFound::Short));
    }
}
