// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the results, as `longhaul tap analyze` writes them to `result.json`.

use super::ecn::{EcnCounts, negotiation::EcnNegotiation};
use super::segment::{CapturePoint, Endpoint};
use super::time_series::TimeSeries;
use serde::{Deserialize, Serialize};

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Number of the flow: that of its first packet in the capture, as the caller counts. A program that merges flows
    /// may renumber them in this order.
    pub number: u64,
    /// Capture point that saw the flow.
    pub capture_point: CapturePoint,
    /// End that sent the first SYN, or did not send the first SYN/ACK. If the capture begins without either, the end with
    /// the higher port. If both ports are 32,768 or more, or equal, the end that sent the first packet.
    pub client: Endpoint,
    /// Other end.
    pub server: Endpoint,
    /// Time of the first packet, ns since 1970.
    pub first_ns: u64,
    /// Time of the last packet, ns since 1970.
    pub last_ns: u64,
    /// Handshake times and retransmissions.
    pub handshake: Handshake,
    /// End of the connection: FIN, reset, or still open.
    pub termination: Termination,
    /// How often the capture's clock was set back by 100 ms or more for at least two packets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_steps_back: u32,
    /// Data from the client, and the ACKs for it.
    pub upload: Direction,
    /// Data from the server, and the ACKs for it.
    pub download: Direction,
}

impl Flow {
    /// Returns the `upload` (data from the client) or the download.
    #[must_use]
    pub fn direction(&self, upload: bool) -> &Direction {
        if upload { &self.upload } else { &self.download }
    }

    /// Returns sender and receiver of the data of a direction.
    #[must_use]
    pub fn ends(&self, upload: bool) -> (&Endpoint, &Endpoint) {
        if upload {
            (&self.client, &self.server)
        } else {
            (&self.server, &self.client)
        }
    }

    /// Drops the data that only charts need, which is most of the record.
    pub fn drop_chart_data(&mut self) {
        for direction in [&mut self.upload, &mut self.download] {
            direction.time_series = TimeSeries::default();
            direction.packet_windows = Vec::new();
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Handshake of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// Time from the SYN to its SYN/ACK, ns. `None` if the SYN was retransmitted and no timestamp shows which one was
    /// answered (Karn).
    pub syn_to_syn_ack_ns: Option<u64>,
    /// Time from the SYN/ACK to the ACK that ends the handshake, ns. `None` if the SYN/ACK was retransmitted and no
    /// timestamp shows which one was answered.
    pub syn_ack_to_ack_ns: Option<u64>,
    /// SYN retransmissions.
    pub syn_retransmissions: u32,
    /// SYN/ACK retransmissions.
    pub syn_ack_retransmissions: u32,
    /// ECN that the ends negotiated.
    #[serde(default)]
    pub ecn: EcnNegotiation,
}

impl Handshake {
    /// Returns the round-trip time between the ends, ns; `None` unless both halves of the handshake were timed.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        let halves = self.syn_to_syn_ack_ns.zip(self.syn_ack_to_ack_ns);
        halves.map(|(to_server, to_client)| to_server.saturating_add(to_client))
    }
}

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// FIN from both ends.
    Finished,
    /// FIN from one end only.
    HalfClosed,
    /// RST from the client.
    ResetByClient,
    /// RST from the server.
    ResetByServer,
    /// Still open at the end of the capture.
    Open,
}

/// Data of one direction, with the ACKs for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Options of the sender's SYN.
    pub syn_options: SynOptions,
    /// Counts of the data.
    pub data: Data,
    /// Counts of the ACKs for the data.
    pub acks: Acks,
    /// ECN marks of the data, and their reports in the ACKs.
    #[serde(default)]
    pub ecn: EcnCounts,
    /// Packets of `data` that were captured more than once; `None` without such packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
    /// Round trips of the data by TSecr, ns.
    pub rtt_by_timestamps: Distribution,
    /// Round trips of the data by the ACK that covers each packet, ns. Retransmitted packets have no sample (Karn).
    pub rtt_by_acks: Distribution,
    /// Bytes newly acknowledged by each advancing ACK.
    pub ack_diff: Distribution,
    /// Data newly acknowledged by each advancing ACK, in segments of the largest size seen.
    pub packets_per_ack: Distribution,
    /// Inter-packet gaps of data, ns; the segments of one super-packet have no gaps between them.
    pub inter_packet_gaps: Distribution,
    /// Segments of each burst: data with gaps below the burst gap.
    pub bursts: Distribution,
    /// Most bytes in flight as seen at the capture point.
    pub in_flight_max_bytes: u64,
    /// Time series of the whole direction, in a few thousand bins. `time_series.jsonl` has it, column by column.
    #[serde(default, skip_serializing_if = "TimeSeries::is_empty")]
    pub time_series: TimeSeries,
    /// Single segments of some periods, in order of time. `time_series.jsonl` has those that the page shows.
    #[serde(skip)]
    pub packet_windows: Vec<PacketWindow>,
    /// Data bursts by the ACK before them.
    #[serde(default)]
    pub ack_clocking: AckClocking,
    /// Position of the capture point, and what cannot be known from there.
    #[serde(default)]
    pub tap_position: CapturePosition,
    /// Median round trip between sender and receiver, ns. Far from the sender, the echoes of timestamps or the handshake
    /// show its part of it; `None` without them. Of echoes, the least counts where the application limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_rtt_ns: Option<u64>,
    /// Phases of the transfer; empty for fewer than ten segments.
    pub phases: Vec<Phase>,
    /// Periods and what limited each, in order of time.
    pub limits: Vec<LimitPeriod>,
    /// Congestion control of the sender, by the curve of its window; `None` for fewer than 20 round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<CongestionControl>,
    /// Verdict: the limits in a sentence.
    pub verdict: String,
    /// Remedy: what would make it faster, and by how much. Empty if the main limit is not known from this capture point.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Direction {
    /// Returns the round trips of the method that has more samples. If both have equally many, returns those by data
    /// and ACK.
    #[must_use]
    pub fn round_trips(&self) -> &Distribution {
        if self.rtt_by_acks.count >= self.rtt_by_timestamps.count {
            &self.rtt_by_acks
        } else {
            &self.rtt_by_timestamps
        }
    }

    /// Returns the duration of the transfer, ns: from the first payload byte to the last one, to its ACK, or to the end
    /// of a stall in a window of zero.
    #[must_use]
    pub fn transfer_ns(&self) -> Option<u64> {
        let first = self.data.first_data_ns?;
        let acks = &self.acks;
        let ends = [
            self.data.last_data_ns,
            acks.last_advancing_ns,
            acks.last_zero_window_ns,
        ];
        Some(ends.into_iter().max()??.saturating_sub(first))
    }

    /// Returns the mean rate of the transfer in payload bits a second; `None` without a duration. Data counts when it is
    /// acknowledged: near a sender, data that was sent may wait in a queue.
    #[must_use]
    pub fn goodput_bps(&self) -> Option<f64> {
        let bytes = match self.acks.acked_bytes {
            0 => self.data.unique_bytes,
            acked => acked,
        };
        let duration = self.transfer_ns().filter(|ns| *ns > 0)?;
        Some(bytes as f64 * 8e9 / duration as f64)
    }
}

/// ACK clocking: data bursts by the ACK before them. An ACK counts if it advances or is a duplicate. Its burst is data
/// before the next such ACK. The first packet of a burst follows its ACK within `burst_gap_ns`, and each further packet
/// follows the one before within that time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AckClocking {
    /// Burst gap, ns: data belongs to the burst of an ACK if it follows the ACK, or the packet before, within this
    /// time.
    pub burst_gap_ns: u64,
    /// Payload in bursts after ACKs, bytes.
    pub clocked_bytes: u64,
    /// Payload sent since the first such ACK, bytes: the most that `clocked_bytes` could be.
    pub sent_bytes: u64,
    /// Upper bound of the share of time within `burst_gap_ns` after any ACK, from the first such ACK to the last data. A
    /// sender that ignores ACKs would seem to send this share of its data in reply to them.
    pub chance_share: f64,
    /// ACKs by their AckDiff, which is 0 for a duplicate; empty classes are left out.
    pub by_ack_diff: Vec<AckDiffClass>,
}

/// Bursts after ACKs of one class of AckDiff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckDiffClass {
    /// AckDiff in segments of the largest size seen: least and greatest of this class; `None` has no upper end.
    pub segments: (u64, Option<u64>),
    /// Number of ACKs.
    pub acks: u64,
    /// Number of ACKs with bursts of 0, 1, 2, up to 4, 8, 16, 32, 64 and more segments.
    pub bursts: [u64; 9],
}

/// Position of the capture point on the path from sender to receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CapturePosition {
    /// Class of the position.
    pub location: CaptureLocation,
    /// Least round trip between the capture point and the sender, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_sender_ns: Option<u64>,
    /// Least round trip between the capture point and the receiver, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_receiver_ns: Option<u64>,
}

impl CapturePosition {
    /// Returns the least round trip between sender and receiver, ns.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        let parts = self.to_sender_ns.zip(self.to_receiver_ns);
        parts.map(|(sender, receiver)| sender.saturating_add(receiver))
    }
}

/// Classes of capture positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureLocation {
    /// Near the sender: at most a tenth of the round trip, or less than half a millisecond, lies between capture point
    /// and sender.
    NearSender,
    /// Near neither end.
    Middle,
    /// Near the receiver: at most a tenth of the round trip, or less than half a millisecond, lies between capture
    /// point and receiver.
    NearReceiver,
    /// Position unknown: the capture does not show it.
    #[default]
    Unknown,
}

/// Single segments of a short period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketWindow {
    /// Reason why the window was recorded.
    pub trigger: WindowTrigger,
    /// Sequence number that the events are relative to, counted in bytes from the direction's first one.
    pub base: i64,
    /// Events in the order in which they were seen; a loss window begins with the segments in flight.
    pub events: Vec<PacketEvent>,
}

/// Reasons for recording a packet window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowTrigger {
    /// Beginning of the flow.
    Beginning,
    /// Loss: a retransmission or a SACK.
    Loss,
    /// Sample: one of several that are spread over the flow.
    Sample,
}

/// Data packet, ACK or SACK block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEvent {
    /// Time, ns since 1970.
    pub at_ns: u64,
    /// First sequence number, relative to [`PacketWindow::base`]; for an ACK its ACK number.
    pub low: i32,
    /// End of the sequence numbers (exclusive); for an ACK the end of the receive window, or less than `low` if that is
    /// unknown.
    pub high: i32,
    /// Kind of the event.
    pub kind: PacketEventKind,
}

/// Kinds of [`PacketEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketEventKind {
    /// Data sent for the first time.
    Sent,
    /// Data sent before.
    Retransmitted,
    /// An ACK.
    Ack,
    /// SACK block of the ACK before.
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
    /// Timestamps.
    pub timestamps: bool,
    /// Whether the capture lacks a part of the options: those missing above may have been present.
    #[serde(default)]
    pub options_truncated: bool,
}

/// Counts of what one end sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// Captured packets of this direction, with ACKs for the other direction.
    pub packets: u64,
    /// Number of segments that these packets had on the wire.
    pub wire_segments: u64,
    /// IP bytes on the wire.
    pub wire_bytes: u64,
    /// Captured packets with payload.
    pub data_packets: u64,
    /// Number of segments that the packets with payload had on the wire.
    pub data_segments: u64,
    /// Packets with more payload than a segment may have. The capture lacks their number of segments, which is
    /// estimated from the MSS.
    pub estimated_packets: u64,
    /// Payload bytes, retransmissions included.
    pub payload_bytes: u64,
    /// Payload bytes counted once.
    pub unique_bytes: u64,
    /// Largest payload of a segment on the wire.
    pub segment_max_bytes: u32,
    /// Retransmissions (captured packets): the sum of fast, timeout, spurious and other ones.
    pub retransmissions: u64,
    /// Retransmissions (captured packets) after three duplicate ACKs or a loss that SACK showed.
    pub fast_retransmissions: u64,
    /// Retransmissions after a silence.
    pub timeout_retransmissions: u64,
    /// Retransmissions of data that had been acknowledged or SACKed.
    pub spurious_retransmissions: u64,
    /// Retransmissions without a visible cause, such as tail loss probes (RFC 8985 §7).
    pub other_retransmissions: u64,
    /// Retransmissions of bytes that the capture point had not seen before: the original was lost before the capture
    /// point. Each one also has one of the four causes, so this is not part of the sum.
    pub unseen_retransmissions: u64,
    /// Bytes of all retransmissions.
    pub retransmitted_bytes: u64,
    /// Bytes of retransmissions that the capture point had not seen before; `unique_bytes` includes them.
    pub unseen_retransmitted_bytes: u64,
    /// Packets out of order that were not retransmitted.
    pub reordered: u64,
    /// Bytes that were acknowledged but are not in the capture (Wireshark: ACKed unseen segment).
    pub acked_unseen_bytes: u64,
    /// Zero-window probes and keep-alives.
    pub window_probes_and_keep_alives: u64,
    /// Time of the first payload byte, ns since 1970.
    pub first_data_ns: Option<u64>,
    /// Time of the last payload byte, ns since 1970.
    pub last_data_ns: Option<u64>,
}

impl Data {
    /// Returns which share of the bytes was acknowledged but is not in the capture, 0 to 1.
    #[must_use]
    pub fn acked_unseen_share(&self) -> f64 {
        let all = self.unique_bytes.saturating_add(self.acked_unseen_bytes);
        self.acked_unseen_bytes as f64 / all.max(1) as f64
    }
}

/// Packets of one direction that were captured more than once. Only the copy that was captured first is analysed: no other
/// figure has the copies counted here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Packets that have copies.
    pub packets: u64,
    /// Their copies. The segments of a super-packet are one copy of it.
    pub copies: u64,
    /// Greatest difference between the TTL (hop limit) of a packet and that of its copy: 0 on a bridge, 1 on a router.
    pub ttl_difference_max: u8,
    /// Mean time from a packet to its copies, ns.
    pub delay_mean_ns: u64,
}

impl Copies {
    /// Returns the copies of two directions or flows together.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let (own, others) = (u128::from(self.copies), u128::from(other.copies));
        let sum = u128::from(self.delay_mean_ns) * own + u128::from(other.delay_mean_ns) * others;
        Self {
            packets: self.packets + other.packets,
            copies: self.copies + other.copies,
            ttl_difference_max: self.ttl_difference_max.max(other.ttl_difference_max),
            delay_mean_ns: (sum / (own + others).max(1)) as u64,
        }
    }
}

/// Counts of the ACKs for the data of one direction, which travel in the other direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acks {
    /// Pure ACKs: segments without payload, SYN, FIN or RST.
    pub pure: u64,
    /// Duplicate ACKs: the number and the window are unchanged, and there is no data (RFC 5681 §2).
    pub duplicates: u64,
    /// ACKs with SACK blocks.
    pub with_sack: u64,
    /// SACK blocks in them.
    pub sack_blocks: u64,
    /// ACKs with a D-SACK (RFC 2883).
    pub dsacks: u64,
    /// Window updates: the same ACK number with another window.
    pub window_updates: u64,
    /// ACKs out of order: their number is less than one before.
    pub out_of_order: u64,
    /// ACKs that acknowledge new data, with payload or without: the samples of AckDiff.
    pub advancing: u64,
    /// ACKs with a window of zero.
    pub zero_windows: u64,
    /// Window scale that was applied. `None` if the capture lacks the handshake or its options: windows then have the
    /// header's value, unscaled.
    pub window_scale: Option<u8>,
    /// Smallest receive window, scaled, bytes.
    pub window_min_bytes: u64,
    /// Largest receive window, scaled, bytes.
    pub window_max_bytes: u64,
    /// Bytes acknowledged.
    pub acked_bytes: u64,
    /// Time of the last ACK that acknowledged new data, ns since 1970.
    #[serde(default)]
    pub last_advancing_ns: Option<u64>,
    /// Time of the last pure ACK with a window of zero, ns since 1970. The sender asks for such ACKs as long as it has
    /// data to send.
    #[serde(default)]
    pub last_zero_window_ns: Option<u64>,
}

/// Summary of samples. The error of a quantile is at most 3 %.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of samples.
    pub count: u64,
    /// Least sample.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Greatest sample.
    pub max: u64,
    /// Lower edge and count of each bucket that has samples, in order.
    pub buckets: Vec<(u64, u64)>,
}

/// Phase of a transfer (paper 001, §2.3: growth, peak, and what follows).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Kind of the phase.
    pub kind: PhaseKind,
    /// Start, ns since 1970.
    pub from_ns: u64,
    /// End, ns since 1970.
    pub to_ns: u64,
    /// Mean rate of the data, bits/s.
    pub data_bps: f64,
    /// Mean rate of newly acknowledged data, bits/s.
    pub acked_bps: f64,
    /// Pure ACKs a second.
    pub acks_per_s: f64,
    /// Data segments for each pure ACK.
    pub packets_per_ack: f64,
}

impl Phase {
    /// Returns the duration, ns.
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
    /// The rate is constant.
    Steady,
    /// The rate recovers after a loss.
    Recovery,
    /// Nothing is sent.
    Idle,
}

/// Period in which one factor limited a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitPeriod {
    /// Limiting factor.
    pub limit: Limit,
    /// Start, ns since 1970.
    pub from_ns: u64,
    /// End, ns since 1970.
    pub to_ns: u64,
}

impl LimitPeriod {
    /// Returns the duration, ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Factors that can limit a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender had nothing to send.
    Application,
    /// The receive window was full.
    ReceiveWindow,
    /// The congestion window, while it grows or after a loss.
    CongestionWindow,
    /// Bandwidth of the bottleneck: the data rate is constant and the round trip is above its least, so a queue has built up.
    BottleneckBandwidth,
    /// The ACK stream: ACKs were late, merged or too rare for the sender to continue.
    AckStream,
}

/// Congestion control of a sender by the curve of its window, with the evidence. The rules and their sources are in
/// `verdict/congestion_control`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CongestionControl {
    /// Name of the control.
    pub name: ControlName,
    /// Other controls that explain the window as well: HighSpeed TCP is Reno up to 118 segments, and H-TCP for a second
    /// after a loss.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<ControlName>,
    /// Reason why the name is unknown; `None` if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<ControlUnknown>,
    /// Reductions of the window by losses that were assessed.
    #[serde(default)]
    pub reductions: u32,
    /// Reductions that left the part of the window that the named control keeps; 0 for BBR, which keeps none.
    #[serde(default)]
    pub explained_reductions: u32,
    /// Window after a reduction, as a part of that before it: the median. `None` without assessed reductions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<f64>,
    /// Growth of the window between reductions, segments a round trip: the median. `None` without growth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_segments: Option<f64>,
    /// Distance of the window from that of the named control, in standard errors: the root of the mean square. `None` for
    /// BBR, and for an unknown control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Period of the cycle of the sending rate in which BBR probes for bandwidth, least round trips. `None` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_period_rtts: Option<f64>,
    /// Times at which the window fell to four segments for about 0.2 s without a loss: BBR probes for the least round
    /// trip.
    #[serde(default)]
    pub rtt_probes: u32,
    /// Round trips in which the window ignored losses of many round trips before.
    #[serde(default)]
    pub round_trips_ignoring_losses: u32,
}

/// Congestion controls that a window shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlName {
    /// Reno (RFC 5681), or a control that behaves as Reno with such windows.
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BIC (Xu, Harfoush, Rhee, INFOCOM 2004).
    Bic,
    /// Scalable TCP (Kelly, 2003).
    Scalable,
    /// H-TCP (Leith and Shorten, 2004).
    Htcp,
    /// HighSpeed TCP (RFC 3649).
    Hstcp,
    /// BBR, version 1 (Cardwell et al., ACM Queue 14(5), 2016).
    Bbr,
    /// Not known.
    #[default]
    Unknown,
}

/// Reasons why the name of a congestion control is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlUnknown {
    /// The capture point is not beside the sender, and there are no timestamps that show the sender's window.
    WindowNotSeen,
    /// The application or the receive window limited the sender, and not its congestion control.
    NotGoverned,
    /// Too few losses or too little growth.
    FewReductions,
    /// No control of [`ControlName`] explains the window.
    NoMatch,
}

/// Comparison of one connection seen at two capture points, packet by packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TwoPointComparison {
    /// Number of the flow at the left point.
    pub left: u64,
    /// Number of the flow at the right point.
    pub right: u64,
    /// Whether the left point is nearer to the client.
    pub client_is_left: bool,
    /// Relation of the two clocks, on which the meaning of the delays depends.
    pub clocks: Clocks,
    /// Clock of the right point minus that of the left point, at the first packet, ns.
    pub offset_ns: i64,
    /// Excess of the right clock's rate over that of the left clock, parts per million.
    pub skew_ppm: f64,
    /// Packets from the client: its data, and ACKs for the server's data.
    pub from_client: OneWayMetrics,
    /// Packets from the server.
    pub from_server: OneWayMetrics,
}

/// Relation of the clocks of two captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clocks {
    /// One clock: delays are true.
    Same,
    /// Two clocks, with an offset chosen so that the least delays of both directions are equal.
    Symmetric,
    /// Two clocks, and packets of one direction only were seen at both points: delays are relative to the least, which
    /// is 0.
    Relative,
}

/// One-way metrics of the packets between two capture points.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OneWayMetrics {
    /// Packets, or parts of super-packets, seen at both points.
    pub matched: u64,
    /// Payload of the matched packets (with SYN and FIN), bytes.
    pub matched_bytes: u64,
    /// One-way delay, ns.
    pub one_way_delay: Distribution,
    /// One-way delay over time.
    pub time_series: DelaySeries,
    /// Lost on the path: seen at the first point only, at a time that both captures cover.
    pub lost: MissingPackets,
    /// Seen at the second point only: the first capture missed them, or they took another path.
    pub uncaptured: MissingPackets,
    /// Seen at one point only, before the first or after the last matched packet: the captures do not cover the same
    /// time.
    pub outside_overlap: MissingPackets,
    /// Retransmitted bytes that even the first point had not seen before: they were lost upstream of it.
    pub lost_upstream_bytes: u64,
    /// Packets reordered between the points (RFC 4737 §3).
    pub reordered: u64,
    /// Spacing of the ACKs.
    pub ack_spacing: AckSpacing,
}

/// Packets that only one of the points has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPackets {
    /// Segments with payload, SYN or FIN, as on the wire.
    pub segments: u64,
    /// Payload (with SYN and FIN), bytes.
    pub bytes: u64,
    /// Packets without payload.
    pub acks: u64,
}

/// Change of the time between two consecutive pure ACKs on the path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AckSpacing {
    /// Time between them at the first point, ns.
    pub sent: Distribution,
    /// Time between them at the second point, ns.
    pub arrived: Distribution,
    /// Pairs whose spacing shrank to less than half: compression (Mogul, "Observing TCP dynamics in real networks",
    /// 1992).
    pub compressed: u64,
    /// Pairs whose spacing grew to more than twice.
    pub stretched: u64,
}

/// Delays over time, in bins of equal width by the left point's clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelaySeries {
    /// Width of a bin, ns.
    pub width_ns: u64,
    /// Start of the first bin, ns since 1970.
    pub from_ns: u64,
    /// Bins, in order.
    pub bins: Vec<DelayBin>,
}

/// Delays of one bin, ns; all zero for an empty one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayBin {
    /// Number of samples.
    pub count: u64,
    /// Least delay, ns.
    pub min_ns: u64,
    /// Mean delay, ns.
    pub mean_ns: u64,
    /// Greatest delay, ns.
    pub max_ns: u64,
}
