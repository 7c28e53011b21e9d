// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that a relay writes with --counters: JSON, one record a line.

use jiff::Timestamp;
use longhaul_linux::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr};

/// Record, one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// All counters, every interval and at the end.
    Relay(Box<RelayRecord>),
    /// One connection, at its end; in the access log also while it is open.
    Connection(Box<ConnectionRecord>),
    /// One request of an HTTP client, at its end; of a tunnel also while it is open.
    Request(Box<RequestRecord>),
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
    /// Records that were dropped because writing to the file was too slow.
    pub records_lost: u64,
    /// Bytes in the socket buffers of all legs.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Bound of `memory_bytes`, at which new connections wait; `None` means no bound.
    #[serde(default)]
    pub memory_budget_bytes: Option<u64>,
    /// Connections that count against `connections_limit`; some requests count more than once.
    #[serde(default)]
    pub connections_taken: u64,
    /// Connections that may be open at a time; more wait.
    #[serde(default)]
    pub connections_limit: u64,
    /// Limits that make new connections wait.
    #[serde(default)]
    pub limits: Limits,
    /// Peers that the relay sends connections to.
    #[serde(default)]
    pub peers: Vec<PeerCounts>,
}

/// Limits that make new connections wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `connections_limit`.
    pub connections: LimitCounts,
    /// Descriptors and kernel memory of this process and of the system.
    pub descriptors: LimitCounts,
    /// `memory_budget_bytes`.
    pub memory: LimitCounts,
}

/// State and counts of a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitCounts {
    /// Whether it is reached now.
    pub reached: bool,
    /// Number of times that it was reached.
    pub times_reached: u64,
    /// Waits of connections for it. A connection without a descriptor waits 0.1 s at a time.
    pub waits: u64,
}

/// State and counters of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerCounts {
    /// Name of the peer.
    pub name: String,
    /// Configured address: an IP address or a name, and a port.
    pub address: String,
    /// Time for which the peer has been down, in seconds; `None` if it is up.
    pub down_s: Option<f64>,
    /// Failed connections to the peer, checks included.
    pub failures: u64,
    /// Idle connections in the pool.
    pub pool_idle: u64,
    /// Requests that found an idle connection in the pool.
    pub pool_hits: u64,
    /// Requests that found the pool empty.
    pub pool_misses: u64,
    /// Streams that could not join the others of their connection.
    #[serde(default)]
    pub streams_missing: u64,
}

/// Counters of one listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerCounts {
    /// Configured name; by default the address.
    #[serde(default)]
    pub name: String,
    /// Kind: `socks5`, `http`, `forward`, `transparent` or `convert`.
    pub kind: String,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// Counters.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Counters since the start; `active` and `bytes_buffered` are gauges.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub active: u64,
    /// Connections that could not be established, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Connections that were not intercepted but sent directly to their destinations, for lack of capacity.
    #[serde(default)]
    pub bypassed: u64,
    /// Bytes delivered from clients to destinations.
    pub bytes_up: u64,
    /// Bytes delivered from destinations to clients.
    pub bytes_down: u64,
    /// Bytes in pipes and copy buffers; socket buffers are not counted.
    pub bytes_buffered: u64,
    /// Passwords that did not let a client in at once.
    #[serde(default)]
    pub passwords: PasswordCounts,
}

/// Passwords that did not let a client in at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordCounts {
    /// Wrong ones.
    pub wrong: u64,
    /// Passwords that were checked only after a delay.
    pub delayed: u64,
    /// Passwords that were not checked, because the delay would have been too long.
    pub unchecked: u64,
}

impl PasswordCounts {
    fn add(&mut self, other: &Self) {
        self.wrong += other.wrong;
        self.delayed += other.delayed;
        self.unchecked += other.unchecked;
    }
}

impl Counts {
    /// Adds the counters of another listener.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.active += other.active;
        self.bypassed += other.bypassed;
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.bytes_buffered += other.bytes_buffered;
        self.passwords.add(&other.passwords);
        for (cause, count) in &other.failed {
            *self.failed.entry(cause.clone()).or_default() += count;
        }
    }
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// Time of the record.
    pub time: Timestamp,
    /// The kind of the listener: `forward`, `socks5`, `http`, …
    pub kind: String,
    /// The listener, as it was configured.
    pub listener: SocketAddr,
    /// The address of the client.
    pub client: SocketAddr,
    /// User whose password was accepted; `None` without users. With several HTTP requests, that of the last.
    #[serde(default)]
    pub user: Option<String>,
    /// Destination that the client requested; `None` if there was no request. With several HTTP requests, that of
    /// the last.
    pub destination: Option<String>,
    /// Remote address of the upstream leg: the destination's, or the first peer's.
    pub next_hop: Option<SocketAddr>,
    /// Bytes from the client to the destination.
    pub bytes_up: u64,
    /// Bytes from the destination to the client.
    pub bytes_down: u64,
    /// Time from accept to the record, in seconds.
    pub duration_s: f64,
    /// Reason of the end.
    pub ended: EndReason,
    /// Cause of a failure or error; `None` for a clean end.
    pub cause: Option<String>,
    /// Last TCP state of the leg to the client.
    pub downstream: Option<TcpInfo>,
    /// Last TCP state of the leg to the destination or peer.
    pub upstream: Option<TcpInfo>,
    /// TCP states of all streams from a relay that stripes, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub downstream_streams: Vec<TcpInfo>,
    /// TCP states of all streams to a peer with striping, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstream_streams: Vec<TcpInfo>,
}

/// One request of an HTTP client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Time of the record.
    pub time: Timestamp,
    /// The listener, as it was configured.
    pub listener: SocketAddr,
    /// The address of the client.
    pub client: SocketAddr,
    /// User whose password was accepted; `None` without users.
    pub user: Option<String>,
    /// Method; `None` if the request could not be read.
    pub method: Option<String>,
    /// URL or authority, without a user and a password, up to 2 KiB; `None` if the request could not be read.
    pub target: Option<String>,
    /// Version of HTTP that the client used; `None` if the request could not be read.
    pub protocol: Option<String>,
    /// Status code that the client got.
    pub status: u16,
    /// Remote address of the upstream leg; `None` if the relay itself answered.
    pub next_hop: Option<SocketAddr>,
    /// Name of the first peer; `None` if there is none.
    pub peer: Option<String>,
    /// Bytes of the request's body; of a tunnel, all bytes from the client.
    pub bytes_up: u64,
    /// Bytes of the response's body; of a tunnel, all bytes to the client.
    pub bytes_down: u64,
    /// Time from the request's head to the response's head, in seconds.
    pub response_s: f64,
    /// Time from the request's head to the record, in seconds.
    pub duration_s: f64,
    /// Reason of the end; `failed` means that the relay itself answered with an error.
    pub ended: EndReason,
    /// Cause of a failure or error; `None` for a clean end.
    pub cause: Option<String>,
}

/// Reason of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The tunnel is still open. Its later records contain the bytes of this one.
    Open,
    /// Both directions ended by FIN, and all bytes were delivered.
    Finished,
    /// The downstream leg was aborted (RST, timeout). The relay then reset the upstream leg.
    ClientAborted,
    /// The upstream leg was aborted. The relay then reset the downstream leg.
    DestinationAborted,
    /// No connection to the destination was established.
    Failed,
    /// The relay stopped, or enforced a limit; both legs were reset.
    ResetByRelay,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips() {
        let counts = Counts {
            accepted: 3,
            failed: [("timed out".to_owned(), 1)].into(),
            ..Counts::default()
        };
        let record = RelayRecord {
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
            connections_taken: 3,
            connections_limit: 4,
            limits: Limits::default(),
            peers: Vec::new(),
        };
        let record = Record::Relay(record.into());
        let line = serde_json::to_string(&record).unwrap();
        assert!(
            line.starts_with(r#"{"record":"relay","time":"1970-01-01T00:00:00Z""#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}
