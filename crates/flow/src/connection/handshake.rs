// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a connection opens (RFC 9293 §3.5), in the view of a tap.

use crate::record::Opening;
use longhaul_packet::tcp::{ACK, SYN};

/// The opening so far. Ends are 0, the client, and 1.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    opening: Opening,
    syn_ns: Option<u64>,
    /// When the last SYN/ACK came, while its ACK is awaited, and from whom.
    syn_ack: Option<(u64, usize)>,
    /// Which kinds of SYN each end has sent.
    sent: [SynKinds; 2],
}

#[derive(Debug, Default)]
struct SynKinds {
    plain: bool,
    with_ack: bool,
}

impl Handshake {
    /// Whether a segment of `end` without a SYN may be the ACK that is awaited.
    #[inline]
    pub(super) fn awaits(&self, end: usize) -> bool {
        self.syn_ack.is_some_and(|(_, from)| from != end)
    }

    /// A segment with flags, from `end`.
    pub(super) fn segment(&mut self, flags: u8, end: usize, at_ns: u64) {
        match (flags & SYN != 0, flags & ACK != 0) {
            (true, false) => self.syn(end, at_ns),
            (true, true) => self.syn_ack(end, at_ns),
            (false, true) => self.ack(end, at_ns),
            (false, false) => {}
        }
    }

    fn syn(&mut self, end: usize, at_ns: u64) {
        let again = std::mem::replace(&mut self.sent[end].plain, true);
        self.opening.syn_retransmissions += u32::from(again);
        if end == 0 {
            self.syn_ns = Some(at_ns);
        }
    }

    fn syn_ack(&mut self, end: usize, at_ns: u64) {
        let again = std::mem::replace(&mut self.sent[end].with_ack, true);
        self.opening.syn_ack_retransmissions += u32::from(again);
        if end == 1 && !again {
            self.opening.syn_to_syn_ack_ns = self.syn_ns.map(|syn| at_ns.saturating_sub(syn));
        }
        if self.opening.syn_ack_to_ack_ns.is_none() {
            self.syn_ack = Some((at_ns, end));
        }
    }

    fn ack(&mut self, end: usize, at_ns: u64) {
        if self.awaits(end)
            && let Some((syn_ack_ns, _)) = self.syn_ack.take()
        {
            self.opening.syn_ack_to_ack_ns = Some(at_ns.saturating_sub(syn_ack_ns));
        }
    }

    /// What is said of it.
    pub(super) fn opening(&self) -> Opening {
        self.opening
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_syn_counts() {
        let mut handshake = Handshake::default();
        for (flags, end, at) in [
            (SYN, 0, 0),
            (SYN, 0, 1_000),
            (SYN | ACK, 1, 1_100),
            (ACK, 0, 1_150),
            (ACK, 0, 1_900),
        ] {
            handshake.segment(flags, end, at);
        }
        let opening = handshake.opening();
        assert_eq!(opening.syn_to_syn_ack_ns, Some(100));
        assert_eq!(opening.syn_ack_to_ack_ns, Some(50));
        assert_eq!(
            (opening.syn_retransmissions, opening.syn_ack_retransmissions),
            (1, 0)
        );
    }

    #[test]
    fn both_may_begin() {
        let mut handshake = Handshake::default();
        for (flags, end, at) in [
            (SYN, 0, 0),
            (SYN, 1, 10),
            (SYN | ACK, 0, 30),
            (SYN | ACK, 1, 40),
            (ACK, 0, 55),
        ] {
            handshake.segment(flags, end, at);
        }
        let opening = handshake.opening();
        assert_eq!(opening.syn_to_syn_ack_ns, Some(40));
        assert_eq!(opening.syn_ack_to_ack_ns, Some(15));
        assert_eq!(
            (opening.syn_retransmissions, opening.syn_ack_retransmissions),
            (0, 0)
        );
    }

    #[test]
    fn without_the_syn_the_rest_is_measured() {
        let mut handshake = Handshake::default();
        handshake.segment(SYN | ACK, 1, 5);
        handshake.segment(ACK, 0, 9);
        assert_eq!(handshake.opening().syn_to_syn_ack_ns, None);
        assert_eq!(handshake.opening().syn_ack_to_ack_ns, Some(4));
    }
}
