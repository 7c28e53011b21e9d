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

    #[inline]
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
    under_way: UnderWay,
}

/// ACKs on their way, by number from `first` on.
#[derive(Debug, Default)]
struct UnderWay {
    acks: VecDeque<Carried>,
    first: u64,
}

#[derive(Debug)]
struct Carried {
    flow: usize,
    ack: Ack,
    /// How many of it are not out yet: the line may double it.
    copies: u32,
}

impl UnderWay {
    fn push(&mut self, flow: usize, ack: Ack) -> u64 {
        let copies = 1;
        self.acks.push_back(Carried { flow, ack, copies });
        self.first + self.acks.len() as u64 - 1
    }

    /// What comes out by this, if anything does.
    fn note(&mut self, event: Event) -> Option<(usize, Ack)> {
        let (Event::Copy(segment)
        | Event::Drop { segment, .. }
        | Event::Deliver(Delivered { segment, .. })) = event
        else {
            return None;
        };
        let carried = &mut self.acks[(segment.packet - self.first) as usize];
        if let Event::Copy(_) = event {
            carried.copies += 1;
            return None;
        }
        carried.copies -= 1;
        let out = intact(event)?;
        let at = out.at;
        Some((carried.flow, Ack { at, ..carried.ack }))
    }

    fn forget_old(&mut self) {
        while self.acks.front().is_some_and(|ack| ack.copies == 0) {
            self.acks.pop_front();
            self.first += 1;
        }
    }
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
            false => Self::Segments(Box::new(AckLine::new(shape, schedule, seed))),
        }
    }

    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Time {
        match self {
            Self::Delay(_) => Time::MAX,
            Self::Segments(acks) => acks.line.next_deadline().unwrap_or(Time::MAX),
        }
    }
}

impl AckLine {
    fn new(shape: Shape, schedule: Schedule, seed: u64) -> Self {
        Self {
            line: Line::new(shape, schedule, seed, Time::ZERO),
            under_way: UnderWay::default(),
        }
    }

    /// Sends an ACK, which its receiver of `mss` bytes a packet sends now.
    pub(crate) fn send(&mut self, flow: usize, mss: u32, ack: Ack) {
        let number = self.under_way.push(flow, ack);
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
        let under_way = &mut self.under_way;
        self.line.offer(ack.at, packet, Some(acking), &mut |event| {
            under_way.note(event);
        });
        under_way.forget_old();
    }

    /// Calls `arrive` for each ACK that has come by `now`.
    pub(crate) fn poll(&mut self, now: Time, mut arrive: impl FnMut(usize, Ack)) {
        let under_way = &mut self.under_way;
        self.line.poll(now, &mut |event| {
            if let Some((flow, ack)) = under_way.note(event) {
                arrive(flow, ack);
            }
        });
        under_way.forget_old();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::SackBlock;
    use longhaul_netem::Setting;
    use proptest::prelude::*;

    /// A line that loses, doubles, damages and overtakes, and may have a short queue.
    fn shape() -> impl Strategy<Value = Shape> {
        let share = || prop_oneof![Just(0_u32), 1_u32..60];
        let rate = prop_oneof![Just("unlimited"), Just("500kbit")];
        (share(), share(), share(), share(), 0_u32..30, rate).prop_map(
            |(loss, duplicate, corrupt, reorder, jitter, rate)| {
                let settings = [
                    ("delay", "40ms".to_owned()),
                    ("loss", format!("{loss}%")),
                    ("duplicate", format!("{duplicate}%")),
                    ("corrupt", format!("{corrupt}%")),
                    ("reorder", format!("{reorder}%:35ms")),
                    ("jitter", format!("uniform:{jitter}ms,reorder")),
                    ("rate", rate.to_owned()),
                    ("queue", "10p".to_owned()),
                ];
                let mut shape = Shape::default();
                for (key, value) in settings {
                    shape.apply(Setting::parse(key, &value).unwrap());
                }
                shape
            },
        )
    }

    fn ack(at: Time) -> Ack {
        Ack {
            at,
            una: 0,
            blocks: [SackBlock::default(); 3],
        }
    }

    type Out = Vec<(Time, usize)>;

    /// What comes out of both by `now`.
    fn poll(acks: &mut AckLine, line: &mut Line, now: Time) -> (Out, Out) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        while let Some(next) = line.next_deadline().filter(|next| *next <= now) {
            acks.poll(next, |flow, ack| out.push((ack.at, flow)));
            line.poll(next, &mut |event| {
                expected.extend(intact(event).map(|out| (out.at, out.segment.packet as usize)));
            });
        }
        (out, expected)
    }

    proptest! {
        #[test]
        fn each_copy_of_an_ack_comes_out_when_the_line_says(
            shape in shape(),
            gaps in prop::collection::vec(0_u64..20, 1..200),
            seed: u64,
        ) {
            let mut line = Line::new(shape.clone(), Schedule::default(), seed, Time::ZERO);
            let mut acks = AckLine::new(shape, Schedule::default(), seed);
            let mut now = Time::ZERO;
            for (number, gap) in gaps.into_iter().enumerate() {
                now += Time::from_millis(gap);
                let (out, expected) = poll(&mut acks, &mut line, now);
                prop_assert_eq!(out, expected);
                acks.send(number, 1448, ack(now));
                line.offer(now, segment(number as u64, ACK_LEN), None, &mut |_| {});
            }
            let (out, expected) = poll(&mut acks, &mut line, Time::MAX);
            prop_assert_eq!(out, expected);
            prop_assert!(acks.under_way.acks.is_empty());
        }
    }
}
