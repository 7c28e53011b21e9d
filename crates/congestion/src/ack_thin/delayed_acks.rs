// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender of delayed ACKs whose time is up.

use super::math::{Kind, PACKET_MAX, classify};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use longhaul_packet::checksum;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Raw sockets of the network namespace in which they were created.
#[derive(Debug)]
pub(super) struct Sender {
    v4: Socket,
    /// IPv6 socket; `None` where IPv6 is disabled.
    v6: Option<Socket>,
}

/// IPPROTO_RAW: packets include their IP header (raw(7), ipv6(7)).
const WITH_HEADER: i32 = 255;

impl Sender {
    pub(super) fn new() -> io::Result<Self> {
        let raw = |domain| {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(WITH_HEADER)))?;
            socket.set_nonblocking(true)?;
            io::Result::Ok(socket)
        };
        Ok(Self {
            v4: raw(Domain::IPV4)?,
            v6: raw(Domain::IPV6).ok(),
        })
    }

    /// Sends a pure ACK. One that cannot be sent is a lost ACK, from which TCP recovers.
    pub(super) fn send(&self, packet: &[u8]) {
        let mut packet = packet.to_vec();
        let Some(to) = complete(&mut packet) else {
            return;
        };
        let socket = match to {
            SocketAddr::V4(_) => Some(&self.v4),
            SocketAddr::V6(_) => self.v6.as_ref(),
        };
        let _ = socket.map(|socket| socket.send_to(&packet, &SockAddr::from(to)));
    }
}

/// Fills in the TCP checksum, which devices add after the program has seen the packet, and returns the
/// destination. `None` if it is not a pure ACK.
fn complete(packet: &mut [u8]) -> Option<SocketAddr> {
    let Kind::Pure(_) = classify(packet) else {
        return None;
    };
    let (addresses, transport, to) = match packet[0] >> 4 {
        4 => (12..20, 20, SocketAddr::from((v4(&packet[16..20])?, 0))),
        _ => (8..40, 40, SocketAddr::from((v6(&packet[24..40])?, 0))),
    };
    packet[transport + 16..transport + 18].fill(0);
    // Pseudo-header: addresses, protocol and length (RFC 9293 §3.1, RFC 8200 §8.1).
    let tcp_bytes = (packet.len() - transport) as u64;
    let pseudo = checksum::sum(&packet[addresses], 6 + tcp_bytes);
    let sum = !checksum::fold(checksum::sum(&packet[transport..], pseudo));
    packet[transport + 16..transport + 18].copy_from_slice(&sum.to_be_bytes());
    Some(to)
}

fn v4(bytes: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from)
}

fn v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
}

/// Returns the packet in a `struct kept` of ack_thin.bpf.c.
pub(super) fn packet(kept: &[u8]) -> Option<&[u8]> {
    let (length, packet) = kept.split_first_chunk()?;
    let length = u32::from_ne_bytes(*length) as usize;
    packet.get(..length.min(PACKET_MAX))
}

/// Returns the 64-bit word at `at`; 0 beyond the end.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    u64::from_ne_bytes(word.unwrap_or_default())
}

/// Offsets in `struct flow` of ack_thin.bpf.c, which asserts them.
const KEPT: usize = 20;
const DEADLINE: usize = 112;

/// Returns the stored ACKs of all flows.
pub(super) fn held_acks(flows: &MapHandle) -> impl Iterator<Item = Vec<u8>> {
    flows.keys().filter_map(|cookie| {
        let flow = flows.lookup(&cookie, MapFlags::ANY).ok()??;
        let keeps = word(&flow, DEADLINE) != 0;
        let packet = flow.get(KEPT..).and_then(packet).filter(|_| keeps);
        packet.map(<[u8]>::to_vec)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pure ACK as Linux sent it from 10.0.0.1:1234 to 10.0.0.2:80, its checksum left out.
    fn ack() -> Vec<u8> {
        let ip = [
            0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let tcp = [
            4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0xab, 0xcd, 0, 0,
        ];
        [ip, tcp].concat()
    }

    #[test]
    fn completes_the_checksum_and_the_destination() {
        let mut packet = ack();
        assert_eq!(complete(&mut packet), "10.0.0.2:0".parse().ok());
        let pseudo = checksum::sum(&packet[12..20], 6 + 20);
        // A correct checksum makes the sum all ones (RFC 1071).
        assert_eq!(checksum::fold(checksum::sum(&packet[20..], pseudo)), 0xffff);
    }

    #[test]
    fn refuses_packets_that_are_not_pure_acks() {
        let mut fin = ack();
        fin[33] |= 1;
        assert_eq!(complete(&mut fin), None);
        assert_eq!(complete(&mut ack()[..39].to_vec()), None);
    }
}
