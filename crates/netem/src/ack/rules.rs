// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK rules of one direction of a link: thinning, then pacing.

use super::{
    AckThinner, Pacer, PacingDecision, PureAck, ThinningDecision, ThinningLimits, class::AckClass,
};
use crate::{Segment, setting::AckConfig};
use longhaul_units::Time;
use std::collections::HashMap;

/// Action on a segment that was offered to the ACK rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckAction {
    /// Forward the segment now.
    Forward(Segment),
    /// Discard the ACK, which a later one supersedes.
    Discard(Segment),
}

/// Thinning and pacing of one direction's ACKs.
#[derive(Debug)]
pub(crate) struct AckRules {
    thinner: Option<AckThinner>,
    pacer: Option<Pacer>,
    /// ACKs that thinning holds, by token: at most one a flow.
    held: HashMap<u64, PureAck>,
}

impl AckRules {
    /// Rules of these settings. `mtu` is the largest segment in bytes.
    pub(crate) fn new(config: &AckConfig, mtu: u32) -> Self {
        let thinner = (config.thin > 0).then(|| {
            AckThinner::new(ThinningLimits::new(
                u32::from(config.thin),
                config.max_delay,
                mtu,
            ))
        });
        let pacer = config
            .rate
            .map(|rate| Pacer::new(u64::from(rate), config.buffer as usize));
        Self {
            thinner,
            pacer,
            held: HashMap::new(),
        }
    }

    /// Whether thinning or pacing is set. If not, segments need not be offered.
    pub(crate) fn active(&self) -> bool {
        self.thinner.is_some() || self.pacer.is_some()
    }

    /// Accepts a segment, and emits the actions that follow at once.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        segment: Segment,
        ack_class: AckClass,
        emit: &mut impl FnMut(AckAction),
    ) {
        match ack_class {
            AckClass::Other { flow } => {
                self.flush(now, flow, emit);
                emit(AckAction::Forward(segment));
            }
            AckClass::Pure(ack) => self.offer_pure(now, segment, ack, emit),
        }
    }

    fn offer_pure(
        &mut self,
        now: Time,
        segment: Segment,
        ack: PureAck,
        emit: &mut impl FnMut(AckAction),
    ) {
        let Some(thinner) = &mut self.thinner else {
            return self.pace(now, segment, ack, emit);
        };
        let thinned = thinner.offer(now, &ack, token_of(segment));
        match thinned {
            ThinningDecision::Pass { discard } | ThinningDecision::Hold { discard } => {
                self.discard(discard, emit);
            }
            ThinningDecision::PassBoth(held) => self.pace_released(now, held, emit),
        }
        match thinned {
            ThinningDecision::Hold { .. } => drop(self.held.insert(token_of(segment), ack)),
            _ => self.pace(now, segment, ack, emit),
        }
    }

    fn discard(&mut self, superseded: Option<u64>, emit: &mut impl FnMut(AckAction)) {
        if let Some(token) = superseded {
            self.held.remove(&token);
            emit(AckAction::Discard(segment_of(token)));
        }
    }

    /// Forwards all ACKs of a flow that are held or queued, so that another segment keeps its place behind
    /// them.
    fn flush(&mut self, now: Time, flow: u64, emit: &mut impl FnMut(AckAction)) {
        while let Some(paced) = self.pacer.as_mut().and_then(|pacer| pacer.flush(flow)) {
            emit(AckAction::Forward(segment_of(paced)));
        }
        if let Some(held) = self
            .thinner
            .as_mut()
            .and_then(|thinner| thinner.flush(now, flow))
        {
            self.held.remove(&held);
            emit(AckAction::Forward(segment_of(held)));
        }
    }

    /// Passes an ACK that thinning releases to pacing, where it queues behind other ACKs.
    fn pace_released(&mut self, now: Time, held: u64, emit: &mut impl FnMut(AckAction)) {
        match self.held.remove(&held) {
            Some(ack) => self.pace(now, segment_of(held), ack, emit),
            None => emit(AckAction::Forward(segment_of(held))),
        }
    }

    fn pace(
        &mut self,
        now: Time,
        segment: Segment,
        ack: PureAck,
        emit: &mut impl FnMut(AckAction),
    ) {
        let Some(pacer) = &mut self.pacer else {
            return emit(AckAction::Forward(segment));
        };
        match pacer.offer(now, &ack, token_of(segment)) {
            PacingDecision::Send => emit(AckAction::Forward(segment)),
            PacingDecision::Queued => {}
            PacingDecision::Replaced(old) => emit(AckAction::Discard(segment_of(old))),
            PacingDecision::Evicted(oldest) => emit(AckAction::Forward(segment_of(oldest))),
        }
    }

    /// Time for the next call of [`release`](Self::release); `None` while no ACK is held or queued.
    pub(crate) fn next_deadline(&mut self) -> Option<Time> {
        let held = self.thinner.as_mut().and_then(AckThinner::next_deadline);
        let paced = self.pacer.as_ref().and_then(Pacer::next_deadline);
        [held, paced].into_iter().flatten().min()
    }

    /// Releases ACKs whose deadline is at or before `now`.
    pub(crate) fn release(&mut self, now: Time, emit: &mut impl FnMut(AckAction)) {
        while let Some(held) = self
            .thinner
            .as_mut()
            .and_then(|thinner| thinner.release(now))
        {
            self.pace_released(now, held, emit);
        }
        while let Some(paced) = self.pacer.as_mut().and_then(|pacer| pacer.release(now)) {
            emit(AckAction::Forward(segment_of(paced)));
        }
    }

    /// Releases and forwards all ACKs, in order within each flow.
    pub(crate) fn release_all(&mut self, emit: &mut impl FnMut(AckAction)) {
        while let Some(paced) = self
            .pacer
            .as_mut()
            .and_then(|pacer| pacer.release(Time::MAX))
        {
            emit(AckAction::Forward(segment_of(paced)));
        }
        while let Some(held) = self.thinner.as_mut().and_then(|t| t.release(Time::MAX)) {
            emit(AckAction::Forward(segment_of(held)));
        }
    }
}

/// Token of a pure ACK: super-packet number and length. A pure ACK is the only segment of its packet
/// and shorter than 64 KB.
fn token_of(segment: Segment) -> u64 {
    segment.packet << 16 | u64::from(segment.len & 0xffff)
}

/// Segment of a pure ACK with this token.
fn segment_of(token: u64) -> Segment {
    Segment {
        packet: token >> 16,
        index: 0,
        last: true,
        len: (token & 0xffff) as u32,
    }
}
