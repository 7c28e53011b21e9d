// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver of a connection: takes data packets, and schedules ACKs and loss reports (draft-gg-udt-03 §6.1,
//! receiver).

use crate::{
    congestion::SYN_INTERVAL,
    halves::{
        estimators::{ArrivalRate, CapacityEstimator, RttEstimator},
        gaps::{Gaps, RttBounds},
        loss_list::LossList,
        receive_buffer::{InsertOutcome, ReceiveBuffer},
    },
    packet::{Ack, Data, Rates, number::Seq},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Packets per light ACK of four bytes, sent between two full ACKs (§4.2).
const LIGHT_ACK_PACKETS: u32 = 64;
/// Maximum number of ACKs that are remembered until their ACK2 comes.
const ACK_HISTORY_MAX: usize = 64;
/// Maximum length of a run in a loss report, in bytes.
const RUN_LEN_MAX: usize = 8;
/// Maximum number of runs in the queue of reports. Further runs wait for the periodic report.
const UNREPORTED_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) buffer: ReceiveBuffer,
    payload_max: usize,
    lost: LossList,
    gaps: Gaps,
    /// Runs of missing packets to report now.
    unreported: VecDeque<(Seq, Seq)>,
    /// Sequence number after the highest received one, and its value at the last periodic report.
    next_expected: Seq,
    reported_up_to: Seq,
    next_report_at: Time,
    arrival_rate: ArrivalRate,
    capacity: CapacityEstimator,
    rtt: RttEstimator,
    rtt_min: Option<Time>,
    acks: AckHistory,
    /// Packets since the last full or light ACK.
    packets_since_ack: u32,
}

/// History of the full ACKs that were sent.
#[derive(Debug)]
struct AckHistory {
    number: u32,
    sent: VecDeque<(u32, Seq, Time)>,
    /// Sequence number of the last full ACK, the time it was sent, and the highest number that an ACK2 confirmed.
    last_acked: Seq,
    last_sent_at: Time,
    confirmed: Seq,
    /// Earliest time of the next full ACK.
    next_at: Time,
    /// Whether an ACK is sent without need, because its confirmation shows that the peer is there.
    is_requested: bool,
    /// Free receive buffer that the last full ACK announced, in packets.
    advertised_packets: u32,
    /// Packets behind a missing one that the last full ACK counted.
    out_of_order: u32,
}

/// ACK to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutgoingAck {
    Full(Ack),
    Light(Seq),
}

impl Receiver {
    pub(crate) fn new(first: Seq, buffer: ReceiveBuffer, payload_max: usize, now: Time) -> Self {
        Self {
            payload_max,
            lost: LossList::new(first, buffer.free_packets()),
            buffer,
            gaps: Gaps::new(first),
            unreported: VecDeque::new(),
            next_expected: first,
            reported_up_to: first,
            next_report_at: now,
            arrival_rate: ArrivalRate::new(),
            capacity: CapacityEstimator::new(),
            rtt: RttEstimator::INITIAL,
            rtt_min: None,
            acks: AckHistory {
                number: 0,
                sent: VecDeque::with_capacity(ACK_HISTORY_MAX),
                last_acked: first,
                last_sent_at: now,
                confirmed: first,
                next_at: now,
                is_requested: false,
                advertised_packets: u32::MAX,
                out_of_order: 0,
            },
            packets_since_ack: 0,
        }
    }

    /// Handles a data packet that was sent at `sent_us` by the sender's clock. Returns whether it was new.
    pub(crate) fn on_data(&mut self, data: &Data<'_>, sent_us: u32, now: Time) -> bool {
        let Data { seq, payload, .. } = *data;
        if payload.len() > self.payload_max {
            return false;
        }
        let outcome = self.buffer.insert(seq, payload);
        if outcome == InsertOutcome::OutOfWindow {
            return false;
        }
        self.arrival_rate.on_packet(now);
        self.capacity.on_packet(seq, sent_us, now);
        self.packets_since_ack += 1;
        if outcome == InsertOutcome::New {
            self.track_sequence(seq, sent_us, now);
        }
        self.lost.advance(self.buffer.next());
        self.gaps.advance(self.buffer.next());
        outcome == InsertOutcome::New
    }

    fn track_sequence(&mut self, seq: Seq, sent_us: u32, now: Time) {
        if seq.is_before(self.next_expected) {
            self.lost.remove(seq, seq);
            self.gaps.on_missing(seq, sent_us, now);
            return;
        }
        if seq != self.next_expected {
            self.add_gap((self.next_expected, seq.minus(1)), sent_us, now);
        }
        self.gaps.on_advance();
        self.next_expected = seq.plus(1);
    }

    fn add_gap(&mut self, run: (Seq, Seq), sent_us: u32, now: Time) {
        if self.lost.is_empty() {
            self.next_report_at = now + self.report_interval();
            self.reported_up_to = self.next_expected;
        }
        self.lost.insert(run.0, run.1);
        self.gaps.add(run, sent_us, now);
    }

    /// Handles the confirmation of an ACK.
    pub(crate) fn on_ack2(&mut self, number: u32, now: Time) {
        let acks = &mut self.acks;
        let Some(index) = acks.sent.iter().position(|(sent, ..)| *sent == number) else {
            return;
        };
        let (_, next, sent_at) = acks.sent[index];
        acks.sent.drain(..=index);
        if acks.confirmed.is_before(next) {
            acks.confirmed = next;
        }
        let sample = now.since(sent_at);
        self.rtt.add_sample(sample);
        self.rtt_min = Some(self.rtt_min.map_or(sample, |least| least.min(sample)));
    }

    /// Sends an ACK soon, which the peer confirms.
    pub(crate) fn request_ack2(&mut self) {
        self.acks.is_requested = true;
    }

    /// Returns the next ACK if one is due.
    pub(crate) fn next_ack(&mut self, now: Time) -> Option<OutgoingAck> {
        let next = self.buffer.next();
        if now < self.acks.next_at {
            let is_light_due =
                self.packets_since_ack >= LIGHT_ACK_PACKETS && self.acks.last_acked.is_before(next);
            return is_light_due.then(|| {
                self.packets_since_ack = 0;
                OutgoingAck::Light(next)
            });
        }
        if !self.is_ack_due(now) {
            return None;
        }
        self.packets_since_ack = 0;
        let out_of_order = self.out_of_order_packets();
        let acks = &mut self.acks;
        (acks.is_requested, acks.out_of_order) = (false, out_of_order);
        acks.number = (acks.number + 1) & 0x7fff_ffff;
        (acks.last_acked, acks.last_sent_at, acks.next_at) = (next, now, now + SYN_INTERVAL);
        if acks.sent.len() == ACK_HISTORY_MAX {
            acks.sent.pop_front();
        }
        acks.sent.push_back((acks.number, next, now));
        acks.advertised_packets = self.buffer.free_packets();
        Some(OutgoingAck::Full(Ack {
            number: acks.number,
            next,
            rtt_us: micros(self.rtt.smoothed),
            rtt_var_us: micros(self.rtt.variation),
            // A UDT4 sender that was told of a full buffer would never learn that there is space again.
            available_buffer: acks.advertised_packets.max(2),
            rates: Some(Rates {
                arrival_rate: self.arrival_rate.rate().unwrap_or(0.0) as u32,
                capacity: self.capacity.rate() as u32,
            }),
            out_of_order: Some(out_of_order),
        }))
    }

    /// Returns the number of packets that arrived after the first missing one.
    fn out_of_order_packets(&self) -> u32 {
        let behind = self.next_expected.since(self.buffer.next()) as u32;
        behind.saturating_sub(self.lost.len())
    }

    /// Whether a full ACK is due: it acknowledges new packets, updates the window, or repeats an ACK that was not
    /// confirmed in time.
    fn is_ack_due(&self, now: Time) -> bool {
        let (next, acks) = (self.buffer.next(), &self.acks);
        acks.last_acked.is_before(next)
            || self.has_news()
            || (acks.confirmed != next && now >= acks.last_sent_at + self.rtt.upper_bound())
    }

    /// Whether an ACK says more than which packets arrived in order.
    fn has_news(&self) -> bool {
        self.has_window_update()
            || self.acks.is_requested
            || self.acks.out_of_order != self.out_of_order_packets()
    }

    /// Whether the sender knows of little free buffer while there is much. (UDT4 waits until the sender tries.)
    fn has_window_update(&self) -> bool {
        let capacity = self.buffer.capacity();
        self.acks.advertised_packets < capacity / 4 && self.buffer.free_packets() >= capacity / 2
    }

    /// Returns the runs to report now, as many as fit into a packet.
    pub(crate) fn next_loss_report(&mut self, now: Time) -> Option<Vec<(Seq, Seq)>> {
        self.queue_gaps(now);
        if self.unreported.is_empty() {
            self.repeat_report(now);
        }
        let fit = (self.payload_max / RUN_LEN_MAX).min(self.unreported.len());
        (fit > 0).then(|| self.unreported.drain(..fit).collect())
    }

    /// Queues what is still missing of the gaps that waited long enough.
    fn queue_gaps(&mut self, now: Time) {
        let rtt = self.rtt_bounds();
        while let Some((first, last)) = self.gaps.take_due(rtt, self.next_expected, now) {
            let missing = self.lost.runs(first);
            let missing = missing.take_while(|(run, _)| !last.is_before(*run));
            let space = UNREPORTED_MAX.saturating_sub(self.unreported.len());
            self.unreported.extend(missing.take(space));
        }
    }

    /// Queues the runs that were already missing at the last periodic report.
    fn repeat_report(&mut self, now: Time) {
        if self.lost.is_empty() || now < self.next_report_at {
            return;
        }
        self.next_report_at = now + self.report_interval();
        let before = std::mem::replace(&mut self.reported_up_to, self.next_expected);
        let old = self.lost.runs(self.buffer.next());
        let old = old.take_while(|(first, _)| first.is_before(before));
        self.unreported.extend(old.take(UNREPORTED_MAX));
    }

    /// Returns the interval of the periodic report: a gap is reported and a retransmission arrives within it, or was
    /// lost again.
    fn report_interval(&self) -> Time {
        self.rtt.upper_bound() + SYN_INTERVAL + self.gaps.report_delay(self.rtt_bounds())
    }

    fn rtt_bounds(&self) -> RttBounds {
        RttBounds {
            min: self.rtt_min.unwrap_or(self.rtt.smoothed),
            upper: self.rtt.upper_bound(),
        }
    }

    /// Returns the time of the next ACK or loss report.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if !self.unreported.is_empty() {
            return Some(Time::ZERO);
        }
        let (next, acks) = (self.buffer.next(), &self.acks);
        let ack = match (acks.last_acked.is_before(next), acks.confirmed != next) {
            (true, _) if self.packets_since_ack >= LIGHT_ACK_PACKETS => Some(Time::ZERO),
            (true, _) => Some(acks.next_at),
            _ if self.has_news() => Some(acks.next_at),
            (false, true) => Some(acks.next_at.max(acks.last_sent_at + self.rtt.upper_bound())),
            (false, false) => None,
        };
        let report = (!self.lost.is_empty()).then_some(self.next_report_at);
        let gap = self.gaps.deadline(self.rtt_bounds());
        ack.into_iter().chain(report).chain(gap).min()
    }

    pub(crate) fn rtt(&self) -> RttEstimator {
        self.rtt
    }
}

fn micros(time: Time) -> u32 {
    u32::try_from(time.as_nanos() / 1000).unwrap_or(u32::MAX)
}
