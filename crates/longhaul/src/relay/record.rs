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
pub(crate) enum Record {
    /// All counters, every interval and at the end.
    Relay(RelayRecord),
    /// One connection, at its end.
    Connection(Box<ConnectionRecord>),
}

/// All counters since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RelayRecord {
    pub(crate) time: Timestamp,
    pub(crate) total: Counts,
    pub(crate) listeners: Vec<ListenerCounts>,
    /// Records that were dropped because the file took them too slowly.
    pub(crate) records_lost: u64,
    /// Bytes in the socket buffers of all legs, and how many there may be before new connections
    /// wait.
    #[serde(default)]
    pub(crate) memory_bytes: u64,
    /// `None` is no bound.
    #[serde(default)]
    pub(crate) memory_budget_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) peers: Vec<PeerCounts>,
}

/// What is known of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerCounts {
    pub(crate) name: String,
    /// As it is configured: an address or a name, and a port.
    pub(crate) address: String,
    /// How long it has been down; `None` is up.
    pub(crate) down_s: Option<f64>,
    /// Connections to it that failed, checks included.
    pub(crate) failures: u64,
    /// Connections that stand ready now.
    pub(crate) ready: u64,
    /// Requests that found a ready connection.
    pub(crate) ready_hits: u64,
    /// Requests that found none although some are kept.
    pub(crate) ready_misses: u64,
    /// Legs that could not join the others of their connection.
    #[serde(default)]
    pub(crate) streams_missing: u64,
}

/// Counters of one listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListenerCounts {
    /// As configured; the address if it has no other.
    #[serde(default)]
    pub(crate) name: String,
    /// `socks5`, `http`, `forward`, `transparent` or `convert`.
    pub(crate) kind: String,
    pub(crate) address: SocketAddr,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// Counters since the start; `active` and `bytes_buffered` are of now.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Connections accepted.
    pub(crate) accepted: u64,
    /// Connections open now.
    pub(crate) active: u64,
    /// Connections that were not made, by cause.
    pub(crate) failed: BTreeMap<String, u64>,
    /// Bytes delivered from clients to destinations.
    pub(crate) bytes_up: u64,
    /// Bytes delivered from destinations to clients.
    pub(crate) bytes_down: u64,
    /// Bytes in pipes and copy buffers; socket buffers are not counted.
    pub(crate) bytes_buffered: u64,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConnectionRecord {
    /// When it ended.
    pub(crate) time: Timestamp,
    pub(crate) kind: String,
    pub(crate) listener: SocketAddr,
    pub(crate) client: SocketAddr,
    /// What the client asked for; `None` if it never came to that. Of several HTTP requests, the
    /// last one's.
    pub(crate) destination: Option<String>,
    /// Where the outgoing leg went: the destination's address, or the first peer's.
    pub(crate) next_hop: Option<SocketAddr>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) duration_s: f64,
    pub(crate) ended: Ended,
    /// The failure or the error in words; `None` for a clean end.
    pub(crate) cause: Option<String>,
    /// The leg to the client, last seen.
    pub(crate) near: Option<TcpInfo>,
    /// The leg to the destination or peer, last seen.
    pub(crate) far: Option<TcpInfo>,
    /// All legs to a client that is a relay with several, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) near_streams: Vec<TcpInfo>,
    /// All legs to a peer with several, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) far_streams: Vec<TcpInfo>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
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
