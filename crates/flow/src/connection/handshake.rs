// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshake of a connection (RFC 9293 §3.5), as seen by a capture point.

use crate::ecn::negotiation::{EcnHandshake, EcnNegotiation};
use crate::record::Handshake;
use crate::segment::Segment;
use longhaul_packet::tcp::{ACK, SYN};

/// Handshake so far. End 0 is the client, end 1 the server.
#[derive(Debug, Default)]
pub(super) struct HandshakeTracker {
    record: Handshake,
    /// Last SYN of the client.
    syn: Option<PendingSyn>,
    /// Last SYN/ACK, while its ACK is awaited.
    syn_ack: Option<PendingSyn>,
    /// Whether that ACK was seen.
    is_over: bool,
    /// Kinds of SYN that each end has sent.
    syn_kinds_sent: [SynKinds; 2],
    ecn: EcnHandshake,
}

/// SYN or SYN/ACK that awaits an answer.
#[derive(Debug, Clone, Copy)]
struct PendingSyn {
    at_ns: u64,
    end: u8,
    seq: u32,
    tsval: Option<u32>,
    /// Whether it was sent before, so that only a timestamp shows which copy is answered (Karn; RFC 6298 §3).
    retransmitted: bool,
    /// Whether the copy before had the same timestamp, or none had any.
    same_timestamp: bool,
}

impl PendingSyn {
    /// Creates the entry for `segment` from `end`; `before` is the entry before it.
    fn new(segment: &Segment, end: usize, before: Option<Self>) -> Self {
        let (end, tsval) = (end as u8, segment.has_timestamps.then_some(segment.tsval));
        let before = before.filter(|before| (before.end, before.seq) == (end, segment.seq));
        Self {
            at_ns: segment.at_ns,
            end,
            seq: segment.seq,
            tsval,
            retransmitted: before.is_some(),
            same_timestamp: before.is_some_and(|before| before.tsval == tsval),
        }
    }

    /// Returns the time until its answer, ns; `None` if the answer may be for another copy.
    fn response_ns(self, answer: &Segment) -> Option<u64> {
        let echoed = answer.has_timestamps && self.tsval == Some(answer.tsecr);
        (!self.retransmitted || echoed && !self.same_timestamp)
            .then(|| answer.at_ns.saturating_sub(self.at_ns))
    }
}

#[derive(Debug, Default)]
struct SynKinds {
    plain: bool,
    with_ack: bool,
}

impl HandshakeTracker {
    /// Returns whether a segment of `end` without a SYN may be the ACK that is awaited.
    #[inline]
    pub(super) fn awaits(&self, end: usize) -> bool {
        self.syn_ack.is_some_and(|sent| sent.end != end as u8)
    }

    /// Processes a segment of `end` with SYN or ACK flags.
    pub(super) fn process(&mut self, segment: &Segment, end: usize) {
        match (segment.flags & SYN != 0, segment.flags & ACK != 0) {
            (true, false) => self.process_syn(segment, end),
            (true, true) => self.syn_ack(segment, end),
            (false, true) => self.process_ack(segment, end),
            (false, false) => {}
        }
    }

    fn process_syn(&mut self, segment: &Segment, end: usize) {
        let retransmitted = std::mem::replace(&mut self.syn_kinds_sent[end].plain, true);
        self.record.syn_retransmissions += u32::from(retransmitted);
        if end == 0 {
            self.syn = Some(PendingSyn::new(segment, end, self.syn));
            self.ecn.process_syn(segment);
        }
    }

    fn syn_ack(&mut self, segment: &Segment, end: usize) {
        let retransmitted = std::mem::replace(&mut self.syn_kinds_sent[end].with_ack, true);
        self.record.syn_ack_retransmissions += u32::from(retransmitted);
        if end == 1 && !retransmitted {
            self.record.syn_to_syn_ack_ns = self.syn.and_then(|syn| syn.response_ns(segment));
        }
        if !self.is_over {
            self.syn_ack = Some(PendingSyn::new(segment, end, self.syn_ack));
            self.ecn.process_syn_ack(segment);
        }
    }

    fn process_ack(&mut self, segment: &Segment, end: usize) {
        if self.awaits(end)
            && let Some(syn_ack) = self.syn_ack.take()
        {
            self.record.syn_ack_to_ack_ns = syn_ack.response_ns(segment);
            self.is_over = true;
        }
    }

    /// Forgets the packets that await an answer.
    pub(super) fn forget_times(&mut self) {
        (self.syn, self.syn_ack) = (None, None);
    }

    /// Returns the ECN that was negotiated so far.
    pub(super) fn ecn(&self) -> EcnNegotiation {
        self.ecn.negotiated
    }

    /// Returns the record of the handshake, with the ECN that `inferred` shows if the handshake does not.
    pub(super) fn record(&self, inferred: EcnNegotiation) -> Handshake {
        let ecn = match self.ecn() {
            EcnNegotiation::Unknown => inferred,
            negotiated => negotiated,
        };
        Handshake { ecn, ..self.record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags, end, time, TSval and TSecr.
    type ScriptSegment = (u8, usize, u64, Option<(u32, u32)>);

    fn handshake_of(segments: &[ScriptSegment]) -> Handshake {
        let mut handshake = HandshakeTracker::default();
        for &(flags, end, at_ns, stamps) in segments {
            let (tsval, tsecr) = stamps.unwrap_or_default();
            let segment = Segment {
                at_ns,
                flags,
                has_timestamps: stamps.is_some(),
                tsval,
                tsecr,
                ..Segment::default()
            };
            handshake.process(&segment, end);
        }
        handshake.record(EcnNegotiation::Unknown)
    }

    #[test]
    fn retransmitted_syn_has_no_round_trip() {
        let handshake = handshake_of(&[
            (SYN, 0, 0, None),
            (SYN, 0, 1_000, None),
            (SYN | ACK, 1, 1_100, None),
            (ACK, 0, 1_150, None),
            (ACK, 0, 1_900, None),
        ]);
        assert_eq!(handshake.syn_to_syn_ack_ns, None);
        assert_eq!(handshake.syn_ack_to_ack_ns, Some(50));
        assert_eq!(
            (
                handshake.syn_retransmissions,
                handshake.syn_ack_retransmissions
            ),
            (1, 0)
        );
    }

    #[test]
    fn time_stamp_identifies_answered_syn() {
        let to_syn_ack = |[first, second, echo]: [u32; 3]| {
            let handshake = handshake_of(&[
                (SYN, 0, 0, Some((first, 0))),
                (SYN, 0, 1_000, Some((second, 0))),
                (SYN | ACK, 1, 1_100, Some((3, echo))),
            ]);
            handshake.syn_to_syn_ack_ns
        };
        let found = [[7, 8, 8], [7, 8, 7], [8, 8, 8]].map(to_syn_ack);
        assert_eq!(found, [Some(100), None, None]);
    }

    #[test]
    fn retransmitted_syn_ack_has_no_round_trip() {
        let handshake = handshake_of(&[
            (SYN, 0, 0, None),
            (SYN | ACK, 1, 10, None),
            (SYN | ACK, 1, 1_010, None),
            (ACK, 0, 1_020, None),
            (SYN | ACK, 1, 1_030, None),
            (ACK, 0, 1_040, None),
        ]);
        assert_eq!(handshake.syn_to_syn_ack_ns, Some(10));
        assert_eq!(handshake.syn_ack_to_ack_ns, None);
        assert_eq!(handshake.syn_ack_retransmissions, 2);
    }

    #[test]
    fn measures_simultaneous_open() {
        let handshake = handshake_of(&[
            (SYN, 0, 0, None),
            (SYN, 1, 10, None),
            (SYN | ACK, 0, 30, None),
            (SYN | ACK, 1, 40, None),
            (ACK, 0, 55, None),
        ]);
        assert_eq!(handshake.syn_to_syn_ack_ns, Some(40));
        assert_eq!(handshake.syn_ack_to_ack_ns, Some(15));
        assert_eq!(
            (
                handshake.syn_retransmissions,
                handshake.syn_ack_retransmissions
            ),
            (0, 0)
        );
    }

    #[test]
    fn measures_rest_of_handshake_without_syn() {
        let handshake = handshake_of(&[(SYN | ACK, 1, 5, None), (ACK, 0, 9, None)]);
        assert_eq!(handshake.syn_to_syn_ack_ns, None);
        assert_eq!(handshake.syn_ack_to_ack_ns, Some(4));
    }
}
