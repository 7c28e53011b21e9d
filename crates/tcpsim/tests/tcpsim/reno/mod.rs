// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk Reno flow over two [`Line`]s, under simulated time.
//!
//! The sender always has data and never leaves congestion avoidance (RFC 5681 §3.1). It recovers like a SACK
//! sender (RFC 6675). A segment counts as lost when three sent after it have arrived. The window halves once a
//! round trip, and segments are sent while fewer than a window are in flight.
//!
//! The lines keep their order and lose no ACK, so no segment is wrongly thought lost. Each one that arrives is
//! new data, and segments need no sequence number but the count of transmissions.

use longhaul_netem::{Event, Line, LinkConfig, Schedule, Segment, Setting};
use longhaul_units::Time;
use std::{collections::VecDeque, ops::RangeInclusive};

pub(crate) const MSS: u32 = 1460;
const HEADERS: u32 = 40;
/// Later segments that arrive before one counts as lost (RFC 5681 §3.2).
const DUP_THRESH: u32 = 3;
/// Retransmission timeout (RFC 6298 §2.4), which counts only when nothing is in flight any more.
const RTO: Time = Time::from_secs(1);

/// Policy for sending ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckPolicy {
    /// An ACK for each segment at once.
    Immediate,
    /// An ACK for each second segment, at once after a gap, and within 40 ms.
    Delayed,
}

const DELAYED_ACK: Time = Time::from_millis(40);

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Arrived segments × MSS over the time until the last ACK, bits a second.
    pub(crate) goodput_bps: f64,
    pub(crate) timeouts: u32,
}

/// Runs until `segments` are acknowledged. `loss` is a rule for the data direction, and the window begins at
/// `window` segments. The seed follows from the RTT, so that no two paths lose alike.
pub(crate) fn run(rtt: Time, loss: &str, policy: AckPolicy, window: f64, segments: u64) -> Outcome {
    let mut path = Path::new(rtt, loss);
    let mut receiver = Receiver::new(policy);
    let mut sender = Sender::new(window);
    let mut now = Time::ZERO;
    while sender.arrived < segments {
        while sender.may_send() {
            path.send_data(now, sender.send());
        }
        let deadline = path
            .next_deadline()
            .into_iter()
            .chain(receiver.deadline())
            .min();
        let Some(next) = deadline else {
            now += RTO;
            sender.on_timeout();
            continue;
        };
        now = next;
        for id in path.poll_data(now) {
            receiver.on_data(now, id);
        }
        receiver.on_time(now);
        receiver
            .acks
            .drain(..)
            .for_each(|ack| path.send_ack(now, ack));
        for ack in path.poll_acks(now) {
            sender.on_ack(&ack);
        }
    }
    Outcome {
        goodput_bps: sender.arrived as f64 * f64::from(MSS) * 8.0 / now.as_secs_f64(),
        timeouts: sender.timeouts,
    }
}

/// Transmissions that one ACK reports.
type Ack = RangeInclusive<u64>;

struct Path {
    forth: Line,
    back: Line,
    /// ACKs in flight; the line keeps their order.
    acks: VecDeque<Ack>,
}

impl Path {
    fn new(rtt: Time, loss: &str) -> Self {
        let line = |loss: &str| {
            let mut shape = LinkConfig::default();
            let half = Time::from_nanos(rtt.as_nanos() / 2);
            shape.apply(Setting::Delay(half));
            shape.apply(Setting::Loss(loss.parse().unwrap()));
            Line::new(shape, Schedule::default(), rtt.as_nanos(), Time::ZERO)
        };
        Self {
            forth: line(loss),
            back: line("none"),
            acks: VecDeque::new(),
        }
    }

    fn send_data(&mut self, now: Time, id: u64) {
        offer(&mut self.forth, now, id, MSS + HEADERS);
    }

    fn send_ack(&mut self, now: Time, ack: Ack) {
        offer(&mut self.back, now, *ack.end(), HEADERS);
        self.acks.push_back(ack);
    }

    fn next_deadline(&mut self) -> Option<Time> {
        self.forth
            .next_deadline()
            .into_iter()
            .chain(self.back.next_deadline())
            .min()
    }

    fn poll_data(&mut self, now: Time) -> Vec<u64> {
        delivered(&mut self.forth, now)
    }

    fn poll_acks(&mut self, now: Time) -> Vec<Ack> {
        let count = delivered(&mut self.back, now).len();
        self.acks.drain(..count).collect()
    }
}

/// Sends a segment. Nothing can come out meanwhile, because everything due was polled before.
fn offer(line: &mut Line, now: Time, packet: u64, len: u32) {
    let segment = Segment {
        packet,
        index: 0,
        last: true,
        len,
    };
    line.offer(now, segment, None, &mut |_| ());
}

fn delivered(line: &mut Line, now: Time) -> Vec<u64> {
    let mut out = Vec::new();
    line.poll(now, &mut |event| {
        if let Event::Deliver(delivered) = event {
            out.push(delivered.segment.packet);
        }
    });
    out
}

struct Receiver {
    policy: AckPolicy,
    last: Option<u64>,
    /// Segment that arrived but is not acknowledged, and the deadline of its ACK.
    unacked: Option<(u64, Time)>,
    acks: Vec<Ack>,
}

impl Receiver {
    fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            last: None,
            unacked: None,
            acks: Vec::new(),
        }
    }

    fn on_data(&mut self, now: Time, id: u64) {
        let in_order = self.last.map_or(0, |last| last + 1) == id;
        self.last = Some(id);
        match self.unacked.take() {
            Some((first, _)) if in_order => self.acks.push(first..=id),
            None if in_order && self.policy == AckPolicy::Delayed => {
                self.unacked = Some((id, now + DELAYED_ACK));
            }
            unacked => {
                self.acks.extend(unacked.map(|(first, _)| first..=first));
                self.acks.push(id..=id);
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.unacked.map(|(_, until)| until)
    }

    fn on_time(&mut self, now: Time) {
        if let Some((id, _)) = self.unacked.take_if(|(_, until)| *until <= now) {
            self.acks.push(id..=id);
        }
    }
}

struct Sender {
    window: f64,
    /// Next transmission.
    next: u64,
    /// First transmission that no ACK has reported or passed.
    unreported: u64,
    /// Transmissions that ACKs passed over, with the number of later ones that arrived.
    gaps: Vec<(u64, u32)>,
    /// First transmission after the start of recovery. Its acknowledgement, or a later one's, ends recovery.
    recover: Option<u64>,
    arrived: u64,
    timeouts: u32,
}

impl Sender {
    fn new(window: f64) -> Self {
        Self {
            window,
            next: 0,
            unreported: 0,
            gaps: Vec::new(),
            recover: None,
            arrived: 0,
            timeouts: 0,
        }
    }

    fn may_send(&self) -> bool {
        let in_flight = self.next - self.unreported + self.gaps.len() as u64;
        in_flight < self.window as u64
    }

    fn send(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.gaps
            .extend((self.unreported..*ack.start()).map(|id| (id, 0)));
        self.unreported = ack.end() + 1;
        let count = ack.end() - ack.start() + 1;
        self.arrived += count;
        self.recover.take_if(|start| *ack.end() >= *start);
        if self.recover.is_none() {
            // RFC 5681 §3.1, equation 3: 1/cwnd an ACK, whatever it covers.
            self.window += 1.0 / self.window;
        }
        self.find_losses(count as u32);
    }

    fn find_losses(&mut self, arrived: u32) {
        self.gaps
            .iter_mut()
            .for_each(|(_, later)| *later += arrived);
        let next = self.next;
        let lost = self.gaps.extract_if(.., |(_, later)| *later >= DUP_THRESH);
        // A transmission from before the last halving is part of the same event.
        if lost
            .max()
            .is_some_and(|(id, _)| self.recover.is_none_or(|start| id >= start))
        {
            self.window = (self.window / 2.0).max(2.0);
            self.recover = Some(next);
        }
    }

    /// Counts everything in flight as lost.
    fn on_timeout(&mut self) {
        self.unreported = self.next;
        self.gaps.clear();
        self.recover = None;
        self.window = 2.0;
        self.timeouts += 1;
    }
}
