// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thinning, then pacing, of one direction's ACKs.

use super::{Limits, Pacer, Pacing, PureAck, Thinned, Thinner, acking::Acking};
use crate::{Segment, setting::AckShape};
use longhaul_units::Time;
use std::collections::HashMap;

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
    /// What the ACKs that thinning holds say: at most one a flow.
    held: HashMap<u64, PureAck>,
}

impl AckRules {
    /// `mtu` is the largest segment in bytes.
    pub(crate) fn new(shape: &AckShape, mtu: u32) -> Self {
        let thinner = (shape.thin > 0)
            .then(|| Thinner::new(Limits::new(u32::from(shape.thin), shape.hold, mtu)));
        let pacer = shape
            .pace
            .map(|rate| Pacer::new(u64::from(rate), shape.buffer as usize));
        Self {
            thinner,
            pacer,
            held: HashMap::new(),
        }
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
        match acking {
            Acking::Other { flow } => {
                self.flush(now, flow, rule);
                rule(Ruling::Forward(segment));
            }
            Acking::Pure(ack) => self.thin(now, segment, ack, rule),
        }
    }

    fn thin(&mut self, now: Time, segment: Segment, ack: PureAck, rule: &mut impl FnMut(Ruling)) {
        let Some(thinner) = &mut self.thinner else {
            return self.pace(now, segment, ack, rule);
        };
        let verdict = thinner.offer(now, &ack, token(segment));
        match verdict {
            Thinned::Pass { discard } | Thinned::Hold { discard } => {
                self.discard(discard, rule);
            }
            Thinned::PassBoth(held) => self.pace_held(now, held, rule),
        }
        match verdict {
            Thinned::Hold { .. } => drop(self.held.insert(token(segment), ack)),
            _ => self.pace(now, segment, ack, rule),
        }
    }

    fn discard(&mut self, superseded: Option<u64>, rule: &mut impl FnMut(Ruling)) {
        if let Some(token) = superseded {
            self.held.remove(&token);
            rule(Ruling::Discard(named(token)));
        }
    }

    /// What is held of a flow goes before anything else of it.
    fn flush(&mut self, now: Time, flow: u64, rule: &mut impl FnMut(Ruling)) {
        while let Some(paced) = self.pacer.as_mut().and_then(|pacer| pacer.flush(flow)) {
            rule(Ruling::Forward(named(paced)));
        }
        if let Some(held) = self
            .thinner
            .as_mut()
            .and_then(|thinner| thinner.flush(now, flow))
        {
            self.held.remove(&held);
            rule(Ruling::Forward(named(held)));
        }
    }

    /// An ACK that thinning lets go takes its place behind those of its flow that are paced.
    fn pace_held(&mut self, now: Time, held: u64, rule: &mut impl FnMut(Ruling)) {
        match self.held.remove(&held) {
            Some(ack) => self.pace(now, named(held), ack, rule),
            None => rule(Ruling::Forward(named(held))),
        }
    }

    fn pace(&mut self, now: Time, segment: Segment, ack: PureAck, rule: &mut impl FnMut(Ruling)) {
        let Some(pacer) = &mut self.pacer else {
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

    /// Lets go what has waited long enough by `now`.
    pub(crate) fn release(&mut self, now: Time, rule: &mut impl FnMut(Ruling)) {
        while let Some(held) = self
            .thinner
            .as_mut()
            .and_then(|thinner| thinner.release(now))
        {
            self.pace_held(now, held, rule);
        }
        while let Some(paced) = self.pacer.as_mut().and_then(|pacer| pacer.release(now)) {
            rule(Ruling::Forward(named(paced)));
        }
    }

    /// Lets go everything, in order.
    pub(crate) fn release_all(&mut self, rule: &mut impl FnMut(Ruling)) {
        while let Some(paced) = self
            .pacer
            .as_mut()
            .and_then(|pacer| pacer.release(Time::MAX))
        {
            rule(Ruling::Forward(named(paced)));
        }
        while let Some(held) = self.thinner.as_mut().and_then(|t| t.release(Time::MAX)) {
            rule(Ruling::Forward(named(held)));
        }
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
