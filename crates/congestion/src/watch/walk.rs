// SPDX-License-Identifier: MIT OR Apache-2.0
//! The iterator over connections, and its records.

use super::{
    CaState, Connection, Ends,
    ack_counts::{self, AckCounts},
};
use crate::{Error, feature_probe, loader::Loaded, object};
use libbpf_rs::{Iter, MapCore, MapHandle, MapType, Object, ObjectBuilder};
use std::{
    io::Read,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
};

/// `sizeof(struct record)` in watch.bpf.c.
const RECORD: usize = 216;

/// Most connections that one walk returns: 64 MiB of records.
const CONNECTIONS_MAX: usize = (64 << 20) / RECORD;

/// The loaded iterator.
#[derive(Debug)]
pub struct Watch {
    object: Object,
}

impl Watch {
    /// Loads the iterator; dropping it unloads it.
    pub fn new() -> Result<Self, Error> {
        feature_probe::check_rights("connections are watched")?;
        let step = "load the programs that walk through connections";
        feature_probe::capture_warnings(|| {
            let object = ObjectBuilder::default().open_memory(object::WATCH);
            let object = object.and_then(libbpf_rs::OpenObject::load);
            let object = object.map_err(|error| feature_probe::refused(step, &error))?;
            Ok(Self { object })
        })
    }

    /// Returns every socket that uses `loaded` now, listeners included.
    pub fn connections(&self, loaded: &Loaded) -> Result<Vec<Connection>, Error> {
        let name = loaded.algorithm().system_name();
        let mut found = self.all(loaded)?;
        // A socket with parameters may not have chosen it yet, or may use another now.
        found.retain(|connection| connection.algorithm == name);
        Ok(found)
    }

    /// Returns the ACK counts of the connections; empty where `loaded` does not count.
    pub fn acks(&self, loaded: &Loaded) -> Result<Vec<(Ends, AckCounts)>, Error> {
        if !loaded.counts_acks() {
            return Ok(Vec::new());
        }
        let bytes = self.walk("watch_acks", &loaded.acks()?, ACK_RECORD)?;
        Ok(bytes.as_chunks().0.iter().map(ack_record).collect())
    }

    fn all(&self, loaded: &Loaded) -> Result<Vec<Connection>, Error> {
        let bytes = self.walk("watch", &loaded.connections()?, RECORD)?;
        Ok(bytes.as_chunks().0.iter().map(Connection::read).collect())
    }

    /// Returns the records that a program writes for the map's entries.
    fn walk(&self, program: &str, map: &MapHandle, record: usize) -> Result<Vec<u8>, Error> {
        debug_assert_eq!(map.map_type(), MapType::SkStorage);
        let step = "walk through the connections";
        let program = self.object.progs_mut().find(|p| p.name() == program);
        let program = program.expect("watch.bpf.c has it");
        let bytes = feature_probe::capture_warnings(|| {
            let link = program.attach_iter(map.as_fd())?;
            let mut bytes = Vec::new();
            let limit = (CONNECTIONS_MAX * record) as u64;
            Iter::new(&link)?.take(limit).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        bytes.map_err(|error: libbpf_rs::Error| feature_probe::failed(step, &error))
    }
}

/// `sizeof(struct ack_record)` in watch.bpf.c.
const ACK_RECORD: usize = 48 + ack_counts::BYTES;

/// Parses a record, in the order of `struct ack_record`.
fn ack_record(record: &[u8; ACK_RECORD]) -> (Ends, AckCounts) {
    let mut at = Cursor(record);
    let netns = at.u32();
    let (family, local_port, remote_port, _) = (at.u16(), at.u16(), at.u16(), at.u16());
    let (local, remote) = (at.take::<16>(), at.take::<16>());
    let ends = (
        netns,
        (address(family, local), local_port).into(),
        (address(family, remote), remote_port).into(),
    );
    at.u32();
    (ends, AckCounts::read(|| at.u32()))
}

/// The remaining bytes of a record.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("a whole record");
        self.0 = rest;
        *taken
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }
}

impl Connection {
    /// Parses a record, in the order of `struct record` in watch.bpf.c.
    fn read(record: &[u8; RECORD]) -> Self {
        let mut at = Cursor(record);
        let (pacing_rate, bytes_acked) = (at.u64(), at.u64());
        let own = std::array::from_fn(|_| at.u64());
        let (netns, tcp_state) = (at.u32(), at.u32());
        let (cwnd, ssthresh, srtt_us, mss) = (at.u32(), at.u32(), at.u32(), at.u32());
        let (packets_out, retransmits, ca_state) = (at.u32(), at.u32(), at.u32());
        let (family, local_port, remote_port, _) = (at.u16(), at.u16(), at.u16(), at.u16());
        let (local, remote) = (at.take::<16>(), at.take::<16>());
        Self {
            netns,
            local: (address(family, local), local_port).into(),
            remote: (address(family, remote), remote_port).into(),
            tcp_state,
            algorithm: name(&at.take::<16>()),
            cwnd,
            ssthresh: (ssthresh < INFINITE_SSTHRESH).then_some(ssthresh),
            srtt_us,
            mss,
            packets_out,
            retransmits,
            ca_state: CaState::of(ca_state),
            pacing_rate_bps: (pacing_rate < NO_RATE).then(|| pacing_rate * 8),
            bytes_acked,
            own,
        }
    }
}

impl CaState {
    fn of(number: u32) -> Self {
        match number {
            0 => Self::Open,
            1 => Self::Disorder,
            2 => Self::Cwr,
            3 => Self::Recovery,
            _ => Self::Loss,
        }
    }
}

/// TCP_INFINITE_SSTHRESH (include/net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// More than any link; "no limit" is all ones, of 32 or 64 bits (include/net/sock.h).
const NO_RATE: u64 = u64::MAX / 8;

/// Parses an address; an AF_INET one is in the first four bytes.
fn address(family: u16, bytes: [u8; 16]) -> IpAddr {
    const AF_INET: u16 = 2;
    let [a, b, c, d, ..] = bytes;
    match family {
        AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(bytes).to_canonical(),
    }
}

fn name(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..length.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_whole_record() {
        let mut record = Vec::new();
        record.extend([125_000_u64, 7].iter().flat_map(|word| word.to_ne_bytes()));
        record.extend((0..13_u64).flat_map(u64::to_ne_bytes));
        let words = [99, 1, 10, 0x7fff_ffff, 350_000, 1448, 5, 6, 3_u32];
        record.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let halves = [2, 5201, 443, 0_u16];
        record.extend(halves.iter().flat_map(|half| half.to_ne_bytes()));
        record.extend([127, 0, 0, 1].iter().chain(&[0; 12]));
        record.extend([10, 9, 0, 2].iter().chain(&[0; 12]));
        record.extend(b"lh_scalable\0\0\0\0\0\0\0\0\0");
        let connection = Connection::read(&record.try_into().unwrap());
        assert_eq!(connection.local, "127.0.0.1:5201".parse().unwrap());
        assert_eq!(connection.remote, "10.9.0.2:443".parse().unwrap());
        assert_eq!(connection.pacing_rate_bps, Some(1_000_000));
        assert_eq!((connection.cwnd, connection.ssthresh), (10, None));
        assert_eq!(connection.ca_state, CaState::Recovery);
        assert_eq!((connection.own[0], connection.own[12]), (0, 12));
        assert_eq!(connection.algorithm, "lh_scalable");
    }
}
