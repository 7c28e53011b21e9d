// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that go with one system call: to one host, all as long as the first, but for the last, which may be shorter
//! (UDP_SEGMENT, udp(7)).

use crate::packet::is_probe;
use std::net::SocketAddr;

/// Bytes of one, at most: what a UDP datagram may have.
const BYTES_MAX: usize = 65_000;

#[derive(Debug)]
pub(super) struct Train {
    bytes: Vec<u8>,
    packets_max: usize,
    to: Option<SocketAddr>,
    packet_len: usize,
    packets: usize,
    /// It is no more than one, which probes the path.
    probes: bool,
    /// Behind its last byte.
    end: usize,
    /// It takes no more.
    closed: bool,
    /// Whose the packet is that lies behind it and does not belong to it.
    next: Option<SocketAddr>,
}

impl Train {
    /// An empty one, for so many packets.
    pub(super) fn new(packets_max: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(2 * BYTES_MAX),
            packets_max,
            to: None,
            packet_len: 0,
            packets: 0,
            probes: false,
            end: 0,
            closed: false,
            next: None,
        }
    }

    /// Whether it takes no more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Asks for another packet, which `append` appends, and says where to it goes; whether there was one.
    pub(super) fn add(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Option<SocketAddr>) -> bool {
        let Some(to) = append(&mut self.bytes) else {
            return false;
        };
        self.take(to);
        true
    }

    fn take(&mut self, to: SocketAddr) {
        let length = self.bytes.len() - self.end;
        if self.packets == 0 {
            (self.to, self.packet_len) = (Some(to), length);
            self.probes = is_probe(&self.bytes);
        }
        if self.to != Some(to) || length > self.packet_len {
            (self.next, self.closed) = (Some(to), true);
            return;
        }
        self.packets += 1;
        self.end = self.bytes.len();
        self.closed = length < self.packet_len
            || self.packets >= self.packets_max
            || self.probes
            || self.end + self.packet_len > BYTES_MAX;
    }

    /// Where it goes, its bytes, and how long a packet of it is.
    pub(super) fn ready(&self) -> Option<(SocketAddr, &[u8], usize)> {
        let to = self.to.filter(|_| self.packets > 0)?;
        Some((to, &self.bytes[..self.end], self.packet_len))
    }

    /// Whether it is a probe, which is not to be cut on the way.
    pub(super) fn probes(&self) -> bool {
        self.probes
    }

    /// From now on each packet goes by itself.
    pub(super) fn break_up(&mut self) {
        self.packets_max = 1;
    }

    /// It is away; what lay behind it begins another.
    pub(super) fn leave(&mut self) {
        self.bytes.drain(..self.end);
        (self.to, self.packets, self.end, self.closed) = (None, 0, 0, false);
        if let Some(to) = self.next.take() {
            self.take(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 9000).into()
    }

    /// What goes together of these packets, by host and length.
    fn trains(packets: &[(u8, usize)]) -> Vec<(u8, usize, usize)> {
        let mut left = packets.iter();
        let mut train = Train::new(4);
        let mut gone = Vec::new();
        loop {
            while !train.is_closed()
                && train.add(|bytes| {
                    let (to, length) = left.next()?;
                    bytes.resize(bytes.len() + length, *to);
                    Some(host(*to))
                })
            {}
            let Some((to, bytes, length)) = train.ready() else {
                return gone;
            };
            assert!(bytes.iter().all(|byte| host(*byte) == to));
            gone.push((bytes[0], bytes.len(), length));
            train.leave();
        }
    }

    #[test]
    fn packets_of_one_length_to_one_host_go_together() {
        let packets = [
            (1, 100),
            (1, 100),
            (1, 40),
            (1, 100),
            (1, 120),
            (2, 120),
            (2, 120),
        ];
        let expected = [(1, 240, 100), (1, 100, 100), (1, 120, 120), (2, 240, 120)];
        assert_eq!(trains(&packets), expected);
        assert_eq!(
            trains(&[(1, 10); 9]),
            [(1, 40, 10), (1, 40, 10), (1, 10, 10)]
        );
        assert_eq!(trains(&[(1, 40_000); 2]), [(1, 40_000, 40_000); 2]);
    }
}
