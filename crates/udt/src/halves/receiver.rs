// SPDX-License-Identifier: MIT OR Apache-2.0
//! The half of a connection that receives data: what it says of what came, and when
//! (draft-gg-udt-03 §6.1, receiver).

use crate::{
    congestion::SYN,
    halves::{
        estimators::{ArrivalRate, CapacityEstimator, RttEstimator},
        loss_list::LossList,
        receive_buffer::{InsertOutcome, ReceiveBuffer},
    },
    packet::{Ack, Data, Rates, number::Seq},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Between two full ACKs an ACK of four bytes goes every so many packets (§4.2).
const LIGHT_ACK_PACKETS: u32 = 64;
/// ACKs whose ACK2 may come.
const ACK_HISTORY_MAX: usize = 64;
/// Bytes of a run in a report, at most.
const RUN_LEN_MAX: usize = 8;
/// Runs of missing packets that wait to be reported at once; beyond that they wait for the next repetition.
const UNREPORTED_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) buffer: ReceiveBuffer,
    payload_max: usize,
    lost: LossList,
    /// Found missing a moment ago, or again.
    unreported: VecDeque<(Seq, Seq)>,
    /// The one behind the last that has come, and where it was when losses were last reported again.
    next_expected: Seq,
    reported_up_to: Seq,
    next_report_at: Time,
    arrival_rate: ArrivalRate,
    capacity: CapacityEstimator,
    rtt: RttEstimator,
    acks: AckHistory,
    /// Packets since the last ACK of either kind.
    packets_since_ack: u32,
}

/// ACKs that were sent.
#[derive(Debug)]
struct AckHistory {
    number: u32,
    sent: VecDeque<(u32, Seq, Time)>,
    /// What the last one said, and when, and what the last one said whose ACK2 came.
    last_acked: Seq,
    last_sent_at: Time,
    confirmed: Seq,
    /// When there may be another.
    next_at: Time,
    /// How much room it said there was.
    advertised_packets: u32,
}

/// An ACK to send.
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
            unreported: VecDeque::new(),
            next_expected: first,
            reported_up_to: first,
            next_report_at: now,
            arrival_rate: ArrivalRate::new(),
            capacity: CapacityEstimator::new(),
            rtt: RttEstimator::INITIAL,
            acks: AckHistory {
                number: 0,
                sent: VecDeque::with_capacity(ACK_HISTORY_MAX),
                last_acked: first,
                last_sent_at: now,
                confirmed: first,
                next_at: now,
                advertised_packets: u32::MAX,
            },
            packets_since_ack: 0,
        }
    }

    /// A packet came, sent at `sent_us` as its sender counts; whether it was new.
    pub(crate) fn on_data(&mut self, data: &Data<'_>, sent_us: u32, now: Time) -> bool {
        let Data { seq, payload, .. } = *data;
        if payload.len() > self.payload_max {
            return false;
        }
        let taken = self.buffer.insert(seq, payload);
        if taken == InsertOutcome::OutOfWindow {
            return false;
        }
        self.arrival_rate.on_packet(now);
        self.capacity.on_packet(seq, sent_us, now);
        self.packets_since_ack += 1;
        if taken == InsertOutcome::New {
            self.track_sequence(seq, now);
        }
        self.lost.advance(self.buffer.next());
        taken == InsertOutcome::New
    }

    fn track_sequence(&mut self, seq: Seq, now: Time) {
        if seq.is_before(self.next_expected) {
            self.lost.remove(seq, seq);
            return;
        }
        if seq != self.next_expected {
            let run = (self.next_expected, seq.minus(1));
            if self.lost.is_empty() {
                self.next_report_at = now + self.report_interval();
                self.reported_up_to = self.next_expected;
            }
            self.lost.insert(run.0, run.1);
            if self.unreported.len() < UNREPORTED_MAX {
                self.unreported.push_back(run);
            }
        }
        self.next_expected = seq.plus(1);
    }

    /// An ACK of ours has come.
    pub(crate) fn on_ack2(&mut self, number: u32, now: Time) {
        let acks = &mut self.acks;
        let Some(at) = acks.sent.iter().position(|(sent, ..)| *sent == number) else {
            return;
        };
        let (_, next, sent_at) = acks.sent[at];
        acks.sent.drain(..=at);
        if acks.confirmed.is_before(next) {
            acks.confirmed = next;
        }
        self.rtt.add_sample(now.since(sent_at));
    }

    /// An ACK, if it is time for one.
    pub(crate) fn next_ack(&mut self, now: Time) -> Option<OutgoingAck> {
        let next = self.buffer.next();
        if now < self.acks.next_at {
            let light =
                self.packets_since_ack >= LIGHT_ACK_PACKETS && self.acks.last_acked.is_before(next);
            return light.then(|| {
                self.packets_since_ack = 0;
                OutgoingAck::Light(next)
            });
        }
        if !self.is_ack_due(now) {
            return None;
        }
        self.packets_since_ack = 0;
        let acks = &mut self.acks;
        acks.number = (acks.number + 1) & 0x7fff_ffff;
        (acks.last_acked, acks.last_sent_at, acks.next_at) = (next, now, now + SYN);
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
            // Of none at all a sender of UDT4 would never hear that there is some again.
            available_buffer: acks.advertised_packets.max(2),
            rates: Some(Rates {
                arrival_rate: self.arrival_rate.rate().unwrap_or(0.0) as u32,
                capacity: self.capacity.rate() as u32,
            }),
        }))
    }

    /// Whether there is something new to say, or something that was said a while ago and not confirmed.
    fn is_ack_due(&self, now: Time) -> bool {
        let (next, acks) = (self.buffer.next(), &self.acks);
        acks.last_acked.is_before(next)
            || self.has_window_update()
            || (acks.confirmed != next && now >= acks.last_sent_at + self.rtt.upper_bound())
    }

    /// Whether the sender thinks that there is little, and there is much. (UDT4 waits until the sender tries.)
    fn has_window_update(&self) -> bool {
        let all = self.buffer.capacity();
        self.acks.advertised_packets < all / 4 && self.buffer.free_packets() >= all / 2
    }

    /// Runs that are missing and shall be reported now, as many as a packet holds.
    pub(crate) fn next_loss_report(&mut self, now: Time) -> Option<Vec<(Seq, Seq)>> {
        if self.unreported.is_empty() {
            self.repeat_report(now);
        }
        let fit = (self.payload_max / RUN_LEN_MAX).min(self.unreported.len());
        (fit > 0).then(|| self.unreported.drain(..fit).collect())
    }

    /// What has been missing for long is as if it were found a moment ago.
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

    /// What was reported is there by then, or is lost again.
    fn report_interval(&self) -> Time {
        self.rtt.upper_bound() + SYN
    }

    /// When there is something to say, at the latest.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if !self.unreported.is_empty() {
            return Some(Time::ZERO);
        }
        let (next, acks) = (self.buffer.next(), &self.acks);
        let ack = match (acks.last_acked.is_before(next), acks.confirmed != next) {
            (true, _) if self.packets_since_ack >= LIGHT_ACK_PACKETS => Some(Time::ZERO),
            (true, _) => Some(acks.next_at),
            _ if self.has_window_update() => Some(acks.next_at),
            (false, true) => Some(acks.next_at.max(acks.last_sent_at + self.rtt.upper_bound())),
            (false, false) => None,
        };
        let report = (!self.lost.is_empty()).then_some(self.next_report_at);
        ack.into_iter().chain(report).min()
    }

    pub(crate) fn rtt(&self) -> RttEstimator {
        self.rtt
    }
}

fn micros(time: Time) -> u32 {
    u32::try_from(time.as_nanos() / 1000).unwrap_or(u32::MAX)
}
