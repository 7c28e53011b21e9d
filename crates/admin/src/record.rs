// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the admin endpoint tells as JSON; the metrics and the status page are made of nothing else.
//! docs/admin.md explains each field to its readers.

use crate::relay_record::{PeerCounts, RelayRecord};
use jiff::Timestamp;
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_tcpsim::limiter::Limiter;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

/// Where the records come from.
pub trait Source: Clone + Send + Sync + 'static {
    /// Without waiting for anything.
    fn health(&self) -> Health;
    /// All counters, at most some two seconds old.
    fn status(&self) -> impl Future<Output = Status> + Send;
    /// All connections, at most some two seconds old.
    fn connections(&self) -> impl Future<Output = Arc<Snapshot>> + Send;
    /// What went through of late.
    fn throughput(&self) -> Throughput;
}

/// `/healthz`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// The state of the relay in one word.
    pub status: HealthStatus,
    /// New connections wait because the memory budget is used up.
    pub memory_exhausted: bool,
    /// The names of peers that are down.
    #[serde(default)]
    pub peers_down: Vec<String>,
}

/// Whether to send connections here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// It takes connections.
    Serving,
    /// The relay is about to end and accepts no connections.
    Draining,
    /// A worker has not been heard of for 0.6 s.
    Stalled,
    /// Connections are accepted, and every way on leads through a peer that is down.
    CutOff,
    /// What is to be intercepted goes straight to its destinations, because rules can't be installed.
    NotIntercepting,
}

/// `/api/v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of longhaul.
    pub version: String,
    /// Of the source; empty if it was built outside of a repository.
    pub commit: String,
    /// Time of the start.
    pub started: Timestamp,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// The health of the relay.
    pub health: Health,
    /// The same as the record that --counters writes.
    pub relay: RelayRecord,
    /// The relays that it sends connections to.
    pub peers: Vec<PeerState>,
    /// Legs, in groups.
    pub legs: Vec<LegGroup>,
    /// Times of connections, by listener.
    pub times: Vec<ListenerTimes>,
    /// The last reload of the configuration.
    pub reload: Reload,
    /// The certificates that the relay shows and trusts.
    pub certificates: Vec<Certificate>,
    /// `None` where /proc can't be read.
    pub process: Option<Process>,
}

/// How long a listener's connections took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerTimes {
    /// The listener, as it was configured.
    pub listener: String,
    /// From a request until its outgoing leg stood.
    pub connect: Distribution,
    /// From a request until the first byte of the answer.
    pub first_byte: Distribution,
    /// From accept to end, of those that have ended.
    pub duration: Distribution,
}

/// Counts by duration, since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Upper bounds, each included in its count.
    pub bounds_s: Vec<f64>,
    /// One more than there are bounds: the last is of what is above all.
    pub counts: Vec<u64>,
    /// The sum of all times, in seconds.
    pub sum_s: f64,
}

/// The last time that a configuration was read; the first time is the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reload {
    /// Time of the record.
    pub time: Timestamp,
    /// Whether it was taken.
    pub successful: bool,
    /// When one was taken last.
    pub success_time: Timestamp,
    /// Why it was not taken.
    pub problem: Option<String>,
}

/// A certificate that is in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// `listener` or `peer`.
    pub user: String,
    /// The listener's or peer's.
    pub name: String,
    /// `own`, with those between it and the authority, or `authority`.
    pub role: String,
    /// The file that it was read from.
    pub file: String,
    /// The end of its validity.
    pub not_after: Timestamp,
}

/// What the process uses of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Time of the start.
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
    /// `None` is no limit.
    pub max_fds: Option<u64>,
}

/// A configured peer and what goes over it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerState {
    /// Counters.
    #[serde(flatten)]
    pub counts: PeerCounts,
    /// The traffic over it.
    #[serde(flatten)]
    pub usage: PeerUsage,
}

/// Client connections that leave by a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerUsage {
    /// Open now.
    pub active: u64,
    /// Since the start.
    pub connections: u64,
    /// Bytes from clients to destinations.
    pub bytes_up: u64,
    /// Bytes from destinations to clients.
    pub bytes_down: u64,
}

impl PeerUsage {
    /// What went over the peer of this name.
    pub fn of(peer: &str, legs: &[LegGroup]) -> Self {
        let is_its =
            |leg: &&LegGroup| leg.group.leg == Leg::Far && leg.group.peer.as_deref() == Some(peer);
        legs.iter()
            .filter(is_its)
            .fold(Self::default(), |sum, leg| Self {
                active: sum.active + leg.now.limited_by.values().sum::<u64>(),
                connections: sum.connections + leg.sums.opened,
                bytes_up: sum.bytes_up + leg.sums.bytes_up,
                bytes_down: sum.bytes_down + leg.sums.bytes_down,
            })
    }
}

/// One of the two legs of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leg {
    /// To the client.
    Near,
    /// To the destination or a peer.
    Far,
}

/// What legs are counted together by. Bounded by the configuration, whoever comes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    /// The listener that the client came in by.
    pub listener: String,
    /// The leg: near (client) or far (destination).
    pub leg: Leg,
    /// Far legs: the peer that they go to; `None` is straight to the destination.
    pub peer: Option<String>,
}

/// All legs of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegGroup {
    /// The group.
    #[serde(flatten)]
    pub group: Group,
    /// Sums since the start.
    #[serde(flatten)]
    pub sums: LegSums,
    /// Gauges of now.
    #[serde(flatten)]
    pub now: LegGauges,
}

/// Since the start, legs that are gone included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegSums {
    /// Legs that there were.
    pub opened: u64,
    /// Bytes relayed towards destinations over connections with these legs.
    pub bytes_up: u64,
    /// Bytes relayed towards clients.
    pub bytes_down: u64,
    /// How often the relay stopped reading from these legs because the other side took no more.
    pub reading_pauses: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Payload bytes sent, those sent again included.
    pub sent_bytes: u64,
    /// Time with data in flight or waiting, of all legs together.
    pub busy_us: u64,
    /// Part of it that the other end's receive window limited.
    pub receive_window_limited_us: u64,
    /// Part of it that the send buffer limited.
    pub send_buffer_limited_us: u64,
}

/// Of the legs that are open now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LegGauges {
    /// Legs by what limits their sending; those just opened, of which nothing is known yet, are
    /// `unknown`.
    pub limited_by: BTreeMap<String, u64>,
    /// Connections that they are: more than legs where legs are striped.
    pub streams_open: u64,
    /// Kernel memory of their sockets.
    pub buffered_bytes: u64,
    /// Legs that are not read from because the other side takes no more.
    pub reading_paused: u64,
    /// The mean of their smoothed round-trip times.
    pub rtt_mean_us: Option<f64>,
    /// The smallest round-trip time that any of them has seen.
    pub rtt_min_us: Option<u32>,
    /// The sum of their latest delivery-rate samples.
    pub delivery_rate_bytes_per_s: u64,
}

/// All connections at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time of the record.
    pub time: Timestamp,
    /// The connections.
    pub connections: Vec<Connection>,
    /// Legs, in groups.
    pub legs: Vec<LegGroup>,
}

/// `/api/v1/connections`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Time of the record.
    pub time: Timestamp,
    /// How many are open; the list may be shorter.
    pub total: usize,
    /// The order of the connections.
    pub sort: Sort,
    /// The connections.
    pub connections: Vec<Connection>,
}

/// What comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
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
pub struct Connection {
    /// Never used again.
    pub id: u64,
    /// The listener, as it was configured.
    pub listener: String,
    /// The kind of the listener: `forward`, `socks5`, `http`, …
    pub kind: String,
    /// The address of the client.
    pub client: SocketAddr,
    /// What the client asked for, in its words; `None` until it has.
    pub destination: Option<String>,
    /// Where the outgoing leg goes: the destination's address or the peer's.
    pub next_hop: Option<SocketAddr>,
    /// The relay that the connection goes over, if any.
    pub peer: Option<String>,
    /// Time since the connection was accepted, in seconds.
    pub age_s: f64,
    /// `auto`, `splice` or `copy`; `None` until bytes are relayed.
    pub mode: Option<String>,
    /// Bytes from clients to destinations.
    pub bytes_up: u64,
    /// Bytes from destinations to clients.
    pub bytes_down: u64,
    /// Over the last interval, about a second.
    pub bytes_up_per_s: f64,
    /// Bytes a second from destinations to clients.
    pub bytes_down_per_s: f64,
    /// The leg to the client.
    pub near: Option<LegState>,
    /// The leg to the destination.
    pub far: Option<LegState>,
}

/// One leg of an open connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegState {
    /// What limits sending on it; `None` until it has been looked at twice.
    pub limited_by: Option<Limiter>,
    /// It is not read from because the other side takes no more.
    pub reading_paused: bool,
    /// How often that was so.
    pub reading_pauses: u64,
    /// Kernel memory of its sockets.
    pub buffered_bytes: u64,
    /// Of its socket; of a striped leg, the first stream's.
    pub tcp: TcpInfo,
    /// Of a striped leg: each stream's, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<TcpInfo>,
}

impl LegState {
    /// Segments sent again, over all of its streams.
    pub fn retransmits(&self) -> u64 {
        let streams = match self.streams.is_empty() {
            true => std::slice::from_ref(&self.tcp),
            false => &self.streams,
        };
        streams.iter().map(|tcp| u64::from(tcp.retransmits)).sum()
    }
}

/// `/api/v1/throughput`: the last five minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The last point's time.
    pub time: Timestamp,
    /// Time between two points, in seconds.
    pub interval_s: f64,
    /// Oldest first, an interval apart.
    pub points: Vec<Point>,
}

/// All connections together, over one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes a second from clients to destinations.
    pub bytes_up_per_s: f64,
    /// Bytes a second from destinations to clients.
    pub bytes_down_per_s: f64,
}
