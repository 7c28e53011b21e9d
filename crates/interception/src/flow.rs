// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection that a packet belongs to.

use longhaul_packet::{ip, tcp};
use std::net::{IpAddr, SocketAddr};

/// The addresses of a TCP connection, as its client sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    client: (IpAddr, u16),
    destination: (IpAddr, u16),
}

impl Flow {
    /// A connection between these addresses, without their scopes and flow labels.
    pub fn new(client: SocketAddr, destination: SocketAddr) -> Self {
        let pair = |address: SocketAddr| (address.ip(), address.port());
        Self {
            client: pair(client),
            destination: pair(destination),
        }
    }

    /// The connection of a packet that starts with its IP header. `None` if the packet is a fragment, not TCP, or ends within the
    /// TCP header.
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        let transport = ip::transport(packet)?;
        let header = tcp::Header::at(packet.get(transport.offset..)?)?;
        if transport.protocol != ip::TCP || transport.fragment {
            return None;
        }
        let (source, destination) = addresses(packet)?;
        Some(Self {
            client: (source, header.source()),
            destination: (destination, header.destination()),
        })
    }

    /// The address of the end that opens the connection.
    pub fn client(&self) -> SocketAddr {
        self.client.into()
    }

    /// The address that the connection is opened to.
    pub fn destination(&self) -> SocketAddr {
        self.destination.into()
    }
}

/// Source and destination (RFC 791 §3.1, RFC 8200 §3).
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    fn at<const N: usize>(packet: &[u8], offset: usize) -> Option<IpAddr>
    where
        IpAddr: From<[u8; N]>,
    {
        let bytes: [u8; N] = packet.get(offset..offset + N)?.try_into().ok()?;
        Some(bytes.into())
    }
    match ip::version(packet)? {
        ip::Version::V4 => Some((at::<4>(packet, 12)?, at::<4>(packet, 16)?)),
        ip::Version::V6 => Some((at::<16>(packet, 8)?, at::<16>(packet, 24)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_syns_of_both_families_and_no_fragments() {
        let mut tcp = vec![0; 20];
        tcp[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        tcp[12] = 5 << 4;
        let mut four = vec![
            0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        four.extend(&tcp);
        let flow = Flow::of_packet(&four).unwrap();
        assert_eq!(flow.client(), "10.0.0.1:40000".parse().unwrap());
        assert_eq!(flow.destination(), "10.0.0.2:80".parse().unwrap());
        four[7] = 1;
        assert_eq!(Flow::of_packet(&four), None);

        let mut six = vec![0; 40];
        (six[0], six[6], six[23], six[39]) = (0x60, 6, 1, 2);
        six.extend(&tcp);
        let flow = Flow::of_packet(&six).unwrap();
        assert_eq!(
            flow,
            Flow::new("[::1]:40000".parse().unwrap(), "[::2]:80".parse().unwrap())
        );
        for len in 0..six.len() {
            assert_eq!(Flow::of_packet(&six[..len]), None, "{len}");
        }
    }
}
