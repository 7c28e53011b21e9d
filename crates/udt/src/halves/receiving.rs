// SPDX-License-Identifier: MIT OR Apache-2.0
//! The half of a connection that receives data: what it says of what came, and when
//! (draft-gg-udt-03 §6.1, receiver).

use crate::{
    congestion::SYN,
    halves::{
        estimate::{ArrivalRate, Capacity, RoundTrip},
        loss::LossList,
        receive_buffer::{ReceiveBuffer, Taken},
    },
    packet::{Ack, Data, Rates, number::Seq},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Between two full ACKs an ACK of four bytes goes every so many packets (§4.2).
const LIGHT_EVERY: u32 = 64;
/// ACKs whose ACK2 may come.
const ACKS: usize = 64;
/// Bytes of a run in a report, at most.
const RUN_BYTES: usize = 8;
/// Runs of missing packets that wait to be reported at once; beyond that they wait for the next repetition.
const FRESH_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) buffer: ReceiveBuffer,
    payload_max: usize,
    lost: LossList,
    /// Found missing a moment ago, or again.
    fresh: VecDeque<(Seq, Seq)>,
    /// The one behind the last that has come, and where it was when losses were last reported again.
    end: Seq,
    reported: Seq,
    report_at: Time,
    arrival: ArrivalRate,
    capacity: Capacity,
    rtt: RoundTrip,
    acks: Acks,
    /// Packets since the last ACK of either kind.
    since_ack: u32,
}

/// ACKs that were sent.
#[derive(Debug)]
struct Acks {
    number: u32,
    sent: VecDeque<(u32, Seq, Time)>,
    /// What the last one said, and when, and what the last one said whose ACK2 came.
    last: Seq,
    at: Time,
    confirmed: Seq,
    /// When there may be another.
    next_at: Time,
    /// How much room it said there was.
    room: u32,
}

/// An ACK to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acking {
    Full(Ack),
    Light(Seq),
}

impl Receiver {
    pub(crate) fn new(first: Seq, buffer: ReceiveBuffer, payload_max: usize, now: Time) -> Self {
        Self {
            payload_max,
            lost: LossList::new(first, buffer.room()),
            buffer,
            fresh: VecDeque::new(),
            end: first,
            reported: first,
            report_at: now,
            arrival: ArrivalRate::new(),
            capacity: Capacity::new(),
            rtt: RoundTrip::FIRST,
            acks: Acks {
                number: 0,
                sent: VecDeque::with_capacity(ACKS),
                last: first,
                at: now,
                confirmed: first,
                next_at: now,
                room: u32::MAX,
            },
            since_ack: 0,
        }
    }

    /// A packet came, sent at `sent_us` as its sender counts; whether it was new.
    pub(crate) fn on_data(&mut self, data: &Data<'_>, sent_us: u32, now: Time) -> bool {
        let Data { seq, payload, .. } = *data;
        if payload.len() > self.payload_max {
            return false;
        }
        let taken = self.buffer.take(seq, payload);
        if taken == Taken::Beyond {
            return false;
        }
        self.arrival.arrived(now);
        self.capacity.arrived(seq, sent_us, now);
        self.since_ack += 1;
        if taken == Taken::New {
            self.count_in(seq, now);
        }
        self.lost.advance(self.buffer.next());
        taken == Taken::New
    }

    fn count_in(&mut self, seq: Seq, now: Time) {
        if seq.is_before(self.end) {
            self.lost.remove(seq, seq);
            return;
        }
        if seq != self.end {
            let run = (self.end, seq.minus(1));
            if self.lost.is_empty() {
                self.report_at = now + self.report_interval();
                self.reported = self.end;
            }
            self.lost.insert(run.0, run.1);
            if self.fresh.len() < FRESH_MAX {
                self.fresh.push_back(run);
            }
        }
        self.end = seq.plus(1);
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
        self.rtt.measured(now.since(sent_at));
    }

    /// An ACK, if it is time for one.
    pub(crate) fn ack(&mut self, now: Time) -> Option<Acking> {
        let next = self.buffer.next();
        if now < self.acks.next_at {
            let light = self.since_ack >= LIGHT_EVERY && self.acks.last.is_before(next);
            return light.then(|| {
                self.since_ack = 0;
                Acking::Light(next)
            });
        }
        if !self.wants_ack(now) {
            return None;
        }
        self.since_ack = 0;
        let acks = &mut self.acks;
        acks.number = (acks.number + 1) & 0x7fff_ffff;
        (acks.last, acks.at, acks.next_at) = (next, now, now + SYN);
        if acks.sent.len() == ACKS {
            acks.sent.pop_front();
        }
        acks.sent.push_back((acks.number, next, now));
        acks.room = self.buffer.room();
        Some(Acking::Full(Ack {
            number: acks.number,
            next,
            rtt_us: micros(self.rtt.mean),
            rtt_var_us: micros(self.rtt.variation),
            // Of none at all a sender of UDT4 would never hear that there is some again.
            room: acks.room.max(2),
            rates: Some(Rates {
                arrival: self.arrival.get().unwrap_or(0.0) as u32,
                capacity: self.capacity.get() as u32,
            }),
        }))
    }

    /// Whether there is something new to say, or something that was said a while ago and not confirmed.
    fn wants_ack(&self, now: Time) -> bool {
        let (next, acks) = (self.buffer.next(), &self.acks);
        acks.last.is_before(next)
            || self.has_room_again()
            || (acks.confirmed != next && now >= acks.at + self.rtt.long())
    }

    /// Whether the sender thinks that there is little, and there is much. (UDT4 waits until the sender tries.)
    fn has_room_again(&self) -> bool {
        let all = self.buffer.capacity();
        self.acks.room < all / 4 && self.buffer.room() >= all / 2
    }

    /// Runs that are missing and shall be reported now, as many as a packet holds.
    pub(crate) fn losses(&mut self, now: Time) -> Option<Vec<(Seq, Seq)>> {
        if self.fresh.is_empty() {
            self.report_again(now);
        }
        let fit = (self.payload_max / RUN_BYTES).min(self.fresh.len());
        (fit > 0).then(|| self.fresh.drain(..fit).collect())
    }

    /// What has been missing for long is as if it were found a moment ago.
    fn report_again(&mut self, now: Time) {
        if self.lost.is_empty() || now < self.report_at {
            return;
        }
        self.report_at = now + self.report_interval();
        let before = std::mem::replace(&mut self.reported, self.end);
        let old = self.lost.runs(self.buffer.next());
        let old = old.take_while(|(first, _)| first.is_before(before));
        self.fresh.extend(old.take(FRESH_MAX));
    }

    /// What was reported is there by then, or is lost again.
    fn report_interval(&self) -> Time {
        self.rtt.long() + SYN
    }

    /// When there is something to say, at the latest.
    pub(crate) fn due(&self) -> Option<Time> {
        if !self.fresh.is_empty() {
            return Some(Time::ZERO);
        }
        let (next, acks) = (self.buffer.next(), &self.acks);
        let ack = match (acks.last.is_before(next), acks.confirmed != next) {
            (true, _) if self.since_ack >= LIGHT_EVERY => Some(Time::ZERO),
            (true, _) => Some(acks.next_at),
            _ if self.has_room_again() => Some(acks.next_at),
            (false, true) => Some(acks.next_at.max(acks.at + self.rtt.long())),
            (false, false) => None,
        };
        let report = (!self.lost.is_empty()).then_some(self.report_at);
        ack.into_iter().chain(report).min()
    }

    pub(crate) fn rtt(&self) -> RoundTrip {
        self.rtt
    }
}

fn micros(time: Time) -> u32 {
    u32::try_from(time.as_nanos() / 1000).unwrap_or(u32::MAX)
}
