// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures built by tests: packets of TCP connections, byte by byte, and files of them.

use longhaul_packet::{
    capture::{
        Frame, LinkType,
        writer::{self, Interface, PacketDirection, SectionInfo},
    },
    tcp::{ACK, FIN, PSH, SYN},
};
use std::net::Ipv4Addr;

/// Address and port.
pub(crate) type End = (Ipv4Addr, u16);

/// Payload of a full segment, bytes.
pub(crate) const MSS: u32 = 1000;
/// 2023-11-14, 22:13:20 UTC.
pub(crate) const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;

/// Packets in order of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    /// Nanoseconds since 1970, length on the wire, headers.
    pub(crate) packets: Vec<(u64, u32, Vec<u8>)>,
}

/// Fields of a TCP header, and the length of the payload in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) payload: u32,
}

impl Trace {
    /// Adds a packet without its payload, as a short snap length leaves it.
    pub(crate) fn packet(&mut self, at_ns: u64, from: End, to: End, tcp: Tcp) {
        let headers = headers(from, to, &tcp);
        let wire_len = headers.len() as u32 + tcp.payload;
        self.packets.push((at_ns, wire_len, headers));
    }

    /// Adds a connection in which the client sends `segments` full segments, with an ACK for every other one. Segment 4
    /// is lost after the capture point, and retransmitted after three duplicate ACKs.
    pub(crate) fn transfer(&mut self, client: End, server: End, begin_ns: u64, segments: u32) {
        let mut at = begin_ns;
        let mut send = |from, to, seq, ack, flags, payload| {
            at += MS / 10;
            let tcp = Tcp {
                seq,
                ack,
                flags,
                payload,
            };
            self.packet(at, from, to, tcp);
            if payload == 0 {
                at += 10 * MS;
            }
        };
        send(client, server, 99, 0, SYN, 0);
        send(server, client, 499, 100, SYN | ACK, 0);
        send(client, server, 100, 500, ACK, 0);
        let seq = |segment: u32| 100 + segment * MSS;
        let lost = 4;
        for segment in 0..segments {
            send(client, server, seq(segment), 500, ACK | PSH, MSS);
            let in_gap = segment >= lost && segment < lost + 4;
            if in_gap && segment > lost {
                send(server, client, 500, seq(lost), ACK, 0);
            }
            if segment == lost + 3 {
                send(client, server, seq(lost), 500, ACK | PSH, MSS);
            }
            if !in_gap && segment % 2 == 1 || segment == lost + 3 {
                send(server, client, 500, seq(segment + 1), ACK, 0);
            }
        }
        let end = seq(segments);
        send(client, server, end, 500, FIN | ACK, 0);
        send(server, client, 500, end + 1, FIN | ACK, 0);
        send(client, server, end + 1, 501, ACK, 0);
    }

    /// Returns a trace of `count` overlapping connections that begin one after the other.
    pub(crate) fn many(count: u16, segments: u32) -> Self {
        let mut trace = Self::default();
        for number in 0..count {
            let client = (
                Ipv4Addr::new(10, 1, (number >> 8) as u8, number as u8),
                40_000 + number,
            );
            let begin = BEGIN_NS + u64::from(number) * 7 * MS;
            // Sizes differ, so that the order by size is defined.
            let more = u32::from(number % 17);
            trace.transfer(client, SERVER, begin, segments + more);
        }
        trace.packets.sort_by_key(|(at, ..)| *at);
        trace
    }

    /// Returns the packets in a range of indices.
    pub(crate) fn part(&self, part: std::ops::Range<usize>) -> Self {
        Self {
            packets: self.packets[part].to_vec(),
        }
    }

    /// Returns the packets shifted by `by_ns`, as the other end captures them.
    pub(crate) fn later(&self, by_ns: u64) -> Self {
        let mut trace = self.clone();
        trace.packets.iter_mut().for_each(|(at, ..)| *at += by_ns);
        trace
    }

    /// Returns a pcap file with nanosecond times.
    pub(crate) fn pcap(&self) -> Vec<u8> {
        let mut file = pcap_header();
        for (at, wire_len, bytes) in &self.packets {
            for word in [at / 1_000_000_000, at % 1_000_000_000] {
                file.extend((word as u32).to_le_bytes());
            }
            for word in [bytes.len() as u32, *wire_len] {
                file.extend(word.to_le_bytes());
            }
            file.extend(bytes);
        }
        file
    }

    /// Returns a pcapng file of one interface.
    pub(crate) fn pcapng(&self, interface: &str) -> Vec<u8> {
        let mut file = Vec::new();
        writer::section(&mut file, &SectionInfo::default());
        let interface = Interface {
            name: interface,
            link_type: LinkType::Ethernet,
            snaplen: 96,
            filter: "",
        };
        writer::interface(&mut file, &interface);
        for (at_ns, wire_len, bytes) in &self.packets {
            let frame = Frame {
                timestamp_ns: *at_ns,
                interface: 0,
                link_type: LinkType::Ethernet,
                wire_len: *wire_len,
                bytes,
                segment_size: 0,
                emulator_record: None,
            };
            writer::packet(&mut file, &frame, PacketDirection::Unknown);
        }
        file
    }
}

/// Address and port of the server.
pub(crate) const SERVER: End = (Ipv4Addr::new(10, 9, 0, 1), 5201);

/// Returns the header of a pcap file.
pub(crate) fn pcap_header() -> Vec<u8> {
    let words: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 96, 1];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns headers of Ethernet, IPv4 and TCP without options.
fn headers(from: End, to: End, tcp: &Tcp) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend((40 + tcp.payload as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(from.0.octets());
    bytes.extend(to.0.octets());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes.extend(tcp.seq.to_be_bytes());
    bytes.extend(tcp.ack.to_be_bytes());
    bytes.extend([0x50, tcp.flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}
