// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forward and reverse direction of a shared path: trains where the settings allow, else segment by segment.

use crate::receiver::Ack;
use longhaul_netem::{
    AckClass, Delivered, Departure, DropCause, Event, Line, LinkConfig, Schedule, Segment, Train,
    TrainLine, TrainVerdict, ack::PureAck,
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Packets lost on the forward path, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// Packets that the loss process dropped.
    pub loss: u64,
    /// Packets dropped at a full queue.
    pub overflow: u64,
    /// Packets that the AQM or ACK filtering dropped.
    pub aqm: u64,
}

impl Drops {
    fn add(&mut self, cause: DropCause, count: u32) {
        let counter = match cause {
            DropCause::Loss => &mut self.loss,
            DropCause::Overflow => &mut self.overflow,
            DropCause::Aqm | DropCause::AckFiltering => &mut self.aqm,
        };
        *counter += u64::from(count);
    }
}

/// Direction from senders to receivers.
#[derive(Debug)]
pub(crate) struct ForwardPath {
    line: ForwardLine,
    pub(crate) drops: Drops,
}

#[derive(Debug)]
enum ForwardLine {
    Trains(Box<TrainLine>),
    Segments(Box<Line>),
}

/// Bits of a packet's number in its identifier; the bits above are its flow's. 2⁴⁰ packets are 1.5 PB.
const NUMBER_BITS: u32 = 40;

impl ForwardPath {
    /// Creates a direction of trains, unless its settings or its schedule need segments, or `per_packet` asks for them.
    pub(crate) fn new(
        link_config: LinkConfig,
        schedule: Schedule,
        seed: u64,
        per_packet: bool,
    ) -> Self {
        let is_simple = schedule.iter().next().is_none() && !per_packet;
        let trains = if is_simple {
            TrainLine::new(link_config.clone(), seed).ok()
        } else {
            None
        };
        Self {
            line: match trains {
                Some(line) => ForwardLine::Trains(Box::new(line)),
                None => ForwardLine::Segments(Box::new(Line::new(
                    link_config,
                    schedule,
                    seed,
                    Time::ZERO,
                ))),
            },
            drops: Drops::default(),
        }
    }

    /// Sends the packets of `train`, from number `seq` of `flow` on. With trains `arrive` is called now for
    /// later arrivals. With segments [`poll`](Self::poll) reports arrivals when they are due.
    pub(crate) fn send(
        &mut self,
        now: Time,
        flow: usize,
        seq: u64,
        train: Train,
        mut arrive: impl FnMut(u64, &Departure),
    ) {
        let drops = &mut self.drops;
        match &mut self.line {
            ForwardLine::Trains(line) => line.offer(now, train, |verdict| match verdict {
                TrainVerdict::Out(out) => arrive(seq + u64::from(out.first), &out),
                TrainVerdict::Lost { count, cause, .. } => drops.add(cause, count),
            }),
            ForwardLine::Segments(line) => {
                for number in seq..seq + u64::from(train.count) {
                    let packet = (flow as u64) << NUMBER_BITS | number;
                    line.offer(now, segment(packet, train.len), None, &mut |event| {
                        count_drop(drops, event);
                    });
                }
            }
        }
    }

    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Time {
        match &mut self.line {
            ForwardLine::Trains(_) => Time::MAX,
            ForwardLine::Segments(line) => line.next_deadline().unwrap_or(Time::MAX),
        }
    }

    /// Calls `arrive` with flow and number of each packet that has arrived by `now`.
    pub(crate) fn poll(&mut self, now: Time, mut arrive: impl FnMut(usize, u64, &Departure)) {
        let ForwardLine::Segments(line) = &mut self.line else {
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
            None => count_drop(drops, event),
        });
    }

    pub(crate) fn backlog_bytes(&mut self, now: Time) -> u64 {
        match &mut self.line {
            ForwardLine::Trains(line) => line.backlog_bytes(now),
            ForwardLine::Segments(line) => line.backlog_bytes(),
        }
    }
}

/// Direction from receivers to senders.
#[derive(Debug)]
pub(crate) enum ReversePath {
    /// Constant delay and nothing else.
    Delay(Time),
    /// Emulated line that decides on an ACK when it is sent.
    Trains(Box<TrainLine>),
    /// Emulated line, ACK by ACK.
    Segments(Box<AckLine>),
}

/// Emulated line of ACKs.
#[derive(Debug)]
pub(crate) struct AckLine {
    line: Line,
    in_flight: AcksInFlight,
}

/// ACKs in flight, numbered from `first` on.
#[derive(Debug, Default)]
struct AcksInFlight {
    acks: VecDeque<AckInFlight>,
    first: u64,
}

#[derive(Debug)]
struct AckInFlight {
    flow: usize,
    ack: Ack,
    /// Copies of it that are still in the line, which may duplicate it.
    copies: u32,
}

impl AcksInFlight {
    fn push(&mut self, flow: usize, ack: Ack) -> u64 {
        let copies = 1;
        self.acks.push_back(AckInFlight { flow, ack, copies });
        self.first + self.acks.len() as u64 - 1
    }

    /// Counts the copies by an event of the line, and returns the ACK that the event delivers, if any.
    fn on_event(&mut self, event: Event) -> Option<(usize, Ack)> {
        let (Event::Duplicate(segment)
        | Event::Drop { segment, .. }
        | Event::Deliver(Delivered { segment, .. })) = event
        else {
            return None;
        };
        let in_flight = &mut self.acks[(segment.packet - self.first) as usize];
        if let Event::Duplicate(_) = event {
            in_flight.copies += 1;
            return None;
        }
        in_flight.copies -= 1;
        let out = intact(event)?;
        let at = out.at;
        Some((
            in_flight.flow,
            Ack {
                at,
                ..in_flight.ack
            },
        ))
    }

    fn remove_finished(&mut self) {
        while self.acks.front().is_some_and(|ack| ack.copies == 0) {
            self.acks.pop_front();
            self.first += 1;
        }
    }
}

/// Bytes of an ACK without SACK blocks: IPv4 and TCP with timestamps.
const ACK_LEN: u32 = 52;
/// Bytes of an ACK with SACK blocks.
const SACK_LEN: u32 = 80;

impl ReversePath {
    pub(crate) fn new(link_config: LinkConfig, schedule: Schedule, seed: u64) -> Self {
        let is_simple = schedule.iter().next().is_none();
        let trains = is_simple.then(|| TrainLine::new(link_config.clone(), seed));
        match trains {
            Some(Ok(_)) if is_delay_only(&link_config) => Self::Delay(link_config.delay),
            Some(Ok(line)) => Self::Trains(Box::new(line)),
            _ => Self::Segments(Box::new(AckLine::new(link_config, schedule, seed))),
        }
    }

    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Time {
        match self {
            Self::Delay(_) | Self::Trains(_) => Time::MAX,
            Self::Segments(acks) => acks.line.next_deadline().unwrap_or(Time::MAX),
        }
    }
}

impl AckLine {
    fn new(link_config: LinkConfig, schedule: Schedule, seed: u64) -> Self {
        Self {
            line: Line::new(link_config, schedule, seed, Time::ZERO),
            in_flight: AcksInFlight::default(),
        }
    }

    /// Sends an ACK at `ack.at`, from a receiver of packets with `mss` bytes.
    pub(crate) fn send(&mut self, flow: usize, mss: u32, ack: Ack) {
        let number = self.in_flight.push(flow, ack);
        let acking = if has_sack(&ack) {
            AckClass::Other { flow: flow as u64 }
        } else {
            AckClass::Pure(PureAck {
                flow: flow as u64,
                ack: (ack.una.wrapping_mul(u64::from(mss))) as u32,
                window: u16::MAX,
            })
        };
        let packet = segment(number, ack_len(&ack));
        let in_flight = &mut self.in_flight;
        self.line.offer(ack.at, packet, Some(acking), &mut |event| {
            in_flight.on_event(event);
        });
        in_flight.remove_finished();
    }

    /// Calls `arrive` for each ACK that has arrived by `now`.
    pub(crate) fn poll(&mut self, now: Time, mut arrive: impl FnMut(usize, Ack)) {
        let in_flight = &mut self.in_flight;
        self.line.poll(now, &mut |event| {
            if let Some((flow, ack)) = in_flight.on_event(event) {
                arrive(flow, ack);
            }
        });
        in_flight.remove_finished();
    }
}

/// Sends an ACK at `ack.at`, and returns it as it arrives; `None` if it is lost.
pub(crate) fn send_ack(line: &mut TrainLine, ack: Ack) -> Option<Ack> {
    let train = Train {
        count: 1,
        len: ack_len(&ack),
    };
    let mut at = None;
    line.offer(ack.at, train, |verdict| {
        if let TrainVerdict::Out(out) = verdict {
            at = Some(out.at(0));
        }
    });
    let at = at?;
    Some(Ack { at, ..ack })
}

fn has_sack(ack: &Ack) -> bool {
    ack.blocks[0].count > 0
}

fn ack_len(ack: &Ack) -> u32 {
    if has_sack(ack) { SACK_LEN } else { ACK_LEN }
}

/// Whether the settings, which trains can follow, do nothing but delay.
fn is_delay_only(link_config: &LinkConfig) -> bool {
    link_config.rate.mean().is_none() && link_config.loss == longhaul_netem::loss::Loss::None
}

fn segment(packet: u64, len: u32) -> Segment {
    Segment {
        packet,
        index: 0,
        last: true,
        len,
    }
}

/// Returns the packet that an event delivers, unless it is corrupt: then it fails its checksum.
fn intact(event: Event) -> Option<Delivered> {
    match event {
        Event::Deliver(out) if out.corrupt.is_none() => Some(out),
        _ => None,
    }
}

fn count_drop(drops: &mut Drops, event: Event) {
    match event {
        Event::Drop { cause, .. } => drops.add(cause, 1),
        Event::Deliver(_) => drops.add(DropCause::Loss, 1),
        Event::Duplicate(_) | Event::Verdict(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::SackBlock;
    use longhaul_netem::Setting;
    use proptest::prelude::*;

    /// Lines that lose, duplicate, corrupt and reorder, some with a short queue.
    fn link_configs() -> impl Strategy<Value = LinkConfig> {
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
                let mut link_config = LinkConfig::default();
                for (key, value) in settings {
                    link_config.apply(Setting::parse(key, &value).unwrap());
                }
                link_config
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

    /// Returns the ACKs that come out of each of both by `now`.
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
        fn delivers_each_copy_of_an_ack_when_the_line_does(
            link_config in link_configs(),
            gaps in prop::collection::vec(0_u64..20, 1..200),
            seed: u64,
        ) {
            let mut line = Line::new(link_config.clone(), Schedule::default(), seed, Time::ZERO);
            let mut acks = AckLine::new(link_config, Schedule::default(), seed);
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
            prop_assert!(acks.in_flight.acks.is_empty());
        }

        #[test]
        fn trains_carry_acks_as_the_line_does(
            gaps in prop::collection::vec(0_u64..20_000, 1..200),
            seed: u64,
        ) {
            let mut link_config = LinkConfig::default();
            for (key, value) in [("delay", "3ms"), ("rate", "50mbit"), ("queue", "10p"), ("loss", "5%")] {
                link_config.apply(Setting::parse(key, value).unwrap());
            }
            let mut acks = AckLine::new(link_config.clone(), Schedule::default(), seed);
            let mut line = TrainLine::new(link_config, seed).unwrap();
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            let mut now = Time::ZERO;
            for gap in gaps {
                now += Time::from_nanos(gap);
                acks.poll(now, |_, ack| expected.push(ack.at));
                acks.send(0, 1448, ack(now));
                out.extend(send_ack(&mut line, ack(now)).map(|ack| ack.at));
            }
            acks.poll(Time::from_millis(1_000), |_, ack| expected.push(ack.at));
            prop_assert_eq!(out, expected);
        }
    }
}
