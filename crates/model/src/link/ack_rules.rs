// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thinning, then pacing, of one direction's ACKs.

use super::{
    Segment,
    ack::{Limits, Pacer, Pacing, Thinned, Thinner},
    acking::Acking,
    setting::AckShape,
};
use units::Time;

/// What becomes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// It goes on, now.
    Forward(Segment),
    /// A later ACK says all that it said.
    Discard(Segment),
}

#[derive(Debug)]
pub(crate) struct AckRules {
    thinner: Option<Thinner>,
    pacer: Option<Pacer>,
}

impl AckRules {
    /// `mtu` is the largest segment in bytes.
    pub(crate) fn new(shape: &AckShape, mtu: u32) -> Self {
        let thinner = (shape.thin > 0)
            .then(|| Thinner::new(Limits::new(u32::from(shape.thin), shape.hold, mtu)));
        let pacer = shape
            .pace
            .map(|rate| Pacer::new(u64::from(rate), shape.buffer as usize));
        Self { thinner, pacer }
    }

    /// Whether any rule is on; without one nothing need be offered.
    pub(crate) fn active(&self) -> bool {
        self.thinner.is_some() || self.pacer.is_some()
    }

    pub(crate) fn offer(
        &mut self,
        now: Time,
        segment: Segment,
        acking: Acking,
        rule: &mut impl FnMut(Ruling),
    ) {
        match (acking, &mut self.thinner) {
            (Acking::Other { flow }, _) => {
                self.flush(now, flow, rule);
                rule(Ruling::Forward(segment));
            }
            (Acking::Pure(_), None) => self.pace(now, segment, acking, rule),
            (Acking::Pure(ack), Some(thinner)) => match thinner.offer(now, &ack, token(segment)) {
                Thinned::Pass { discard } => {
                    discard.map(|old| rule(Ruling::Discard(named(old))));
                    self.pace(now, segment, acking, rule);
                }
                Thinned::PassBoth(held) => {
                    self.pace(now, named(held), acking, rule);
                    self.pace(now, segment, acking, rule);
                }
                Thinned::Hold { discard } => {
                    discard.map(|old| rule(Ruling::Discard(named(old))));
                }
            },
        }
    }

    /// What is held of a flow goes before anything else of it.
    fn flush(&mut self, now: Time, flow: u64, rule: &mut impl FnMut(Ruling)) {
        while let Some(held) = self.pacer.as_mut().and_then(|pacer| pacer.flush(flow)) {
            rule(Ruling::Forward(named(held)));
        }
        if let Some(held) = self
            .thinner
            .as_mut()
            .and_then(|thinner| thinner.flush(now, flow))
        {
            rule(Ruling::Forward(named(held)));
        }
    }

    fn pace(&mut self, now: Time, segment: Segment, acking: Acking, rule: &mut impl FnMut(Ruling)) {
        let (Some(pacer), Acking::Pure(ack)) = (&mut self.pacer, acking) else {
            return rule(Ruling::Forward(segment));
        };
        match pacer.offer(now, &ack, token(segment)) {
            Pacing::Send => rule(Ruling::Forward(segment)),
            Pacing::Queued => {}
            Pacing::Replaced(old) => rule(Ruling::Discard(named(old))),
            Pacing::Expelled(oldest) => rule(Ruling::Forward(named(oldest))),
        }
    }

    pub(crate) fn next_deadline(&mut self) -> Option<Time> {
        let held = self.thinner.as_mut().and_then(Thinner::next_deadline);
        let paced = self.pacer.as_ref().and_then(Pacer::next_deadline);
        [held, paced].into_iter().flatten().min()
    }

    /// Forwards one segment whose time has come. An ACK that thinning held to its deadline is not
    /// paced as well: it has waited enough.
    pub(crate) fn release(&mut self, now: Time) -> Option<Segment> {
        let held = self
            .thinner
            .as_mut()
            .and_then(|thinner| thinner.release(now));
        held.or_else(|| self.pacer.as_mut().and_then(|pacer| pacer.release(now)))
            .map(named)
    }
}

/// A pure ACK is one segment of one packet, shorter than 64 KB: packet and length name it.
fn token(segment: Segment) -> u64 {
    segment.packet << 16 | u64::from(segment.len & 0xffff)
}

fn named(token: u64) -> Segment {
    Segment {
        packet: token >> 16,
        index: 0,
        last: true,
        len: (token & 0xffff) as u32,
    }
}
