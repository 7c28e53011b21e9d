// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted captures: segments with numbers relative to each end's ISN.

use longhaul_flow::bin::Bin;
use longhaul_flow::record::Flow;
use longhaul_flow::segment::{CapturePoint, Endpoint, FlowKey, NO_SCALE, Segment};
use longhaul_flow::{Flows, Settings, Sink};
use longhaul_packet::capture::{EmulatorRecord, Verdict};
use longhaul_packet::tcp::{ACK, FIN, RST, SYN};
use std::net::IpAddr;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// A segment with relative numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptSegment {
    pub(crate) segment: Segment,
    pub(crate) port: u16,
}

/// Returns a segment from the client.
pub(crate) fn client(at_ns: u64, seq: u32, ack: u32) -> ScriptSegment {
    seg(true, at_ns, seq, ack)
}

/// Returns a segment from the server.
pub(crate) fn server(at_ns: u64, seq: u32, ack: u32) -> ScriptSegment {
    seg(false, at_ns, seq, ack)
}

fn seg(from_low: bool, at_ns: u64, seq: u32, ack: u32) -> ScriptSegment {
    let segment = Segment {
        at_ns,
        seq,
        ack,
        wire_bytes: 40,
        wire_segments: 1,
        window: 1_000,
        flags: ACK,
        from_low,
        window_scale: NO_SCALE,
        ..Segment::default()
    };
    ScriptSegment {
        segment,
        port: 1_000,
    }
}

impl ScriptSegment {
    pub(crate) fn data(mut self, payload: u32) -> Self {
        self.segment.payload = payload;
        self.segment.wire_bytes = 40 + payload;
        self
    }

    /// Makes it a super-packet.
    pub(crate) fn segments(mut self, segments: u16) -> Self {
        self.segment.wire_segments = segments;
        self.segment.wire_bytes += 40 * (u32::from(segments) - 1);
        self
    }

    pub(crate) fn window(mut self, window: u16) -> Self {
        self.segment.window = window;
        self
    }

    pub(crate) fn flags(mut self, flags: u8) -> Self {
        self.segment.flags = flags;
        self
    }

    /// Sets the ECN field of the IP header.
    pub(crate) fn ecn(mut self, ecn: u8) -> Self {
        self.segment.ecn = ecn;
        self
    }

    /// Sets AE, CWR and ECE.
    pub(crate) fn ace(mut self, ace: u8) -> Self {
        self.segment.ae = ace & 0b100 != 0;
        self.segment.flags = self.segment.flags & 0x3f | ace << 6;
        self
    }

    /// Adds the AccECN option.
    pub(crate) fn ce_bytes(mut self, bytes: u32) -> Self {
        self.segment.reported_ce_bytes = Some(bytes);
        self
    }

    pub(crate) fn fin(self) -> Self {
        self.flags(FIN | ACK)
    }

    pub(crate) fn rst(self) -> Self {
        self.flags(RST)
    }

    pub(crate) fn syn(mut self, mss: u16, window_scale: u8) -> Self {
        self.segment.flags |= SYN;
        self.segment.mss = mss;
        self.segment.window_scale = window_scale;
        self.segment.sack_permitted = true;
        self
    }

    /// Clears the ACK flag.
    pub(crate) fn without_ack(mut self) -> Self {
        self.segment.flags &= !ACK;
        self
    }

    pub(crate) fn stamps(mut self, tsval: u32, tsecr: u32) -> Self {
        self.segment.has_timestamps = true;
        (self.segment.tsval, self.segment.tsecr) = (tsval, tsecr);
        self
    }

    pub(crate) fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        self.segment.sack_blocks = blocks.len() as u8;
        self.segment.sack[..blocks.len()].copy_from_slice(blocks);
        self
    }

    pub(crate) fn emulator_record(mut self, queue_bytes: u32, verdict: Verdict) -> Self {
        self.segment.emulator_record = Some(EmulatorRecord {
            queue_bytes,
            verdict,
        });
        self
    }

    /// Sets IPv4 identification and TTL. An identification of 0 is none.
    pub(crate) fn ip(mut self, id: u16, ttl: u8) -> Self {
        (self.segment.ip_id, self.segment.ttl) = (id, ttl);
        self
    }

    /// Moves it to the connection from another port.
    pub(crate) fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Returns the segment with numbers as on the wire.
    fn wire_segment(&self, isn: [u32; 2]) -> Segment {
        let mut segment = self.segment;
        let [own, other] = if segment.from_low {
            isn
        } else {
            [isn[1], isn[0]]
        };
        segment.seq = segment.seq.wrapping_add(own);
        segment.ack = segment.ack.wrapping_add(other);
        for (left, right) in &mut segment.sack {
            (*left, *right) = (left.wrapping_add(other), right.wrapping_add(other));
        }
        segment
    }
}

/// Returns a handshake that begins at 0, seen at the client, whose data begins with number 1: MSS 1,000 and windows in
/// units of 128 bytes.
pub(crate) fn handshake(rtt_ns: u64) -> Vec<ScriptSegment> {
    vec![
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(rtt_ns, 0, 1).syn(1_000, 7),
        client(rtt_ns, 1, 1),
    ]
}

/// Returns a key with the client as its lesser end.
pub(crate) fn key(port: u16) -> FlowKey {
    let end = |last: u8, port| Endpoint {
        address: IpAddr::from([10, 0, 0, last]),
        port,
    };
    FlowKey {
        low: end(1, port),
        high: end(2, 80),
    }
}

/// A bin with its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EmittedBin {
    pub(crate) flow: u64,
    pub(crate) upload: bool,
    pub(crate) width: usize,
    pub(crate) from_ns: u64,
    pub(crate) bin: Bin,
}

/// Sink that keeps all results.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) bins: Vec<EmittedBin>,
    pub(crate) flows: Vec<Flow>,
}

impl Sink for Results {
    fn receive_bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &Bin) {
        self.bins.push(EmittedBin {
            flow,
            upload,
            width,
            from_ns,
            bin: *bin,
        });
    }

    fn receive_flow(&mut self, flow: Flow) {
        self.flows.push(flow);
    }
}

impl Results {
    /// Returns the bins of one direction of a flow and one width.
    pub(crate) fn series(&self, flow: u64, upload: bool, width: usize) -> Vec<(u64, Bin)> {
        (self.bins.iter())
            .filter(|b| (b.flow, b.upload, b.width) == (flow, upload, width))
            .map(|b| (b.from_ns, b.bin))
            .collect()
    }

    /// Asserts that bins and records agree.
    pub(crate) fn check_consistency(&self, widths: usize) {
        for flow in &self.flows {
            for (upload, direction) in [(true, &flow.upload), (false, &flow.download)] {
                for width in 0..widths {
                    let series = self.series(flow.number, upload, width);
                    assert!(series.windows(2).all(|pair| pair[0].0 < pair[1].0));
                    check_sum(series.iter().map(|(_, bin)| bin), direction);
                }
                check_sum(direction.time_series.bins.iter(), direction);
                check_record(direction);
            }
        }
    }
}

fn check_sum<'a>(bins: impl Iterator<Item = &'a Bin>, of: &longhaul_flow::record::Direction) {
    let mut sum = Bin::default();
    for bin in bins {
        sum.merge(bin);
    }
    let (data, acks) = (&of.data, &of.acks);
    assert_eq!(sum.data_bytes, data.payload_bytes);
    assert_eq!(u64::from(sum.data_segments), data.data_segments);
    assert_eq!(sum.retransmitted_bytes, data.retransmitted_bytes);
    assert_eq!(u64::from(sum.timeouts), data.timeout_retransmissions);
    assert_eq!(sum.acked_bytes, acks.acked_bytes);
    assert_eq!(u64::from(sum.acks), acks.pure);
    assert_eq!(u64::from(sum.advancing_acks), acks.advancing);
    assert_eq!(u64::from(sum.duplicate_acks), acks.duplicates);
    assert_eq!(u64::from(sum.sacks), acks.with_sack);
    assert_eq!(u64::from(sum.ack_diff_max), of.ack_diff.max);
    let reported = of.ecn.ece_acks + of.ecn.reported_ce_packets;
    assert!(u64::from(sum.reported_marks) >= reported);
    assert!(u64::from(sum.ce_segments) <= of.ecn.ce_data_segments);
    let retransmissions = data.fast_retransmissions
        + data.timeout_retransmissions
        + data.spurious_retransmissions
        + data.other_retransmissions;
    assert_eq!(data.retransmissions, retransmissions);
    assert_eq!(u64::from(sum.retransmissions), retransmissions);
    assert!(data.unseen_retransmissions <= retransmissions);
}

fn check_record(of: &longhaul_flow::record::Direction) {
    let (data, acks) = (&of.data, &of.acks);
    let mean_sum =
        |d: &longhaul_flow::record::Distribution| (d.mean * d.count as f64).round() as u64;
    assert_eq!(of.ack_diff.count, acks.advancing);
    assert_eq!(of.packets_per_ack.count, acks.advancing);
    assert_eq!(mean_sum(&of.ack_diff), acks.acked_bytes);
    assert_eq!(
        of.inter_packet_gaps.count,
        data.data_packets.saturating_sub(1)
    );
    assert_eq!(mean_sum(&of.bursts), data.data_segments);
    assert!(data.unique_bytes <= data.payload_bytes);
    let seen_again = data.retransmitted_bytes - data.unseen_retransmitted_bytes;
    assert!(data.unique_bytes + seen_again <= data.payload_bytes);
}

/// Returns the settings of the tests: bins of 1 ms and 1 s.
pub(crate) fn settings() -> Settings {
    Settings {
        time_series_bins_max: 64,
        ..Settings::default()
    }
}

/// Analyses the segments with these ISNs.
pub(crate) fn run_with(script: &[ScriptSegment], isn: [u32; 2], settings: &Settings) -> Results {
    let (mut flows, mut results) = (Flows::new(settings.clone()), Results::default());
    for (number, seg) in script.iter().enumerate() {
        let segment = seg.wire_segment(isn);
        flows.process_segment(
            number as u64,
            CapturePoint(0),
            &key(seg.port),
            &segment,
            &mut results,
        );
    }
    flows.finish(&mut results);
    results
}

/// Analyses the segments, and asserts that the result does not depend on where the numbers wrap.
pub(crate) fn run(script: &[ScriptSegment]) -> Results {
    let results = run_with(script, [7_000, 9_000], &settings());
    for below in [1, 2, 500, 1_500, 5_000] {
        let isn = [0u32.wrapping_sub(below), 0u32.wrapping_sub(below * 3)];
        assert_eq!(
            run_with(script, isn, &settings()),
            results,
            "{below} below 2^32"
        );
    }
    results.check_consistency(2);
    results
}

/// Analyses a script with one flow, and returns that.
pub(crate) fn run_one(script: &[ScriptSegment]) -> Flow {
    let mut results = run(script);
    assert_eq!(results.flows.len(), 1);
    results.flows.remove(0)
}

/// Joins the parts of a script.
pub(crate) fn script(parts: &[&[ScriptSegment]]) -> Vec<ScriptSegment> {
    parts.concat()
}
