// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a shared path: trains where the settings allow, else segment by segment.

use crate::receiver::Ack;
use longhaul_netem::{
    Acking, Delivered, Departure, Drop, Event, Fate, Line, Schedule, Segment, Shape, Train,
    TrainLine, ack::PureAck,
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Packets lost on the way, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// By the loss process.
    pub loss: u64,
    /// By a full queue.
    pub overflow: u64,
    /// By a queue rule.
    pub rule: u64,
}

impl Drops {
    fn note(&mut self, cause: Drop, count: u32) {
        let counter = match cause {
            Drop::Loss => &mut self.loss,
            Drop::Overflow => &mut self.overflow,
            Drop::QueueRule | Drop::AckRule => &mut self.rule,
        };
        *counter += u64::from(count);
    }
}

/// From senders to receivers.
#[derive(Debug)]
pub(crate) struct Forth {
    wire: Wire,
    pub(crate) drops: Drops,
}

#[derive(Debug)]
enum Wire {
    Trains(Box<TrainLine>),
    Segments(Box<Line>),
}

/// A packet is named by its flow and its number: 2⁴⁰ packets are 1.5 PB.
const NUMBER_BITS: u32 = 40;

impl Forth {
    /// Trains, unless the shape or the schedule needs segments or `exact` asks for them.
    pub(crate) fn new(shape: Shape, schedule: Schedule, seed: u64, exact: bool) -> Self {
        let plain = schedule.iter().next().is_none() && !exact;
        let trains = match plain {
            true => TrainLine::new(shape.clone(), seed).ok(),
            false => None,
        };
        Self {
            wire: match trains {
                Some(line) => Wire::Trains(Box::new(line)),
                None => Wire::Segments(Box::new(Line::new(shape, schedule, seed, Time::ZERO))),
            },
            drops: Drops::default(),
        }
    }

    pub(crate) fn by_trains(&self) -> bool {
        matches!(self.wire, Wire::Trains(_))
    }

    /// Sends packets of `len` bytes from number `seq` of `flow` on. With trains, `arrive` is told
    /// now of what comes later; else [`poll`](Self::poll) tells when it has come.
    pub(crate) fn send(
        &mut self,
        now: Time,
        flow: usize,
        seq: u64,
        train: Train,
        mut arrive: impl FnMut(u64, &Departure),
    ) {
        let drops = &mut self.drops;
        match &mut self.wire {
            Wire::Trains(line) => line.offer(now, train, |fate| match fate {
                Fate::Out(out) => arrive(seq + u64::from(out.first), &out),
                Fate::Lost { count, cause, .. } => drops.note(cause, count),
            }),
            Wire::Segments(line) => {
                for number in seq..seq + u64::from(train.count) {
                    let packet = (flow as u64) << NUMBER_BITS | number;
                    line.offer(now, segment(packet, train.len), None, &mut |event| {
                        note_drop(drops, event);
                    });
                }
            }
        }
    }

    pub(crate) fn next_deadline(&mut self) -> Time {
        match &mut self.wire {
            Wire::Trains(_) => Time::MAX,
            Wire::Segments(line) => line.next_deadline().unwrap_or(Time::MAX),
        }
    }

    /// Calls `arrive` with flow and number of each packet that has come by `now`.
    pub(crate) fn poll(&mut self, now: Time, mut arrive: impl FnMut(usize, u64, &Departure)) {
        let Wire::Segments(line) = &mut self.wire else {
            return;
        };
        let drops = &mut self.drops;
        line.poll(now, &mut |event| match intact(event) {
            Some(out) => {
                let (flow, number) = (
                    out.segment.packet >> NUMBER_BITS,
                    out.segment.packet & ((1 << NUMBER_BITS) - 1),
                );
                arrive(flow as usize, number, &Departure::single(out.at));
            }
            None => note_drop(drops, event),
        });
    }

    pub(crate) fn backlog_bytes(&mut self, now: Time) -> u64 {
        match &mut self.wire {
            Wire::Trains(line) => line.backlog_bytes(now),
            Wire::Segments(line) => line.backlog_bytes(),
        }
    }
}

/// From receivers to senders.
#[derive(Debug)]
pub(crate) enum Back {
    /// Nothing but time passes.
    Delay(Time),
    /// One by one.
    Segments(Box<AckLine>),
}

#[derive(Debug)]
pub(crate) struct AckLine {
    line: Line,
    /// ACKs on their way, by number from `first` on; `None` is out already.
    under_way: VecDeque<Option<(usize, Ack)>>,
    first: u64,
}

/// Bytes of an ACK without and with SACK blocks: IPv4, TCP, time stamps.
const ACK_LEN: u32 = 52;
const SACK_LEN: u32 = 80;

impl Back {
    pub(crate) fn new(shape: Shape, schedule: Schedule, seed: u64) -> Self {
        let delay = shape.delay;
        let plain = schedule.iter().next().is_none() && is_delay_only(&shape);
        match plain {
            true => Self::Delay(delay),
            false => Self::Segments(Box::new(AckLine {
                line: Line::new(shape, schedule, seed, Time::ZERO),
                under_way: VecDeque::new(),
                first: 0,
            })),
        }
    }

    pub(crate) fn next_deadline(&mut self) -> Time {
        match self {
            Self::Delay(_) => Time::MAX,
            Self::Segments(acks) => acks.line.next_deadline().unwrap_or(Time::MAX),
        }
    }
}

impl AckLine {
    /// Sends an ACK, which its receiver of `mss` bytes a packet sends now.
    pub(crate) fn send(&mut self, flow: usize, mss: u32, ack: Ack) {
        let number = self.first + self.under_way.len() as u64;
        self.under_way.push_back(Some((flow, ack)));
        let sack = ack.blocks[0].count > 0;
        let acking = match sack {
            true => Acking::Other { flow: flow as u64 },
            false => Acking::Pure(PureAck {
                flow: flow as u64,
                ack: (ack.una.wrapping_mul(u64::from(mss))) as u32,
                window: u16::MAX,
            }),
        };
        let packet = segment(number, if sack { SACK_LEN } else { ACK_LEN });
        let (under_way, first) = (&mut self.under_way, self.first);
        self.line.offer(ack.at, packet, Some(acking), &mut |event| {
            if let Event::Drop { segment, .. } = event {
                under_way[(segment.packet - first) as usize] = None;
            }
        });
    }

    /// Calls `arrive` for each ACK that has come by `now`.
    pub(crate) fn poll(&mut self, now: Time, mut arrive: impl FnMut(usize, Ack)) {
        let (under_way, first) = (&mut self.under_way, self.first);
        self.line.poll(now, &mut |event| match event {
            Event::Deliver(out) => {
                let taken = under_way[(out.segment.packet - first) as usize].take();
                if let (Some((flow, ack)), None) = (taken, out.corrupt) {
                    arrive(flow, Ack { at: out.at, ..ack });
                }
            }
            Event::Drop { segment, .. } => under_way[(segment.packet - first) as usize] = None,
            Event::Copy(_) | Event::Judged(_) => {}
        });
        while self.under_way.front().is_some_and(Option::is_none) {
            self.under_way.pop_front();
            self.first += 1;
        }
    }
}

fn is_delay_only(shape: &Shape) -> bool {
    let still = Shape {
        delay: Time::ZERO,
        ..shape.clone()
    };
    still.rate.mean().is_none()
        && still.loss.mean() == 0.0
        && TrainLine::new(still.clone(), 0).is_ok()
        && still.loss == longhaul_netem::loss::Loss::None
}

fn segment(packet: u64, len: u32) -> Segment {
    Segment {
        packet,
        index: 0,
        last: true,
        len,
    }
}

/// A damaged packet fails its checksum.
fn intact(event: Event) -> Option<Delivered> {
    match event {
        Event::Deliver(out) if out.corrupt.is_none() => Some(out),
        _ => None,
    }
}

fn note_drop(drops: &mut Drops, event: Event) {
    match event {
        Event::Drop { cause, .. } => drops.note(cause, 1),
        Event::Deliver(_) => drops.note(Drop::Loss, 1),
        Event::Copy(_) | Event::Judged(_) => {}
    }
}
