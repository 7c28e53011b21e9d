// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batch of packets for one system call. All have one destination and one length; only the last may be shorter
//! (UDP_SEGMENT, udp(7)).

use crate::packet::is_probe;
use std::net::SocketAddr;

/// Maximum length of a batch in bytes: that of a UDP datagram.
const BATCH_LEN_MAX: usize = 65_000;

#[derive(Debug)]
pub(super) struct GsoBatch {
    bytes: Vec<u8>,
    packets_max: usize,
    to: Option<SocketAddr>,
    packet_len: usize,
    packets: usize,
    /// Whether the batch is a single path MTU probe.
    is_probe: bool,
    /// Length of the batch in bytes. The buffer may hold one more packet after it.
    len: usize,
    /// Whether the batch accepts no more packets.
    closed: bool,
    /// Destination of the packet that is in the buffer after the batch, if there is one.
    next_to: Option<SocketAddr>,
}

impl GsoBatch {
    /// Creates an empty batch for `packets_max` packets.
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

    /// Whether the batch accepts no more packets.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Calls `append`, which appends a packet, if there is one, and returns its destination. Returns whether there
    /// was one.
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

    /// Returns the destination, the bytes and the packet length; `None` if the batch is empty.
    pub(super) fn datagrams(&self) -> Option<(SocketAddr, &[u8], usize)> {
        let to = self.to.filter(|_| self.packets > 0)?;
        Some((to, &self.bytes[..self.len], self.packet_len))
    }

    /// Whether the batch is a path MTU probe, which routers must not fragment.
    pub(super) fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Sends each packet by itself from now on.
    pub(super) fn disable_gso(&mut self) {
        self.packets_max = 1;
    }

    /// Removes the sent packets. The packet after them starts the next batch.
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

    /// Returns the batches for these packets, each given as host and length. A batch is given as host, length of the
    /// batch and length of a packet.
    fn batches(packets: &[(u8, usize)]) -> Vec<(u8, usize, usize)> {
        let mut left = packets.iter();
        let mut batch = GsoBatch::new(4);
        let mut sent = Vec::new();
        loop {
            while !batch.is_closed()
                && batch.add(|bytes| {
                    let (to, length) = left.next()?;
                    bytes.resize(bytes.len() + length, *to);
                    Some(host(*to))
                })
            {}
            let Some((to, bytes, length)) = batch.datagrams() else {
                return sent;
            };
            assert!(bytes.iter().all(|byte| host(*byte) == to));
            sent.push((bytes[0], bytes.len(), length));
            batch.clear_sent();
        }
    }

    #[test]
    fn batches_packets_of_one_length_and_destination() {
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
