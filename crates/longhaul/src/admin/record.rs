// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the admin endpoint tells as JSON; the metrics and the status page are made of nothing else.
//! docs/admin.md explains each field to its readers.

use crate::relay::record::{PeerCounts, RelayRecord};
use jiff::Timestamp;
use longhaul_linux::limiter::Limiter;
use longhaul_linux::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr};

/// `/healthz`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Health {
    pub(crate) status: HealthStatus,
    /// New connections wait because the memory budget is used up.
    pub(crate) memory_exhausted: bool,
    /// The names of peers that are down.
    #[serde(default)]
    pub(crate) peers_down: Vec<String>,
}

/// Whether to send connections here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HealthStatus {
    Serving,
    /// The relay is about to end and accepts no connections.
    Draining,
    /// A worker has not been heard of for 0.6 s.
    Stalled,
    /// Connections are accepted, and every way on leads through a peer that is down.
    CutOff,
}

/// `/api/v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    /// Of the source; empty if it was built outside of a repository.
    pub(crate) commit: String,
    pub(crate) started: Timestamp,
    pub(crate) uptime_s: f64,
    pub(crate) health: Health,
    /// The same as the record that --counters writes.
    pub(crate) relay: RelayRecord,
    pub(crate) peers: Vec<PeerState>,
    pub(crate) legs: Vec<LegGroup>,
    pub(crate) times: Vec<ListenerTimes>,
    pub(crate) reload: Reload,
    pub(crate) certificates: Vec<Certificate>,
    /// `None` where /proc can't be read.
    pub(crate) process: Option<Process>,
}

/// How long a listener's connections took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListenerTimes {
    pub(crate) listener: String,
    /// From a request until its outgoing leg stood.
    pub(crate) connect: Distribution,
    /// From a request until the first byte of the answer.
    pub(crate) first_byte: Distribution,
    /// From accept to end, of those that have ended.
    pub(crate) duration: Distribution,
}

/// Counts by duration, since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// Upper bounds, each included in its count.
    pub(crate) bounds_s: Vec<f64>,
    /// One more than there are bounds: the last is of what is above all.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_s: f64,
}

/// The last time that a configuration was read; the first time is the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reload {
    pub(crate) time: Timestamp,
    /// Whether it was taken.
    pub(crate) successful: bool,
    /// When one was taken last.
    pub(crate) success_time: Timestamp,
    /// Why it was not taken.
    pub(crate) problem: Option<String>,
}

/// A certificate that is in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// `listener` or `peer`.
    pub(crate) user: String,
    /// The listener's or peer's.
    pub(crate) name: String,
    /// `own`, with those between it and the authority, or `authority`.
    pub(crate) role: String,
    pub(crate) file: String,
    pub(crate) not_after: Timestamp,
}

/// What the process uses of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) started: Timestamp,
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) open_fds: u64,
    /// `None` is no limit.
    pub(crate) max_fds: Option<u64>,
}

/// A configured peer and what goes over it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerState {
    #[serde(flatten)]
    pub(crate) counts: PeerCounts,
    #[serde(flatten)]
    pub(crate) usage: PeerUsage,
}

/// Client connections that leave by a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerUsage {
    /// Open now.
    pub(crate) active: u64,
    /// Since the start.
    pub(crate) connections: u64,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
}

/// One of the two legs of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Leg {
    /// To the client.
    Near,
    /// To the destination or a peer.
    Far,
}

/// What legs are counted together by. Bounded by the configuration, whoever comes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Group {
    /// The listener that the client came in by.
    pub(crate) listener: String,
    pub(crate) leg: Leg,
    /// Far legs: the peer that they go to; `None` is straight to the destination.
    pub(crate) peer: Option<String>,
}

/// All legs of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LegGroup {
    #[serde(flatten)]
    pub(crate) group: Group,
    #[serde(flatten)]
    pub(crate) sums: LegSums,
    #[serde(flatten)]
    pub(crate) now: LegGauges,
}

/// Since the start, legs that are gone included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LegSums {
    /// Legs that there were.
    pub(crate) opened: u64,
    /// Bytes relayed towards destinations over connections with these legs.
    pub(crate) bytes_up: u64,
    /// Bytes relayed towards clients.
    pub(crate) bytes_down: u64,
    /// How often the relay stopped reading from these legs because the other side took no more.
    pub(crate) reading_pauses: u64,
    pub(crate) retransmitted_segments: u64,
    pub(crate) retransmitted_bytes: u64,
    /// Payload bytes sent, those sent again included.
    pub(crate) sent_bytes: u64,
    /// Time with data in flight or waiting, of all legs together.
    pub(crate) busy_us: u64,
    /// Part of it that the other end's receive window limited.
    pub(crate) receive_window_limited_us: u64,
    /// Part of it that the send buffer limited.
    pub(crate) send_buffer_limited_us: u64,
}

/// Of the legs that are open now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LegGauges {
    /// Legs by what limits their sending; those just opened, of which nothing is known yet, are
    /// `unknown`.
    pub(crate) limited_by: BTreeMap<String, u64>,
    /// Connections that they are: more than legs where legs are striped.
    pub(crate) streams_open: u64,
    /// Kernel memory of their sockets.
    pub(crate) buffered_bytes: u64,
    /// Legs that are not read from because the other side takes no more.
    pub(crate) reading_paused: u64,
    /// The mean of their smoothed round-trip times.
    pub(crate) rtt_mean_us: Option<f64>,
    /// The smallest round-trip time that any of them has seen.
    pub(crate) rtt_min_us: Option<u32>,
    /// The sum of their latest delivery-rate samples.
    pub(crate) delivery_rate_bytes_per_s: u64,
}

/// All connections at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) time: Timestamp,
    pub(crate) connections: Vec<Connection>,
    pub(crate) legs: Vec<LegGroup>,
}

/// `/api/v1/connections`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) time: Timestamp,
    /// How many are open; the list may be shorter.
    pub(crate) total: usize,
    pub(crate) sort: Sort,
    pub(crate) connections: Vec<Connection>,
}

/// What comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sort {
    /// The fastest now, both directions together.
    #[default]
    Rate,
    /// The largest so far.
    Bytes,
    /// The oldest.
    Age,
    /// Most segments sent again, both legs together.
    Retransmits,
}

/// One open connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connection {
    /// Never used again.
    pub(crate) id: u64,
    pub(crate) listener: String,
    pub(crate) kind: String,
    pub(crate) client: SocketAddr,
    /// What the client asked for, in its words; `None` until it has.
    pub(crate) destination: Option<String>,
    /// Where the outgoing leg goes: the destination's address or the peer's.
    pub(crate) next_hop: Option<SocketAddr>,
    pub(crate) peer: Option<String>,
    pub(crate) age_s: f64,
    /// `auto`, `splice` or `copy`; `None` until bytes are relayed.
    pub(crate) mode: Option<String>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    /// Over the last interval, about a second.
    pub(crate) bytes_up_per_s: f64,
    pub(crate) bytes_down_per_s: f64,
    pub(crate) near: Option<LegState>,
    pub(crate) far: Option<LegState>,
}

/// One leg of an open connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LegState {
    /// What limits sending on it; `None` until it has been looked at twice.
    pub(crate) limited_by: Option<Limiter>,
    /// It is not read from because the other side takes no more.
    pub(crate) reading_paused: bool,
    /// How often that was so.
    pub(crate) reading_pauses: u64,
    /// Kernel memory of its sockets.
    pub(crate) buffered_bytes: u64,
    /// Of its socket; of a striped leg, the first stream's.
    pub(crate) tcp: TcpInfo,
    /// Of a striped leg: each stream's, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<TcpInfo>,
}

impl LegState {
    /// Segments sent again, over all of its streams.
    pub(crate) fn retransmits(&self) -> u64 {
        let streams = match self.streams.is_empty() {
            true => std::slice::from_ref(&self.tcp),
            false => &self.streams,
        };
        streams.iter().map(|tcp| u64::from(tcp.retransmits)).sum()
    }
}

/// `/api/v1/throughput`: the last five minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throughput {
    /// The last point's time.
    pub(crate) time: Timestamp,
    pub(crate) interval_s: f64,
    /// Oldest first, an interval apart.
    pub(crate) points: Vec<Point>,
}

/// All connections together, over one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) bytes_up_per_s: f64,
    pub(crate) bytes_down_per_s: f64,
}
