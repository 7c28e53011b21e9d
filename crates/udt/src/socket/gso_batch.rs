// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that go with one system call: to one host, all as long as the first, but for the last, which may be shorter
//! (UDP_SEGMENT, udp(7)).

use crate::packet::is_probe;
use std::net::SocketAddr;

/// Bytes of one, at most: what a UDP datagram may have.
const BATCH_LEN_MAX: usize = 65_000;

#[derive(Debug)]
pub(super) struct GsoBatch {
    bytes: Vec<u8>,
    packets_max: usize,
    to: Option<SocketAddr>,
    packet_len: usize,
    packets: usize,
    /// It is no more than one, which probes the path.
    is_probe: bool,
    /// Behind its last byte.
    len: usize,
    /// It takes no more.
    closed: bool,
    /// Whose the packet is that lies behind it and does not belong to it.
    next_to: Option<SocketAddr>,
}

impl GsoBatch {
    /// An empty one, for so many packets.
    pub(super) fn new(packets_max: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(2 * BATCH_LEN_MAX),
            packets_max,
            to: None,
            packet_len: 0,
            packets: 0,
            is_probe: false,
            len: 0,
            closed: false,
            next_to: None,
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
        self.append_packet(to);
        true
    }

    fn append_packet(&mut self, to: SocketAddr) {
        let length = self.bytes.len() - self.len;
        if self.packets == 0 {
            (self.to, self.packet_len) = (Some(to), length);
            self.is_probe = is_probe(&self.bytes);
        }
        if self.to != Some(to) || length > self.packet_len {
            (self.next_to, self.closed) = (Some(to), true);
            return;
        }
        self.packets += 1;
        self.len = self.bytes.len();
        self.closed = length < self.packet_len
            || self.packets >= self.packets_max
            || self.is_probe
            || self.len + self.packet_len > BATCH_LEN_MAX;
    }

    /// Where it goes, its bytes, and how long a packet of it is.
    pub(super) fn datagrams(&self) -> Option<(SocketAddr, &[u8], usize)> {
        let to = self.to.filter(|_| self.packets > 0)?;
        Some((to, &self.bytes[..self.len], self.packet_len))
    }

    /// Whether it is a probe, which is not to be cut on the way.
    pub(super) fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// From now on each packet goes by itself.
    pub(super) fn disable_gso(&mut self) {
        self.packets_max = 1;
    }

    /// It is away; what lay behind it begins another.
    pub(super) fn clear_sent(&mut self) {
        self.bytes.drain(..self.len);
        (self.to, self.packets, self.len, self.closed) = (None, 0, 0, false);
        if let Some(to) = self.next_to.take() {
            self.append_packet(to);
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
    fn batches(packets: &[(u8, usize)]) -> Vec<(u8, usize, usize)> {
        let mut left = packets.iter();
        let mut train = GsoBatch::new(4);
        let mut gone = Vec::new();
        loop {
            while !train.is_closed()
                && train.add(|bytes| {
                    let (to, length) = left.next()?;
                    bytes.resize(bytes.len() + length, *to);
                    Some(host(*to))
                })
            {}
            let Some((to, bytes, length)) = train.datagrams() else {
                return gone;
            };
            assert!(bytes.iter().all(|byte| host(*byte) == to));
            gone.push((bytes[0], bytes.len(), length));
            train.clear_sent();
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
        assert_eq!(batches(&packets), expected);
        assert_eq!(
            batches(&[(1, 10); 9]),
            [(1, 40, 10), (1, 40, 10), (1, 10, 10)]
        );
        assert_eq!(batches(&[(1, 40_000); 2]), [(1, 40_000, 40_000); 2]);
    }
}
