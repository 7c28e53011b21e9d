// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON records of the admin endpoint, from which the metrics and the status page are made.
//! docs/admin.md explains each field for users.

use crate::relay_record::{PeerCounts, RelayRecord};
use jiff::Timestamp;
use longhaul_linux::{limiter::Limiter, tcp_info::TcpInfo};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

/// Source of the records.
pub trait Source: Clone + Send + Sync + 'static {
    /// Returns the health, without waiting.
    fn health(&self) -> Health;
    /// Returns all counters, at most about two seconds old.
    fn status(&self) -> impl Future<Output = Status> + Send;
    /// Returns all connections, at most about two seconds old.
    fn connections(&self) -> impl Future<Output = Arc<Snapshot>> + Send;
    /// Returns the recent throughput.
    fn throughput(&self) -> Throughput;
}

/// Response to `/healthz`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// State of the relay in one word.
    pub status: HealthStatus,
    /// Whether new connections wait because as many as may be open are open.
    #[serde(default)]
    pub connections_exhausted: bool,
    /// Whether connections wait because there is no descriptor, or no kernel memory for a socket.
    #[serde(default)]
    pub descriptors_exhausted: bool,
    /// Whether new connections wait because the memory budget is used up.
    pub memory_exhausted: bool,
    /// Names of peers that are down.
    #[serde(default)]
    pub peers_down: Vec<String>,
}

impl Health {
    /// Whether new connections are served without a wait.
    pub fn is_ready(&self) -> bool {
        let waits =
            self.connections_exhausted || self.descriptors_exhausted || self.memory_exhausted;
        self.status == HealthStatus::Serving && !waits
    }
}

/// State of a relay, by which a load balancer decides whether to send connections to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// The relay accepts connections.
    Serving,
    /// The relay is about to end and accepts no connections.
    Draining,
    /// A worker has sent no heartbeat for 0.6 s.
    Stalled,
    /// Connections are accepted, but every route leads through a peer that is down.
    NoUpstream,
    /// Connections bypass the relay, because the rules that intercept them can't be installed.
    NotIntercepting,
}

/// Response to `/api/v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of longhaul.
    pub version: String,
    /// Commit of the source; empty if longhaul was built outside a repository.
    pub commit: String,
    /// Time at which the relay started.
    pub started: Timestamp,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// The health of the relay.
    pub health: Health,
    /// Counters, as in the record that --counters writes.
    pub relay: RelayRecord,
    /// Peers that the relay sends connections to.
    pub peers: Vec<PeerState>,
    /// Legs, in groups.
    pub legs: Vec<LegGroup>,
    /// Times of connections, by listener.
    pub times: Vec<ListenerTimes>,
    /// The last reload of the configuration.
    pub reload: Reload,
    /// Certificates that the relay presents and trusts.
    pub certificates: Vec<Certificate>,
    /// Resource use of the process; `None` if /proc can't be read.
    pub process: Option<Process>,
}

/// Times of a listener's connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerTimes {
    /// The listener, as it was configured.
    pub listener: String,
    /// Time from a request until its upstream leg is connected.
    pub connect: Distribution,
    /// Time from a request until the first byte of the response.
    pub first_byte: Distribution,
    /// Time from accept to end, of closed connections.
    pub duration: Distribution,
}

/// Counts by duration, since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Upper bounds of the buckets, inclusive.
    pub bounds_s: Vec<f64>,
    /// Counts of the buckets. The last count, which has no bound, is of all greater times.
    pub counts: Vec<u64>,
    /// The sum of all times, in seconds.
    pub sum_s: f64,
}

/// Result of the last time that the configuration was read: at the start, or at a reload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reload {
    /// Time at which the configuration was read.
    pub time: Timestamp,
    /// Whether it was applied.
    pub successful: bool,
    /// Time at which a configuration was last applied.
    pub success_time: Timestamp,
    /// Reason why the configuration was not applied.
    pub error: Option<String>,
}

/// A certificate that is in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// User of the certificate: `listener` or `peer`.
    pub used_by: String,
    /// Name of the listener or peer.
    pub name: String,
    /// Role: `own` (intermediate certificates too) or `authority`.
    pub role: String,
    /// The file that it was read from.
    pub file: String,
    /// The end of the certificate's validity.
    pub not_after: Timestamp,
}

/// Resource use of the process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Time at which the process started.
    pub started: Timestamp,
    /// Processor time used, in seconds.
    pub cpu_s: f64,
    /// Memory in use, in bytes.
    pub resident_bytes: u64,
    /// Address space, in bytes.
    pub virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub open_fds: u64,
    /// Limit of open descriptors; `None` for no limit.
    pub max_fds: Option<u64>,
}

/// Configured peer and its traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerState {
    /// Counters.
    #[serde(flatten)]
    pub counts: PeerCounts,
    /// The traffic over the peer.
    #[serde(flatten)]
    pub usage: PeerUsage,
}

/// Client connections that use a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerUsage {
    /// Connections open now.
    pub active: u64,
    /// Connections since the start.
    pub connections: u64,
    /// Bytes from clients to destinations.
    pub bytes_up: u64,
    /// Bytes from destinations to clients.
    pub bytes_down: u64,
}

impl PeerUsage {
    /// Adds up the traffic of the legs that lead to the peer of this name.
    pub fn from_legs(peer: &str, legs: &[LegGroup]) -> Self {
        let is_to_peer =
            |leg: &&LegGroup| leg.key.leg == Leg::Upstream && leg.key.peer.as_deref() == Some(peer);
        legs.iter()
            .filter(is_to_peer)
            .fold(Self::default(), |sum, leg| Self {
                active: sum.active + leg.gauges.limited_by.values().sum::<u64>(),
                connections: sum.connections + leg.totals.opened,
                bytes_up: sum.bytes_up + leg.totals.bytes_up,
                bytes_down: sum.bytes_down + leg.totals.bytes_down,
            })
    }
}

/// One of the two legs of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leg {
    /// To the client.
    Downstream,
    /// To the destination or a peer.
    Upstream,
}

/// Key of a group of legs that are counted together. The configuration bounds the number of groups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LegGroupKey {
    /// Listener that accepted the clients.
    pub listener: String,
    /// Side of the legs.
    pub leg: Leg,
    /// Peer of upstream legs; `None` for legs directly to the destination.
    pub peer: Option<String>,
}

/// Totals and gauges of all legs of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegGroup {
    /// Key of the group.
    #[serde(flatten)]
    pub key: LegGroupKey,
    /// Totals since the start.
    #[serde(flatten)]
    pub totals: LegTotals,
    /// Values of the legs that are open now.
    #[serde(flatten)]
    pub gauges: LegGauges,
}

/// Totals since the start, over open and closed legs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegTotals {
    /// Legs opened.
    pub opened: u64,
    /// Bytes relayed towards destinations over connections with these legs.
    pub bytes_up: u64,
    /// Bytes relayed towards clients over connections with these legs.
    pub bytes_down: u64,
    /// Pauses of reading from these legs because the other side accepted no more.
    pub reading_pauses: u64,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Payload bytes sent, retransmitted ones included.
    pub sent_bytes: u64,
    /// Time with data in flight or queued, of all legs together.
    pub busy_us: u64,
    /// Part of the busy time limited by the other end's receive window.
    pub receive_window_limited_us: u64,
    /// Part of the busy time limited by the send buffer.
    pub send_buffer_limited_us: u64,
}

/// Gauges of the legs that are open now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LegGauges {
    /// Number of legs by what limits their sending; legs that were just opened are `unknown`.
    pub limited_by: BTreeMap<String, u64>,
    /// TCP connections of these legs: several for a striped leg.
    pub streams_open: u64,
    /// Kernel memory of the legs' sockets, in bytes.
    pub buffered_bytes: u64,
    /// Legs whose reading is paused because the other side accepts no more.
    pub reading_paused: u64,
    /// Mean of the smoothed round-trip times.
    pub rtt_mean_us: Option<f64>,
    /// Smallest round-trip time of any leg.
    pub rtt_min_us: Option<u32>,
    /// Sum of the latest delivery-rate samples.
    pub delivery_rate_bytes_per_s: u64,
}

/// Snapshot of all connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub time: Timestamp,
    /// The connections.
    pub connections: Vec<Connection>,
    /// Legs, in groups.
    pub legs: Vec<LegGroup>,
}

/// Response to `/api/v1/connections`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Time of the snapshot from which the response was made.
    pub time: Timestamp,
    /// Number of open connections; the list may be shorter.
    pub total: usize,
    /// The order of the connections.
    pub sort: Sort,
    /// The connections.
    pub connections: Vec<Connection>,
}

/// Order of the connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// By present rate, both directions together, fastest first.
    #[default]
    Rate,
    /// By bytes, largest first.
    Bytes,
    /// By age, oldest first.
    Age,
    /// By retransmitted segments, both legs together, most first.
    Retransmits,
}

/// Open connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Identifier, which is never reused.
    pub id: u64,
    /// The listener, as it was configured.
    pub listener: String,
    /// The kind of the listener: `forward`, `socks5`, `http`, …
    pub kind: String,
    /// The address of the client.
    pub client: SocketAddr,
    /// Destination as the client requested it; `None` before the request.
    pub destination: Option<String>,
    /// Remote address of the upstream leg: the destination's or the peer's.
    pub next_hop: Option<SocketAddr>,
    /// Peer that the connection uses, if any.
    pub peer: Option<String>,
    /// Time since the connection was accepted, in seconds.
    pub age_s: f64,
    /// Transfer mode: `auto`, `splice` or `copy`; `None` until bytes are relayed.
    pub mode: Option<String>,
    /// Bytes from the client to the destination.
    pub bytes_up: u64,
    /// Bytes from the destination to the client.
    pub bytes_down: u64,
    /// Bytes a second from the client to the destination, over about the last second.
    pub bytes_up_per_s: f64,
    /// Bytes a second from the destination to the client.
    pub bytes_down_per_s: f64,
    /// The leg to the client.
    pub downstream: Option<LegState>,
    /// The leg to the destination or the peer.
    pub upstream: Option<LegState>,
}

/// Leg of an open connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegState {
    /// Limiter of the leg's sending; `None` until there are two samples.
    pub limited_by: Option<Limiter>,
    /// Whether reading is paused because the other side accepts no more.
    pub reading_paused: bool,
    /// Number of pauses of reading.
    pub reading_pauses: u64,
    /// Kernel memory of the leg's sockets.
    pub buffered_bytes: u64,
    /// TCP state of the socket; for a striped leg, of the first stream.
    pub tcp: TcpInfo,
    /// TCP state of each stream of a striped leg, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<TcpInfo>,
}

impl LegState {
    /// Returns the retransmitted segments of all streams.
    pub fn retransmits(&self) -> u64 {
        let streams = if self.streams.is_empty() {
            std::slice::from_ref(&self.tcp)
        } else {
            &self.streams
        };
        streams.iter().map(|tcp| u64::from(tcp.retransmits)).sum()
    }
}

/// Response to `/api/v1/throughput`: the last five minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Time of the last point.
    pub time: Timestamp,
    /// Time between two points, in seconds.
    pub interval_s: f64,
    /// Points an interval apart, oldest first.
    pub points: Vec<Point>,
}

/// Throughput of all connections together over one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes a second from clients to destinations.
    pub bytes_up_per_s: f64,
    /// Bytes a second from destinations to clients.
    pub bytes_down_per_s: f64,
}
