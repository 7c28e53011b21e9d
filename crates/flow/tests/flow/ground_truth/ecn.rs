// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of ECN against a simulated sender whose packets a queue marks and never drops, seen from three positions.

use super::simulated_flow::{MSS, analyse};
use longhaul_flow::ecn::negotiation::EcnNegotiation;
use longhaul_flow::joint_verdict;
use longhaul_flow::record::{Clocks, Direction, Flow, Limit, OneWayMetrics, TwoPointComparison};
use longhaul_flow::segment::{CE, ECT_0, ECT_1, NO_SCALE, Segment};
use longhaul_flow::verdict::limit_shares;
use longhaul_packet::tcp::{ACK, CWR, ECE, SYN};
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
/// Time of a packet on the bottleneck: 100 Mbit/s.
const PACKET_NS: u64 = 120_000;
const PACKETS: u64 = 100_000;
const SCALE: u8 = 14;

/// How a receiver reports marks, and how its sender replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feedback {
    /// ECE until CWR (RFC 3168 §6.1); the sender halves its window, as Reno does.
    Classic,
    /// The ACE field (RFC 9768); the sender reduces its window as DCTCP does (RFC 8257 §3.3).
    Accurate,
}

/// A sender, its receiver, and the captures of their segments.
struct MarkedFlow {
    feedback: Feedback,
    /// Each way.
    delay_ns: u64,
    window: f64,
    sent: u64,
    acked: u64,
    /// Number of the first packet after the last reduction.
    reduced_at: u64,
    cwr_due: bool,
    /// Marked packets of this window, and DCTCP's average of their share.
    marked: u64,
    alpha: f64,
    window_start: u64,
    /// When the bottleneck has sent all that came.
    free_ns: u64,
    /// Receiver: whether it sends ECE, and its count of CE.
    echo: bool,
    ce_packets: u64,
    received: u64,
    /// Time at the sender, packets acknowledged, CE packets and ECE.
    acks: VecDeque<(u64, u64, u64, bool)>,
    /// At the sender, in the middle and at the receiver.
    captures: [Vec<Segment>; 3],
}

impl MarkedFlow {
    fn new(feedback: Feedback, delay_ms: u64) -> Self {
        Self {
            feedback,
            delay_ns: delay_ms * MS,
            window: 10.0,
            sent: 0,
            acked: 0,
            reduced_at: 0,
            cwr_due: false,
            marked: 0,
            alpha: 0.1,
            window_start: 0,
            free_ns: 0,
            echo: false,
            ce_packets: 0,
            received: 0,
            acks: VecDeque::new(),
            captures: Default::default(),
        }
    }

    /// Runs it with a queue that marks the packets behind `threshold` others.
    fn run(mut self, threshold: u64) -> Self {
        self.handshake();
        self.send(2 * self.delay_ns, threshold);
        while let Some((at_ns, acked, ce_packets, echo)) = self.acks.pop_front() {
            self.on_ack(acked, ce_packets, echo);
            self.send(at_ns, threshold);
        }
        for capture in &mut self.captures {
            capture.sort_by_key(|segment| segment.at_ns);
        }
        self
    }

    fn handshake(&mut self) {
        let [syn, syn_ack, ack] = match self.feedback {
            Feedback::Classic => [0b011, 0b001, 0],
            Feedback::Accurate => [0b111, 0b010, 0b010],
        };
        let syn_of = |at_ns: u64, from_low: bool, flags: u8| Segment {
            window_scale: SCALE,
            mss: MSS as u16 + 12,
            sack_permitted: true,
            flags,
            ..segment(at_ns, from_low)
        };
        let delay_ns = self.delay_ns;
        let syns = [
            (syn_of(0, true, SYN), syn),
            (syn_of(delay_ns, false, SYN | ACK), syn_ack),
            (segment(2 * delay_ns, true), ack),
        ];
        for (sent, ace) in syns {
            let sent = with_ace(sent, ace);
            let seq = u32::from(sent.flags & SYN == 0);
            let sent = Segment {
                seq,
                ack: u32::from(sent.flags & ACK != 0),
                ..sent
            };
            self.capture(sent, sent.at_ns, sent.at_ns + delay_ns);
        }
    }

    /// Captures a segment that leaves one end and arrives at the other at these times.
    fn capture(&mut self, sent: Segment, left_ns: u64, arrives_ns: u64) {
        let delay_ns = self.delay_ns;
        for (capture, to_receiver_ns) in (self.captures.iter_mut()).zip([delay_ns, delay_ns / 2, 0])
        {
            let at_ns = match sent.from_low {
                true if to_receiver_ns == delay_ns => left_ns,
                true => arrives_ns - to_receiver_ns,
                false => left_ns + to_receiver_ns,
            };
            capture.push(Segment { at_ns, ..sent });
        }
    }

    fn send(&mut self, now_ns: u64, threshold: u64) {
        while self.sent < PACKETS && self.sent - self.acked < self.window as u64 {
            let queue = self.free_ns.saturating_sub(now_ns) / PACKET_NS;
            self.free_ns = self.free_ns.max(now_ns) + PACKET_NS;
            let arrives_ns = self.free_ns + self.delay_ns;
            let is_marked = queue > threshold;
            let ect = match self.feedback {
                Feedback::Classic => ECT_0,
                Feedback::Accurate => ECT_1,
            };
            let cwr = std::mem::take(&mut self.cwr_due);
            let data = Segment {
                seq: 1 + (self.sent * MSS) as u32,
                ack: 1,
                payload: MSS as u32,
                ecn: ect,
                flags: ACK | if cwr { CWR } else { 0 },
                tsecr: tsval(now_ns.saturating_sub(self.delay_ns)),
                ..segment(now_ns, true)
            };
            self.capture_data(data, arrives_ns, is_marked);
            self.sent += 1;
            self.receive(arrives_ns, is_marked, cwr, data.tsval);
        }
    }

    /// The queue is just behind the sender: the other positions see its marks.
    fn capture_data(&mut self, data: Segment, arrives_ns: u64, is_marked: bool) {
        self.capture(data, data.at_ns, arrives_ns);
        for capture in &mut self.captures[1..] {
            let last = capture.last_mut().expect("captured");
            last.ecn = if is_marked { CE } else { last.ecn };
        }
    }

    fn receive(&mut self, at_ns: u64, is_marked: bool, cwr: bool, recent: u32) {
        self.received += 1;
        self.ce_packets += u64::from(is_marked);
        self.echo = is_marked || self.echo && !cwr;
        if !self.received.is_multiple_of(2) && self.received < PACKETS {
            return;
        }
        let report = match self.feedback {
            Feedback::Classic => u8::from(self.echo),
            Feedback::Accurate => ((5 + self.ce_packets) % 8) as u8,
        };
        let ack = Segment {
            seq: 1,
            ack: 1 + (self.received * MSS) as u32,
            tsecr: recent,
            ..segment(at_ns, false)
        };
        self.capture(with_ace(ack, report), at_ns, at_ns + self.delay_ns);
        let report = (
            at_ns + self.delay_ns,
            self.received,
            self.ce_packets,
            self.echo,
        );
        self.acks.push_back(report);
    }

    fn on_ack(&mut self, acked: u64, ce_packets: u64, echo: bool) {
        let newly = (acked - self.acked) as f64;
        self.acked = acked;
        let is_new_window = acked > self.reduced_at;
        match self.feedback {
            Feedback::Classic if echo && is_new_window => {
                self.window /= 2.0;
                (self.reduced_at, self.cwr_due) = (self.sent, true);
            }
            Feedback::Classic if echo => {}
            Feedback::Accurate if is_new_window => self.end_window(ce_packets),
            Feedback::Accurate => {}
            Feedback::Classic if ce_packets == 0 => self.window += newly, // Slow start.
            Feedback::Classic => self.window += newly / self.window,
        }
    }

    fn end_window(&mut self, ce_packets: u64) {
        let packets = (self.acked - self.window_start).max(1) as f64;
        let share = (ce_packets - self.marked) as f64 / packets;
        self.alpha += (share - self.alpha) / 16.0;
        self.window = match ce_packets {
            0 => 2.0 * self.window, // Slow start.
            marked if marked > self.marked => self.window * (1.0 - self.alpha / 2.0),
            _ => self.window + 1.0,
        };
        (self.marked, self.window_start) = (ce_packets, self.acked);
        self.reduced_at = self.sent;
    }

    fn flows(&self) -> [Flow; 3] {
        self.captures.each_ref().map(|capture| analyse(capture))
    }
}

fn tsval(at_ns: u64) -> u32 {
    1_000 + (at_ns / MS) as u32
}

fn segment(at_ns: u64, from_low: bool) -> Segment {
    Segment {
        at_ns,
        from_low,
        wire_segments: 1,
        window: u16::MAX,
        flags: ACK,
        window_scale: NO_SCALE,
        has_timestamps: true,
        tsval: tsval(at_ns),
        ..Segment::default()
    }
}

fn with_ace(segment: Segment, ace: u8) -> Segment {
    Segment {
        ae: ace & 0b100 != 0,
        flags: segment.flags | ace << 6,
        ..segment
    }
}

fn share(direction: &Direction, limit: Limit) -> f64 {
    let shares = limit_shares(&direction.limits);
    shares
        .iter()
        .find(|(of, _)| *of == limit)
        .map_or(0.0, |(_, share)| *share)
}

#[test]
fn accurate_ecn_reports_every_mark_at_every_position() {
    let run = MarkedFlow::new(Feedback::Accurate, 5).run(20);
    assert!(run.ce_packets > 100, "{}", run.ce_packets);
    let seen = [0, run.ce_packets, run.ce_packets];
    for (flow, seen) in run.flows().iter().zip(seen) {
        assert_eq!(flow.handshake.ecn, EcnNegotiation::Accurate);
        let ecn = &flow.upload.ecn;
        assert_eq!(ecn.reported_ce_packets, run.ce_packets);
        assert_eq!(ecn.ce_data_segments, seen);
        assert_eq!(ecn.ect1_segments + seen, PACKETS);
        assert_eq!(ecn.ece_acks + ecn.cwr_packets, 0);
    }
}

#[test]
fn classic_ecn_counts_reductions_and_echoes_at_every_position() {
    let run = MarkedFlow::new(Feedback::Classic, 5).run(20);
    let at_sender = &run.captures[0];
    let with = |flag: u8| {
        at_sender
            .iter()
            .filter(move |s| s.flags & (SYN | flag) == flag)
    };
    let [reductions, echoes] = [CWR, ECE].map(|flag| with(flag).count() as u64);
    assert!(reductions > 5 && echoes > reductions);
    for flow in run.flows() {
        let ecn = &flow.upload.ecn;
        assert_eq!((ecn.cwr_packets, ecn.ece_acks), (reductions, echoes));
        assert_eq!(ecn.reported_ce_packets, 0);
    }
}

/// The queue marks behind 0.5 ms of packets, so that it is empty most of the time. At 40 ms, DCTCP's reductions are some
/// percent, and many round trips apart.
#[test]
fn marks_of_a_shallow_queue_limit_the_congestion_window() {
    use Feedback::{Accurate, Classic};
    for (feedback, delay_ms) in [(Classic, 5), (Accurate, 5), (Accurate, 20), (Accurate, 40)] {
        let run = MarkedFlow::new(feedback, delay_ms).run(4);
        for flow in run.flows() {
            let upload = &flow.upload;
            let window = share(upload, Limit::CongestionWindow);
            assert!(window > 0.95, "{feedback:?} {delay_ms} {}", upload.verdict);
            let reason = "the congestion window, reduced by ECN marks (";
            assert!(upload.verdict.contains(reason), "{}", upload.verdict);
            assert!(
                upload.verdict.contains("not by losses"),
                "{}",
                upload.verdict
            );
        }
    }
}

/// Without AccECN, an ACK with ECE does not say how many packets were marked. The capture at the receiver has them.
#[test]
fn joint_verdict_has_the_share_of_marked_packets_at_the_receiver() {
    let run = MarkedFlow::new(Feedback::Classic, 5).run(4);
    let [mut sender, _, mut receiver] = run.flows();
    let of_acks = sender.upload.verdict.clone();
    assert!(
        of_acks.contains("by ECN marks (answered by the sender "),
        "{of_acks}"
    );
    let pair = TwoPointComparison {
        left: 0,
        right: 1,
        client_is_left: true,
        clocks: Clocks::Same,
        offset_ns: 0,
        skew_ppm: 0.0,
        from_client: OneWayMetrics::default(),
        from_server: OneWayMetrics::default(),
    };
    let ecn = sender.upload.ecn;
    joint_verdict::assess(&mut sender, &mut receiver, &pair);
    let data = receiver.upload.data.data_segments as f64;
    let marked = 100.0 * receiver.upload.ecn.ce_data_segments as f64 / data;
    let joint = &receiver.upload.verdict;
    assert!(joint.starts_with("Captured at both ends"), "{joint}");
    let share = joint.split("by ECN marks (").nth(1).unwrap();
    let (share, of) = share.split_once(" % ").unwrap();
    assert!((share.parse::<f64>().unwrap() / marked - 1.0).abs() < 0.05);
    assert!(of.starts_with("of packets)"), "{joint}");
    assert_eq!(sender.upload.ecn, ecn);
}

/// Reno's window is twice the BDP and more, so that the queue never empties.
#[test]
fn marks_of_a_standing_queue_are_those_of_the_bottleneck() {
    let bdp = 10 * MS / PACKET_NS;
    let run = MarkedFlow::new(Feedback::Classic, 5).run(bdp + bdp / 2);
    for flow in run.flows() {
        let upload = &flow.upload;
        let path = share(upload, Limit::BottleneckBandwidth);
        assert!(path > 0.8, "{path} {}", upload.verdict);
        assert!(
            upload.verdict.contains("whose queue sets ECN marks ("),
            "{}",
            upload.verdict
        );
        assert_eq!(share(upload, Limit::Application), 0.0, "{}", upload.verdict);
    }
}
