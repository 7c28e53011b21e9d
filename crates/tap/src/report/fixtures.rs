// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test fixtures: invented results. The large transfer is as in paper 001 (200 ms, 24 s of growth, a peak, a loss,
//! then a steady rate); the other flows are small.

use super::result::{
    Analysis, CaptureFile, CapturePointInfo, Damage, Remainder, SCHEMA, UdpRemainder,
    analysis_report::AnalysisReport, chart_series::ChartSeries, packet_windows,
};
use longhaul_flow::{
    bin::Bin,
    ecn::{EcnCounts, negotiation::EcnNegotiation},
    record::{
        AckClocking, AckDiffClass, AckSpacing, Acks, CaptureLocation, CapturePosition, Clocks,
        CongestionControl, ControlName, Data, DelayBin, DelaySeries, Direction, Distribution, Flow,
        Handshake, Limit, LimitPeriod, MissingPackets, OneWayMetrics, PacketEvent, PacketEventKind,
        PacketWindow, Phase, PhaseKind, SynOptions, Termination, TwoPointComparison, WindowTrigger,
    },
    segment::{CapturePoint, Endpoint},
    time_series::TimeSeries,
    udp::{Quic, SpinBit, UdpDirection, UdpFlow},
};

const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
const BIN_NS: u64 = 8_000_000;
const BINS: u64 = 3_750;
const SEGMENT_BYTES: u64 = 1448;
const RTT_NS: u64 = 200_000_000;
/// Ends of growth, peak, recovery and steady phase, in bins.
const PHASE_ENDS: [u64; 4] = [3_000, 3_250, 3_350, BINS];

/// Returns the result of a capture with the large transfer and a short flow.
pub(crate) fn report() -> AnalysisReport {
    let mut flows = vec![long_flow(0), short_flow(7)];
    let chart_series = flows
        .iter()
        .map(|flow| ChartSeries {
            packet_windows: packet_windows::pack(&flow.upload.packet_windows, 8192),
            ..ChartSeries::new(flow.number, true, &flow.upload.time_series, 1_000_000, 4096)
        })
        .collect();
    flows.iter_mut().for_each(Flow::drop_chart_data);
    AnalysisReport {
        analysis: Analysis {
            schema: SCHEMA,
            longhaul: "0.0.0".to_owned(),
            bins_ns: vec![1_000_000, 1_000_000_000],
            files: vec![file()],
            capture_points: vec![capture_point("left", 0), capture_point("right", 1)],
            flows,
            two_point_comparisons: vec![two_point_comparison()],
            remainder: Remainder {
                flows: 3,
                packets: 60,
                wire_bytes: 9_000,
                unique_bytes: 5_000,
            },
            udp_flows: vec![udp_flow(9)],
            udp_remainder: UdpRemainder {
                flows: 2,
                packets: 4,
                wire_bytes: 600,
                payload_bytes: 488,
                ..UdpRemainder::default()
            },
            other_files: vec!["series-1ms.parquet".to_owned(), "flows.jsonl".to_owned()],
        },
        chart_series,
    }
}

/// Returns the comparison of the large transfer at two points: its data were queued, its ACKs were not. The right
/// flow is the short one, which makes no difference to the page.
pub(crate) fn two_point_comparison() -> TwoPointComparison {
    let delays = DelaySeries {
        width_ns: 1_000_000,
        from_ns: BEGIN_NS,
        bins: (0..1_000).map(delay).collect(),
    };
    let one_way_metrics = |lost: u64, compressed| OneWayMetrics {
        matched: 100_000,
        matched_bytes: 144_800_000,
        one_way_delay: distribution(&[(100_000_000, 900), (136_000_000, 100)]),
        time_series: delays.clone(),
        lost: MissingPackets {
            segments: lost,
            bytes: lost * SEGMENT_BYTES,
            acks: 0,
        },
        ack_spacing: AckSpacing {
            sent: distribution(&[(20_000, 300), (40_000, 100)]),
            arrived: distribution(&[(1_000, 100), (25_000, 300)]),
            compressed,
            stretched: 0,
        },
        ..OneWayMetrics::default()
    };
    TwoPointComparison {
        left: 0,
        right: 7,
        client_is_left: true,
        clocks: Clocks::Same,
        offset_ns: 0,
        skew_ppm: 0.0,
        from_client: one_way_metrics(40, 0),
        from_server: one_way_metrics(0, 100),
    }
}

fn delay(n: u64) -> DelayBin {
    DelayBin {
        count: n % 3,
        min_ns: 100_000_000 + n * 1_000,
        mean_ns: 101_000_000 + n * 2_000,
        max_ns: 102_000_000 + n * 36_000,
    }
}

fn file() -> CaptureFile {
    CaptureFile {
        name: "trace.pcapng".to_owned(),
        format: "pcapng".to_owned(),
        bytes: 312_000_000,
        packets: 3_100_000,
        first_ns: Some(BEGIN_NS),
        last_ns: Some(BEGIN_NS + BINS * BIN_NS),
        kernel_drops: Some(12),
        warnings: vec!["1 packet with a date more than a day from the others".to_owned()],
        damages: vec![Damage {
            at_byte: 311_999_940,
            description: "the last packet is cut short".to_owned(),
        }],
        unlisted_damages: 0,
        skipped: [("neither TCP nor UDP".to_owned(), 31)].into(),
    }
}

fn capture_point(name: &str, interface: u32) -> CapturePointInfo {
    CapturePointInfo {
        name: name.to_owned(),
        file: 0,
        interface,
        packets: 1_500_000,
    }
}

fn endpoint(last: u8, port: u16) -> Endpoint {
    Endpoint {
        address: [10, 0, 0, last].into(),
        port,
    }
}

/// Returns a QUIC flow: a download of a second.
pub(crate) fn udp_flow(number: u64) -> UdpFlow {
    let direction = |packets: u64, payload_bytes: u64| UdpDirection {
        packets,
        wire_datagrams: packets,
        wire_bytes: payload_bytes + 28 * packets,
        payload_bytes,
        first_ns: Some(BEGIN_NS),
        last_ns: Some(BEGIN_NS + 1_000_000_000),
    };
    UdpFlow {
        number,
        capture_point: CapturePoint(0),
        client: endpoint(1, 50_000),
        server: endpoint(2, 443),
        first_ns: BEGIN_NS,
        last_ns: BEGIN_NS + 1_000_000_000,
        upload: direction(500, 20_000),
        download: direction(1_000, 1_200_000),
        quic: Some(Quic {
            version: "1".to_owned(),
            handshake_rtt_ns: Some(RTT_NS),
            spin_bit: SpinBit::Spins,
            spin_rtt: distribution(&[(RTT_NS, 4), (210_000_000, 1)]),
            ..Quic::default()
        }),
    }
}

/// Returns a short flow: a request and its response.
pub(crate) fn short_flow(number: u64) -> Flow {
    let mut time_series = TimeSeries::new(BEGIN_NS, 1_000_000);
    for n in 0..20 {
        let bin = Bin {
            data_bytes: 1000,
            data_segments: 1,
            acked_bytes: 1000,
            acks: 1,
            ..Bin::default()
        };
        time_series.add(BEGIN_NS + n * 5_000_000, &bin, 64);
    }
    let data = Data {
        packets: 10,
        wire_bytes: 1_500,
        unique_bytes: 20_000,
        first_data_ns: Some(BEGIN_NS),
        last_data_ns: Some(BEGIN_NS + 95_000_000),
        ..Data::default()
    };
    let upload = Direction {
        data,
        time_series,
        verdict: "The application had nothing to send for most of the time.".to_owned(),
        ..Direction::default()
    };
    Flow {
        number,
        capture_point: CapturePoint(1),
        client: endpoint(1, 40_007),
        server: endpoint(2, 80),
        first_ns: BEGIN_NS,
        last_ns: BEGIN_NS + 100_000_000,
        handshake: Handshake {
            syn_to_syn_ack_ns: Some(RTT_NS),
            syn_ack_to_ack_ns: Some(10_000),
            syn_retransmissions: 0,
            syn_ack_retransmissions: 0,
            ecn: EcnNegotiation::NotNegotiated,
        },
        termination: Termination::ResetByServer,
        clock_steps_back: 0,
        upload,
        download: Direction::default(),
    }
}

/// Returns the large transfer, shaped like figure 3 of the paper.
pub(crate) fn long_flow(number: u64) -> Flow {
    let mut noise = PseudoRandom(7);
    let mut time_series = TimeSeries::new(BEGIN_NS, BIN_NS);
    for n in 0..BINS {
        time_series.add(BEGIN_NS + n * BIN_NS, &bin(n, &mut noise), BINS as usize);
    }
    Flow {
        client: endpoint(1, 40_000),
        server: endpoint(2, 5201),
        capture_point: CapturePoint(0),
        last_ns: BEGIN_NS + BINS * BIN_NS,
        termination: Termination::Finished,
        clock_steps_back: 0,
        upload: upload(time_series),
        ..short_flow(number)
    }
}

fn upload(time_series: TimeSeries) -> Direction {
    let sum = |of: fn(&Bin) -> u64| time_series.bins.iter().map(of).sum::<u64>();
    let payload_bytes = sum(|bin| bin.data_bytes);
    let retransmitted_bytes = sum(|bin| bin.retransmitted_bytes);
    let data = Data {
        packets: 1_000_000,
        wire_segments: payload_bytes / SEGMENT_BYTES,
        wire_bytes: payload_bytes / SEGMENT_BYTES * (SEGMENT_BYTES + 52),
        data_packets: 1_000_000,
        data_segments: payload_bytes / SEGMENT_BYTES,
        payload_bytes,
        unique_bytes: payload_bytes - retransmitted_bytes,
        segment_max_bytes: SEGMENT_BYTES as u32,
        retransmissions: retransmitted_bytes / SEGMENT_BYTES,
        fast_retransmissions: retransmitted_bytes / SEGMENT_BYTES,
        retransmitted_bytes,
        first_data_ns: Some(BEGIN_NS),
        last_data_ns: Some(BEGIN_NS + BINS * BIN_NS),
        ..Data::default()
    };
    let acks = Acks {
        pure: sum(|bin| bin.acks.into()),
        duplicates: sum(|bin| bin.duplicate_acks.into()),
        advancing: sum(|bin| bin.advancing_acks.into()),
        acked_bytes: sum(|bin| bin.acked_bytes),
        window_scale: Some(12),
        window_min_bytes: 200 << 20,
        window_max_bytes: 210 << 20,
        ..Acks::default()
    };
    Direction {
        syn_options: SynOptions {
            mss: Some(1460),
            window_scale: Some(12),
            sack: true,
            timestamps: true,
            options_truncated: false,
        },
        data,
        acks,
        ecn: EcnCounts::default(),
        copies: None,
        rtt_by_timestamps: distribution(&[
            (200_000_000, 900),
            (210_000_000, 400),
            (236_000_000, 100),
        ]),
        rtt_by_acks: distribution(&[(200_100_000, 80), (236_000_000, 20)]),
        ack_diff: distribution(&[(1448, 10), (2896, 500), (5792, 90), (65_160, 4)]),
        packets_per_ack: distribution(&[(1, 10), (2, 500), (4, 90), (45, 4)]),
        inter_packet_gaps: distribution(&[(0, 3000), (1_150, 4000), (12_000, 700), (900_000, 30)]),
        bursts: distribution(&[(1, 30), (44, 300), (90, 60)]),
        in_flight_max_bytes: 196 << 20,
        packet_windows: vec![window_at_beginning(), window_at_loss()],
        ack_clocking: ack_clocking(),
        tap_position: CapturePosition {
            location: CaptureLocation::NearSender,
            to_sender_ns: Some(10_000),
            to_receiver_ns: Some(RTT_NS),
        },
        path_rtt_ns: Some(200_100_000),
        phases: phases(),
        limits: limits(),
        verdict: "The congestion window limited it for 24 of 30 s, then the bottleneck bandwidth."
            .to_owned(),
        remedy: "Only a faster path or less data would help.".to_owned(),
        congestion_control: Some(CongestionControl {
            name: ControlName::Cubic,
            reductions: 2,
            explained_reductions: 2,
            backoff: Some(0.7),
            growth_segments: Some(12.0),
            deviation: Some(0.4),
            ..CongestionControl::default()
        }),
        time_series,
    }
}

fn bin(n: u64, noise: &mut PseudoRandom) -> Bin {
    let peak_bytes = 7_220_000_000 / 8 * BIN_NS / 1_000_000_000;
    let [ramp, peak, recovery, _] = PHASE_ENDS;
    let mean = match n {
        _ if n < ramp => peak_bytes * n * n / (ramp * ramp),
        _ if n < peak => peak_bytes,
        _ if n < recovery => peak_bytes * (n - peak / 2) / (recovery - peak / 2),
        _ => peak_bytes * 97 / 100,
    };
    let lost = n == peak;
    let queue = if (ramp..peak).contains(&n) {
        (n - ramp) * 12_000
    } else {
        0
    };
    let segments = noise.near(mean / SEGMENT_BYTES);
    let acked_segments = noise.near(mean / SEGMENT_BYTES);
    let acks = if n < ramp {
        acked_segments.div_ceil(2)
    } else {
        acked_segments.div_ceil(9)
    };
    let rtt = RTT_NS + queue * 12;
    Bin {
        data_bytes: segments * SEGMENT_BYTES,
        data_bytes_max: noise.near(segments * SEGMENT_BYTES / 4),
        data_segments: segments as u32,
        retransmitted_bytes: if lost { 40 * SEGMENT_BYTES } else { 0 },
        retransmissions: if lost { 40 } else { 0 },
        acked_bytes: acked_segments * SEGMENT_BYTES,
        acked_bytes_max: noise.near(acked_segments * SEGMENT_BYTES / 5),
        ack_path_delay_ns: (acks > 0).then_some((queue * 3) as i64 - 4_000),
        acks: acks as u32,
        advancing_acks: acks as u32,
        duplicate_acks: if lost { 300 } else { 0 },
        ack_diff_max: acked_segments
            .checked_div(acks)
            .map_or(0, |each| (each * 4 * SEGMENT_BYTES) as u32),
        rtt_min_ns: if acks > 0 { rtt } else { 0 },
        rtt_max_ns: if acks > 0 {
            rtt + noise.near(900_000)
        } else {
            0
        },
        rtt_sum_ns: (rtt + 300_000) * acks,
        rtt_samples: acks as u32,
        in_flight_max: mean * RTT_NS / BIN_NS,
        window_min: (acks > 0).then_some(200 << 20),
        queue_max: queue as u32,
        drops: if lost { 40 } else { 0 },
        ..Bin::default()
    }
}

/// Returns a packet window of the beginning: flights of 10, 20 and 40 segments, a round trip apart.
fn window_at_beginning() -> PacketWindow {
    let mut events = Vec::new();
    let mut sent = 0;
    for (round, window) in (1..).zip([10, 20, 40]) {
        let at_ns = BEGIN_NS + RTT_NS * round;
        for n in 0..window {
            let low = (sent + n) * SEGMENT_BYTES as i32;
            events.push(event(
                at_ns + n as u64 * 12_000,
                low,
                1,
                PacketEventKind::Sent,
            ));
        }
        sent += window;
        let acked = sent * SEGMENT_BYTES as i32;
        events.push(event(at_ns + RTT_NS, acked, 200, PacketEventKind::Ack));
    }
    PacketWindow {
        trigger: WindowTrigger::Beginning,
        base: 0,
        events,
    }
}

/// Returns a packet window of a loss: one segment of 60 is lost, the others are SACKed, and it is retransmitted.
fn window_at_loss() -> PacketWindow {
    let from_ns = BEGIN_NS + PHASE_ENDS[1] * BIN_NS;
    let length = SEGMENT_BYTES as i32;
    let sent = (0..60).map(|n| {
        event(
            from_ns + n as u64 * 12_000,
            n * length,
            1,
            PacketEventKind::Sent,
        )
    });
    let acks = (1..60).flat_map(|n| {
        let at_ns = from_ns + RTT_NS + n as u64 * 12_000;
        let ack = event(at_ns, 10 * length, 150, PacketEventKind::Ack);
        [ack, event(at_ns, 11 * length, n, PacketEventKind::Sack)]
    });
    let retransmission = event(
        from_ns + RTT_NS + 40_000,
        10 * length,
        1,
        PacketEventKind::Retransmitted,
    );
    let mut events: Vec<PacketEvent> = sent.chain(acks).chain([retransmission]).collect();
    events.sort_by_key(|event| event.at_ns);
    PacketWindow {
        trigger: WindowTrigger::Loss,
        base: 20_000_000_000,
        events,
    }
}

fn event(at_ns: u64, low: i32, segments: i32, kind: PacketEventKind) -> PacketEvent {
    PacketEvent {
        at_ns,
        low,
        high: low + segments * SEGMENT_BYTES as i32,
        kind,
    }
}

fn ack_clocking() -> AckClocking {
    AckClocking {
        burst_gap_ns: 100_000,
        clocked_bytes: 97_000_000,
        sent_bytes: 100_000_000,
        chance_share: 0.12,
        by_ack_diff: vec![
            AckDiffClass {
                segments: (2, Some(2)),
                acks: 50_000,
                bursts: [500, 1_500, 40_000, 8_000, 0, 0, 0, 0, 0],
            },
            AckDiffClass {
                segments: (5, Some(8)),
                acks: 9_000,
                bursts: [0, 0, 0, 0, 8_100, 900, 0, 0, 0],
            },
        ],
    }
}

fn phases() -> Vec<Phase> {
    let kinds = [
        PhaseKind::RampUp,
        PhaseKind::Peak,
        PhaseKind::Recovery,
        PhaseKind::Steady,
    ];
    let begins = [0, PHASE_ENDS[0], PHASE_ENDS[1], PHASE_ENDS[2]];
    let phase = |((kind, from), to): ((PhaseKind, u64), u64)| Phase {
        kind,
        from_ns: BEGIN_NS + from * BIN_NS,
        to_ns: BEGIN_NS + to * BIN_NS,
        data_bps: 7.0e9,
        acked_bps: 6.9e9,
        acks_per_s: 300_000.0,
        packets_per_ack: 2.0,
    };
    kinds
        .into_iter()
        .zip(begins)
        .zip(PHASE_ENDS)
        .map(phase)
        .collect()
}

fn limits() -> Vec<LimitPeriod> {
    let limited = |by, from: u64, to: u64| LimitPeriod {
        limit: by,
        from_ns: BEGIN_NS + from * BIN_NS,
        to_ns: BEGIN_NS + to * BIN_NS,
    };
    vec![
        limited(Limit::CongestionWindow, 0, PHASE_ENDS[0]),
        limited(Limit::BottleneckBandwidth, PHASE_ENDS[0], PHASE_ENDS[1]),
        limited(Limit::AckStream, PHASE_ENDS[1], PHASE_ENDS[2]),
        limited(Limit::BottleneckBandwidth, PHASE_ENDS[2], BINS),
    ]
}

/// Returns the distribution of values with their counts; `values` are in ascending order.
fn distribution(values: &[(u64, u64)]) -> Distribution {
    let count: u64 = values.iter().map(|(_, count)| count).sum();
    let sum: u64 = values.iter().map(|(value, count)| value * count).sum();
    let quantile = |share: f64| {
        let mut left = (count as f64 * share).ceil() as u64;
        let reached = |(_, count): &&(u64, u64)| {
            let done = *count >= left;
            left = left.saturating_sub(*count);
            done
        };
        values.iter().find(reached).map_or(0, |(value, _)| *value)
    };
    Distribution {
        count,
        min: values[0].0,
        mean: sum as f64 / count as f64,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        max: values[values.len() - 1].0,
        buckets: values.to_vec(),
    }
}

/// Pseudo-random numbers, the same in each run (Knuth's LCG).
struct PseudoRandom(u64);

impl PseudoRandom {
    /// Returns a number within 20 % of `mean`.
    fn near(&mut self, mean: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        mean * (80 + (self.0 >> 33) % 41) / 100
    }
}
