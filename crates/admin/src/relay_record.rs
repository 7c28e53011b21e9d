// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a relay writes with --counters: JSON, one record a line. Everything that reads a relay
//! reads these.

use jiff::Timestamp;
use longhaul_linux::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// All counters, every interval and at the end.
    Relay(RelayRecord),
    /// One connection, at its end.
    Connection(Box<ConnectionRecord>),
}

/// All counters since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelayRecord {
    /// Time of the record.
    pub time: Timestamp,
    /// The sum over all listeners.
    pub total: Counts,
    /// The listeners.
    pub listeners: Vec<ListenerCounts>,
    /// Records that were dropped because the file took them too slowly.
    pub records_lost: u64,
    /// Bytes in the socket buffers of all legs, and how many there may be before new connections
    /// wait.
    #[serde(default)]
    pub memory_bytes: u64,
    /// `None` is no bound.
    #[serde(default)]
    pub memory_budget_bytes: Option<u64>,
    /// The relays that it sends connections to.
    #[serde(default)]
    pub peers: Vec<PeerCounts>,
}

/// What is known of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerCounts {
    /// The name.
    pub name: String,
    /// As it is configured: an address or a name, and a port.
    pub address: String,
    /// How long it has been down; `None` is up.
    pub down_s: Option<f64>,
    /// Connections to it that failed, checks included.
    pub failures: u64,
    /// Connections that stand ready now.
    pub ready: u64,
    /// Requests that found a ready connection.
    pub ready_hits: u64,
    /// Requests that found none although some are kept.
    pub ready_misses: u64,
    /// Legs that could not join the others of their connection.
    #[serde(default)]
    pub streams_missing: u64,
}

/// Counters of one listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerCounts {
    /// As configured; the address if it has no other.
    #[serde(default)]
    pub name: String,
    /// `socks5`, `http`, `forward`, `transparent` or `convert`.
    pub kind: String,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// Counters.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Counters since the start; `active` and `bytes_buffered` are of now.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub active: u64,
    /// Connections that were not made, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Connections that were to be intercepted and went straight to their destinations, for want of room.
    #[serde(default)]
    pub passed_by: u64,
    /// Bytes delivered from clients to destinations.
    pub bytes_up: u64,
    /// Bytes delivered from destinations to clients.
    pub bytes_down: u64,
    /// Bytes in pipes and copy buffers; socket buffers are not counted.
    pub bytes_buffered: u64,
}

impl Counts {
    /// Adds what another listener counted.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.active += other.active;
        self.passed_by += other.passed_by;
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.bytes_buffered += other.bytes_buffered;
        for (cause, count) in &other.failed {
            *self.failed.entry(cause.clone()).or_default() += count;
        }
    }
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// When it ended.
    pub time: Timestamp,
    /// The kind of the listener: `forward`, `socks5`, `http`, …
    pub kind: String,
    /// The listener, as it was configured.
    pub listener: SocketAddr,
    /// The address of the client.
    pub client: SocketAddr,
    /// What the client asked for; `None` if it never came to that. Of several HTTP requests, the
    /// last one's.
    pub destination: Option<String>,
    /// Where the outgoing leg went: the destination's address, or the first peer's.
    pub next_hop: Option<SocketAddr>,
    /// Bytes from clients to destinations.
    pub bytes_up: u64,
    /// Bytes from destinations to clients.
    pub bytes_down: u64,
    /// Time from accept to end, in seconds.
    pub duration_s: f64,
    /// The way that it ended.
    pub ended: Ended,
    /// The failure or the error in words; `None` for a clean end.
    pub cause: Option<String>,
    /// The leg to the client, last seen.
    pub near: Option<TcpInfo>,
    /// The leg to the destination or peer, last seen.
    pub far: Option<TcpInfo>,
    /// All legs to a client that is a relay with several, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near_streams: Vec<TcpInfo>,
    /// All legs to a peer with several, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub far_streams: Vec<TcpInfo>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Both directions by FIN, all bytes delivered.
    Finished,
    /// The client's leg broke (RST, time-out); the destination's was reset.
    ClientBroke,
    /// The destination's leg broke; the client's was reset.
    DestinationBroke,
    /// There never was a connection to the destination.
    Failed,
    /// The relay stopped; both legs were reset.
    Cut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back() {
        let counts = Counts {
            accepted: 3,
            failed: [("timed out".to_owned(), 1)].into(),
            ..Counts::default()
        };
        let record = Record::Relay(RelayRecord {
            time: Timestamp::UNIX_EPOCH,
            total: counts.clone(),
            listeners: vec![ListenerCounts {
                name: "web".into(),
                kind: "socks5".into(),
                address: ([127, 0, 0, 1], 1080).into(),
                counts,
            }],
            records_lost: 0,
            memory_bytes: 1,
            memory_budget_bytes: Some(2),
            peers: Vec::new(),
        });
        let line = serde_json::to_string(&record).unwrap();
        assert!(
            line.starts_with(r#"{"record":"relay","time":"1970-01-01T00:00:00Z""#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}
