// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a flow: `result.json` of `longhaul tap analyze` has these as they are.

use super::segment::{CapturePoint, Endpoint};
use super::time_series::TimeSeries;
use serde::{Deserialize, Serialize};

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The number of its first packet in the capture, as the caller counted; whoever collects the flows
    /// may number them anew in that order.
    pub number: u64,
    /// Where it was seen.
    #[serde(rename = "vantage")]
    pub capture_point: CapturePoint,
    /// The end that sent the first SYN; without one, that sent the first packet, unless it is a SYN/ACK,
    /// which is the server's.
    pub client: Endpoint,
    /// The other.
    pub server: Endpoint,
    /// First packet, ns since 1970.
    pub first_ns: u64,
    /// Last packet.
    pub last_ns: u64,
    /// What its beginning was.
    #[serde(rename = "opening")]
    pub handshake: Handshake,
    /// How it ended.
    #[serde(rename = "closing")]
    pub termination: Termination,
    /// Data from the client, and the ACKs for it.
    pub upload: Direction,
    /// Data from the server, and the ACKs for it.
    pub download: Direction,
}

impl Flow {
    /// Data from the client is the `upload`.
    #[must_use]
    pub fn direction(&self, upload: bool) -> &Direction {
        match upload {
            true => &self.upload,
            false => &self.download,
        }
    }

    /// From where to where that goes.
    #[must_use]
    pub fn ends(&self, upload: bool) -> (&Endpoint, &Endpoint) {
        match upload {
            true => (&self.client, &self.server),
            false => (&self.server, &self.client),
        }
    }

    /// Leaves out what only charts need, which is most of it.
    pub fn drop_chart_data(&mut self) {
        for direction in [&mut self.upload, &mut self.download] {
            direction.time_series = TimeSeries::default();
            direction.packet_windows = Vec::new();
        }
    }
}

/// The beginning of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// From the SYN to its SYN/ACK, ns; none if it was sent again and no time stamp says which was answered (Karn).
    pub syn_to_syn_ack_ns: Option<u64>,
    /// From the SYN/ACK to the ACK that ends the handshake, ns; none likewise.
    pub syn_ack_to_ack_ns: Option<u64>,
    /// SYNs that were sent again.
    pub syn_retransmissions: u32,
    /// SYN/ACKs that were sent again.
    pub syn_ack_retransmissions: u32,
}

impl Handshake {
    /// The round trip between both ends, ns; none if not the whole handshake was seen.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        let halves = self.syn_to_syn_ack_ns.zip(self.syn_ack_to_ack_ns);
        halves.map(|(to_server, to_client)| to_server.saturating_add(to_client))
    }
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// A FIN from each end.
    Finished,
    /// A FIN from one end only.
    HalfClosed,
    /// A RST, from the client.
    ResetByClient,
    /// A RST, from the server.
    ResetByServer,
    /// The capture ends before it does.
    Open,
}

/// One direction of data, with the ACKs that came back for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// What its sender offered in its SYN.
    #[serde(rename = "offer")]
    pub syn_options: SynOptions,
    /// Its data.
    pub data: Data,
    /// ACKs for its data.
    pub acks: Acks,
    /// Round trips of its data: by TSecr.
    pub rtt_by_timestamps: Distribution,
    /// Likewise, by data and the ACK that covers it, never for what was sent twice (Karn).
    pub rtt_by_pairs: Distribution,
    /// Bytes newly acknowledged by each ACK that moved.
    pub ack_diff: Distribution,
    /// Packets newly acknowledged by each ACK that moved, in segments of the largest size seen.
    pub packets_per_ack: Distribution,
    /// ns from one data segment to the next; segments of one super-packet have none between them.
    pub gaps: Distribution,
    /// Segments in a row with gaps below the burst gap.
    pub bursts: Distribution,
    /// Most bytes in flight as the tap saw it.
    pub in_flight_max_bytes: u64,
    /// The whole of it over time, in a few thousand bins. `courses.jsonl` has it, column by column.
    #[serde(
        rename = "course",
        default,
        skip_serializing_if = "TimeSeries::is_empty"
    )]
    pub time_series: TimeSeries,
    /// Single segments of some moments, in order of time. `courses.jsonl` has those that the page shows.
    #[serde(skip)]
    pub packet_windows: Vec<PacketWindow>,
    /// What its ACKs released.
    #[serde(rename = "releases", default)]
    pub ack_clocking: AckClocking,
    /// Where it was seen, and what can't be known from there.
    #[serde(rename = "standing", default)]
    pub tap_position: TapPosition,
    /// Its course in phases, none for a few packets.
    pub phases: Vec<Phase>,
    /// What limited it when, in order of time.
    pub limits: Vec<LimitPeriod>,
    /// The same in a sentence.
    pub verdict: String,
}

impl Direction {
    /// Round trips by the method that has more samples; by data and ACK if both have as many.
    #[must_use]
    pub fn round_trips(&self) -> &Distribution {
        match self.rtt_by_pairs.count >= self.rtt_by_timestamps.count {
            true => &self.rtt_by_pairs,
            false => &self.rtt_by_timestamps,
        }
    }
}

/// What is sent when an ACK came: bursts by the ACK that released them. An ACK that moves or is a duplicate releases
/// what is sent after it and before the next such, the first within `within_ns` of it and each within that of the one
/// before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AckClocking {
    /// How soon after an ACK, or after the packet before, data must be sent: the burst gap.
    pub within_ns: u64,
    /// Payload that was released by ACKs.
    pub bytes: u64,
    /// Payload that was sent since the first such ACK: what might have been.
    pub of_bytes: u64,
    /// Part of the time from the first such ACK to the last data that is within `within_ns` after any,
    /// at most: what of a sender that does not look at ACKs would seem to be released by them.
    pub by_chance: f64,
    /// ACKs by their AckDiff, which is 0 of a duplicate; classes without any are left out.
    pub by_ack_diff: Vec<AckDiffClass>,
}

/// Bursts released by ACKs for about as much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckDiffClass {
    /// AckDiff in segments of the largest size seen: least and greatest of this class; none is without end.
    pub segments: (u64, Option<u64>),
    /// How many ACKs.
    pub acks: u64,
    /// How many released 0, 1, 2, up to 4, 8, 16, 32, 64 and more segments.
    pub bursts: [u64; 9],
}

/// Where a direction was seen, on its way from sender to receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TapPosition {
    /// In a word.
    #[serde(rename = "place")]
    pub location: TapLocation,
    /// The least round trip between the tap and the sender, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_sender_ns: Option<u64>,
    /// And between the tap and the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_receiver_ns: Option<u64>,
}

/// Where a tap stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapLocation {
    /// A tenth of the round trip, or less than half a millisecond, lies between it and the sender.
    NearSender,
    /// Neither.
    Middle,
    /// Likewise, and the receiver.
    NearReceiver,
    /// Nothing shows it.
    #[default]
    Unknown,
}

/// Segments of a moment, one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketWindow {
    /// What was the occasion.
    pub trigger: WindowTrigger,
    /// What the numbers of its marks are relative to, in bytes from the first of the direction.
    pub base: i64,
    /// In the order in which they were seen; an excerpt of a loss begins with what was in flight.
    pub events: Vec<PacketEvent>,
}

/// Why segments were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowTrigger {
    /// The first of the flow.
    Beginning,
    /// A loss showed.
    Loss,
    /// One of several that are spread over the flow.
    Sample,
}

/// A packet, or what an ACK says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEvent {
    /// When, ns since 1970.
    pub at_ns: u64,
    /// First number; of an ACK what it acknowledges.
    pub low: i32,
    /// Behind the last; of an ACK the window's end, or less than `low` if nobody knows.
    pub high: i32,
    /// What it is.
    pub kind: PacketEventKind,
}

/// Kinds of [`PacketEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketEventKind {
    /// Data that was not sent before.
    Sent,
    /// Data that was.
    Retransmitted,
    /// An ACK.
    Ack,
    /// A SACK block of the ACK before.
    Sack,
}

/// Options of a SYN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SynOptions {
    /// MSS.
    pub mss: Option<u16>,
    /// Window scale, as a shift.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack: bool,
    /// Time stamps.
    pub timestamps: bool,
    /// The capture has not all of its options: what is missing above may have been offered.
    #[serde(default)]
    pub options_cut: bool,
}

/// What one end sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// Captured packets of this direction, ACKs for the other included.
    pub packets: u64,
    /// The same counted as on the wire.
    pub wire_segments: u64,
    /// IP bytes on the wire.
    pub wire_bytes: u64,
    /// Captured packets with payload.
    pub data_packets: u64,
    /// The same counted as on the wire.
    pub data_segments: u64,
    /// Packets with more payload than a segment may have, of which the capture doesn't say how many
    /// segments they were: estimated from the MSS.
    pub estimated_packets: u64,
    /// Payload bytes, sent again or not.
    pub payload_bytes: u64,
    /// Payload bytes counted once.
    pub unique_bytes: u64,
    /// Largest payload of a segment on the wire.
    pub segment_max_bytes: u32,
    /// Retransmissions, captured packets: the sum of fast, time-out, spurious and other ones.
    pub retransmissions: u64,
    /// Retransmissions (captured packets) after three duplicate ACKs or what SACK showed.
    pub fast_retransmissions: u64,
    /// After a silence.
    pub timeout_retransmissions: u64,
    /// Of what had been acknowledged or SACKed already.
    pub spurious_retransmissions: u64,
    /// Of which the capture doesn't show why, such as tail loss probes (RFC 8985 §7).
    pub other_retransmissions: u64,
    /// Retransmissions of bytes that the tap had not seen before: they were lost before it. Each of them
    /// has one of the four causes as well, so this is no part of a sum.
    pub unseen_retransmissions: u64,
    /// Bytes of all retransmissions.
    pub retransmitted_bytes: u64,
    /// Those among them that the tap had not seen before; they are in `unique_bytes` too.
    pub unseen_retransmitted_bytes: u64,
    /// Packets that came late but were not sent again.
    pub reordered: u64,
    /// Bytes that were acknowledged although the capture does not have them.
    #[serde(rename = "missed_bytes")]
    pub acked_unseen_bytes: u64,
    /// Window probes and keep-alives.
    pub probes: u64,
    /// First payload byte, ns since 1970.
    pub first_data_ns: Option<u64>,
    /// Last.
    pub last_data_ns: Option<u64>,
}

impl Data {
    /// From the first to the last payload byte, ns.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_data_ns?.saturating_sub(self.first_data_ns?))
    }
}

/// ACKs for one direction's data; they travel the other way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acks {
    /// Segments without payload, SYN, FIN or RST.
    pub pure: u64,
    /// Those that repeat a number, with no data, no new window (RFC 5681 §2).
    pub duplicates: u64,
    /// With SACK blocks.
    pub with_sack: u64,
    /// SACK blocks in them.
    pub sack_blocks: u64,
    /// With D-SACK (RFC 2883).
    pub dsacks: u64,
    /// Same number, another window.
    pub window_updates: u64,
    /// With a lesser number than one before: they came out of order.
    #[serde(rename = "late")]
    pub out_of_order: u64,
    /// Those that acknowledged anything new, with data or without: the samples of AckDiff.
    #[serde(rename = "moving")]
    pub advancing: u64,
    /// Window of zero.
    pub zero_windows: u64,
    /// The shift that windows were scaled by; none if the capture lacks the handshake or its options, and
    /// windows are as they stand in the header then.
    pub window_scale: Option<u8>,
    /// Least and greatest window, scaled, bytes.
    pub window_min_bytes: u64,
    /// The greatest.
    pub window_max_bytes: u64,
    /// Bytes acknowledged.
    pub acked_bytes: u64,
}

/// Samples, summed up: quantiles are right to 3 %.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// Least.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half are not greater.
    pub p50: u64,
    /// Nine tenths are not greater.
    pub p90: u64,
    /// 99 % are not greater.
    pub p99: u64,
    /// Greatest.
    pub max: u64,
    /// Lower edge and count of each bucket that has any, in order.
    pub buckets: Vec<(u64, u64)>,
}

/// A stretch of a transfer (paper 001, §2.3: growth, peak, and what follows).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What it is.
    pub kind: PhaseKind,
    /// Beginning, ns since 1970.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Mean rate of the data in it, bits/s.
    pub data_bps: f64,
    /// Mean rate of what was acknowledged in it, bits/s.
    pub acked_bps: f64,
    /// Pure ACKs a second.
    pub acks_per_s: f64,
    /// Data segments for each pure ACK.
    pub packets_per_ack: f64,
}

impl Phase {
    /// How long it was.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Kinds of [`Phase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// The rate grows.
    RampUp,
    /// The rate is at its highest and the round trip grows: the queue fills.
    Peak,
    /// The rate stays.
    Steady,
    /// The rate comes back after a loss.
    Recovery,
    /// Nothing is sent.
    Idle,
}

/// What limited a direction for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitPeriod {
    /// By what.
    pub by: Limit,
    /// Beginning, ns since 1970.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
}

impl LimitPeriod {
    /// How long.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// What can limit a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender had nothing to send.
    Application,
    /// The receiver's window was full.
    ReceiveWindow,
    /// The congestion window, while it grows or after a loss.
    CongestionWindow,
    /// The rate stays and the round trip is above its least: a queue stands.
    PathRate,
    /// ACKs came late, merged or too seldom for the sender to go on.
    AckStream,
}

/// One connection seen at two places, packet by packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TwoPointComparison {
    /// The number of the flow at the left.
    pub left: u64,
    /// Of that at the right.
    pub right: u64,
    /// Whether the left is nearer to the client.
    pub client_is_left: bool,
    /// Where the delays' zero comes from.
    pub clocks: Clocks,
    /// What the right's clock showed more than the left's at the first packet, ns.
    pub offset_ns: i64,
    /// How much faster it runs, parts per million.
    pub skew_ppm: f64,
    /// What the client sent: its data, and ACKs for the server's.
    pub from_client: OneWayMetrics,
    /// What the server sent.
    pub from_server: OneWayMetrics,
}

/// What is known of the clocks of two captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clocks {
    /// They are the same: delays are true.
    Same,
    /// They differ by an offset that is taken to make the least delays of both ways equal.
    Symmetric,
    /// Packets of one way only were seen at both places: delays are above the least, which is 0.
    Relative,
}

/// What travelled one way between two places.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OneWayMetrics {
    /// Packets, or parts of super-packets, seen at both.
    pub matched: u64,
    /// Their payload (and SYN and FIN).
    pub matched_bytes: u64,
    /// One-way delay, ns.
    pub delay: Distribution,
    /// The same over time.
    #[serde(rename = "course")]
    pub time_series: DelaySeries,
    /// Seen where they came from only, in between of what was seen at both: lost on the path.
    pub lost: MissingPackets,
    /// Seen where they went to only: the capture missed them, or they took another way to it.
    #[serde(rename = "missed")]
    pub uncaptured: MissingPackets,
    /// Seen at one place only, before the first or after the last packet that was seen at both: the
    /// captures don't cover the same time.
    #[serde(rename = "at_edges")]
    pub outside_overlap: MissingPackets,
    /// Bytes that were sent again although they were not seen before, even where they came from: lost
    /// before that.
    #[serde(rename = "lost_before_bytes")]
    pub lost_upstream_bytes: u64,
    /// Packets that were overtaken between the places (RFC 4737 §3).
    pub reordered: u64,
    /// The ACKs among them.
    pub ack_spacing: AckSpacing,
}

/// Packets that are not where they should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPackets {
    /// Segments with payload, SYN or FIN, as on the wire.
    pub segments: u64,
    /// Their payload (and SYN and FIN).
    pub bytes: u64,
    /// Packets without payload.
    pub acks: u64,
}

/// What the path does to the time between two pure ACKs that follow each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AckSpacing {
    /// ns between them where they came from.
    pub sent: Distribution,
    /// ns between them where they went to.
    pub arrived: Distribution,
    /// Pairs that came to less than half of their distance: compression (Mogul, "Observing TCP dynamics
    /// in real networks", 1992).
    pub compressed: u64,
    /// Pairs that came to more than twice of it.
    pub stretched: u64,
}

/// Delays over time, in bins of equal width by the left's clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelaySeries {
    /// Width of a bin.
    pub width_ns: u64,
    /// Where the first begins, ns since 1970.
    pub from_ns: u64,
    /// The bins.
    pub bins: Vec<DelayBin>,
}

/// Delays of a stretch of time, ns; all zero without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayBin {
    /// How many.
    pub count: u64,
    /// Least.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Greatest.
    pub max_ns: u64,
}
