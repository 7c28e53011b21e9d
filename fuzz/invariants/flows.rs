// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the analysis of connections, from segments to verdicts. Every packet is in one flow. The bins of a flow add up to
//! its record, and periods follow one another. No text has a number that is not finite.
//!
//! The input has [`RECORD_LEN`] bytes a segment. Fields are relative to what the connection would send next: a record of
//! zeros is an ACK in order. So most inputs are connections with irregularities, and not noise.

use longhaul_flow::record::{Direction, Flow};
use longhaul_flow::segment::{CapturePoint, Endpoint, FlowKey, NO_SCALE, Segment};
use longhaul_flow::{Flows, Settings, Sink, bin::Bin};
use longhaul_packet::tcp::{ACK, SYN};

const RECORD_LEN: usize = 20;
/// Segments of an input, so that one takes milliseconds.
const SEGMENTS_MAX: usize = 2_000;
const MSS: u32 = 1_448;

pub(crate) fn check(input: &[u8]) {
    let (records, _) = input.as_chunks::<RECORD_LEN>();
    let records = &records[..records.len().min(SEGMENTS_MAX)];
    let settings = Settings {
        flows_max: 3,
        tables_max_bytes: 1 << 16,
        unacked_max: 100,
        ranges_max: 10,
        timestamps_max: 100,
        time_series_bins_max: 300,
        packet_window_flows_max: 1,
        ..Settings::default()
    };
    let (mut flows, mut results) = (Flows::new(settings), Results::default());
    let mut script = Script::default();
    let mut packets = 0;
    for (number, record) in (0..).zip(records) {
        let (capture_point, key, segment) = script.segment(record);
        let is_new = flows.process_segment(number, capture_point, &key, &segment, &mut results);
        packets += u64::from(is_new);
    }
    flows.finish(&mut results);
    results.flows.iter().for_each(check_flow);
    let counted = results
        .flows
        .iter()
        .flat_map(|flow| [&flow.upload, &flow.download]);
    assert_eq!(
        counted.map(|direction| direction.data.packets).sum::<u64>(),
        packets
    );
}

#[derive(Default)]
struct Results {
    flows: Vec<Flow>,
}

impl Sink for Results {
    fn receive_bin(&mut self, _: u64, _: bool, _: usize, _: u64, bin: &Bin) {
        assert!(!bin.is_empty());
    }

    fn receive_flow(&mut self, flow: Flow) {
        self.flows.push(flow);
    }
}

/// Next numbers of each end of two connections.
#[derive(Default)]
struct Script {
    at_ns: u64,
    next: [[u32; 2]; 2],
    tsval: [[u32; 2]; 2],
}

impl Script {
    fn segment(&mut self, record: &[u8; RECORD_LEN]) -> (CapturePoint, FlowKey, Segment) {
        let [origin, flags, time, time_scale, data @ ..] = record;
        let [
            seq,
            seq_scale,
            ack,
            ack_scale,
            payload,
            payload_low,
            window @ ..,
        ] = data;
        let [
            window_high,
            window_low,
            tsval,
            tsecr,
            ecn,
            sack,
            sack_len,
            mss,
            ttl,
            id,
        ] = window;
        self.at_ns += u64::from(*time) << (time_scale % 40);
        let (connection, end) = (usize::from(origin >> 1 & 1), usize::from(origin & 1));
        let payload = u32::from(*payload) * 256 + u32::from(*payload_low);
        let next = self.next[connection];
        let number = |next: u32, by: u8, scale: u8| {
            next.wrapping_add((i32::from(by.cast_signed()) << (scale % 24)).cast_unsigned())
        };
        let tsval = self.tsval[connection][end].wrapping_add(u32::from(*tsval));
        let echo = self.tsval[connection][1 - end].wrapping_sub(u32::from(*tsecr));
        let has_timestamps = origin & 4 == 0;
        let left = number(next[1 - end], *sack, ack_scale / 24);
        let sack = (left, left.wrapping_add(u32::from(*sack_len) * MSS));
        let segment = Segment {
            at_ns: self.at_ns,
            time_is_estimated: origin & 0xf8 == 0xf8,
            seq: number(next[end], *seq, *seq_scale),
            ack: number(next[1 - end], *ack, *ack_scale),
            payload,
            wire_bytes: payload + 52,
            wire_segments: payload.div_ceil(MSS).max(1) as u16,
            window: u16::from_be_bytes([*window_high, *window_low]),
            flags: flags ^ ACK,
            ae: ecn & 4 != 0,
            ecn: ecn & 3,
            sack_blocks: u8::from(*sack_len > 0) * (1 + ecn % 4),
            from_low: end == 0,
            window_scale: if (flags ^ ACK) & SYN != 0 {
                *mss
            } else {
                NO_SCALE
            },
            mss: u16::from(*mss) * 64,
            sack_permitted: true,
            has_timestamps,
            tsval: if has_timestamps { tsval } else { 0 },
            tsecr: if has_timestamps { echo } else { 0 },
            reported_ce_bytes: (ecn & 8 != 0).then_some(u32::from(*ecn) << 8),
            ip_id: (*id).into(),
            ttl: *ttl,
            sack: [sack; 4],
            ..Segment::default()
        };
        self.next[connection][end] = segment.seq.wrapping_add(payload);
        self.tsval[connection][end] = tsval;
        (
            CapturePoint((origin >> 4 & 1).into()),
            key(connection),
            segment,
        )
    }
}

fn key(connection: usize) -> FlowKey {
    let end = |last: u8, port| Endpoint {
        address: [192, 0, 2, last].into(),
        port,
    };
    FlowKey {
        low: end(1, 40_000 + connection as u16),
        high: end(2, 443),
    }
}

fn check_flow(flow: &Flow) {
    assert!(flow.first_ns <= flow.last_ns);
    check_direction(&flow.upload);
    check_direction(&flow.download);
}

fn check_direction(direction: &Direction) {
    let Direction {
        data,
        acks,
        limits,
        phases,
        ..
    } = direction;
    let bins = &direction.time_series.bins;
    assert!(bins.len() <= 300);
    let sum = |of: fn(&Bin) -> u64| bins.iter().map(of).sum::<u64>();
    assert_eq!(sum(|bin| bin.data_bytes), data.payload_bytes);
    assert_eq!(sum(|bin| bin.acked_bytes), acks.acked_bytes);
    assert_eq!(sum(|bin| bin.retransmissions.into()), data.retransmissions);
    assert!(
        data.unique_bytes + data.retransmitted_bytes - data.unseen_retransmitted_bytes
            <= data.payload_bytes
    );
    assert!(
        limits
            .windows(2)
            .all(|pair| pair[0].to_ns == pair[1].from_ns)
    );
    assert!(
        phases
            .windows(2)
            .all(|pair| pair[0].to_ns == pair[1].from_ns)
    );
    for phase in phases {
        let rates = [
            phase.data_bps,
            phase.acked_bps,
            phase.acks_per_s,
            phase.packets_per_ack,
        ];
        assert!(
            rates.iter().all(|rate| rate.is_finite() && *rate >= 0.0),
            "{phase:?}"
        );
    }
    let control = direction
        .congestion_control
        .as_ref()
        .map(|control| format!("{control:?}"));
    for text in [
        &direction.verdict,
        &direction.remedy,
        &control.unwrap_or_default(),
    ] {
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
    }
}
