// SPDX-License-Identifier: MIT OR Apache-2.0
//! Negotiation of ECN in the handshake (RFC 3168 §6.1.1, RFC 9768 §3.1).

use crate::segment::Segment;
use serde::{Deserialize, Serialize};

/// Use of ECN by a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EcnNegotiation {
    /// Not known: the capture lacks the handshake, and no packet has ECT or CE.
    #[default]
    Unknown,
    /// Used, as packets with ECT or CE show. The capture lacks the handshake, so that the kind is not known.
    Inferred,
    /// Not used.
    NotNegotiated,
    /// Classic ECN (RFC 3168): ECE and CWR.
    Classic,
    /// Accurate ECN (RFC 9768): the ACE field, and perhaps options.
    Accurate,
}

/// Offer of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Offer {
    NoEcn,
    Classic,
    Accurate,
}

/// Offer and answer so far.
#[derive(Debug, Default)]
pub(crate) struct EcnHandshake {
    /// Best offer of all copies of the SYN: a client that gets no answer may repeat it without ECN.
    offer: Option<Offer>,
    pub(crate) negotiated: EcnNegotiation,
}

impl EcnHandshake {
    /// Processes a SYN of the client.
    pub(crate) fn process_syn(&mut self, syn: &Segment) {
        let offer = match ace_field(syn) {
            0b000 => Offer::NoEcn,
            0b011 => Offer::Classic,
            // Values without a meaning today count as AccECN (RFC 9768 §3.1.3).
            _ => Offer::Accurate,
        };
        self.offer = self.offer.max(Some(offer));
    }

    /// Processes the SYN/ACK that answers it (RFC 9768, table 2).
    pub(crate) fn process_syn_ack(&mut self, syn_ack: &Segment) {
        self.negotiated = match (self.offer, ace_field(syn_ack)) {
            (Some(Offer::NoEcn), _) | (_, 0b000 | 0b111) => EcnNegotiation::NotNegotiated,
            (_, 0b001 | 0b101) => EcnNegotiation::Classic,
            // Some hosts repeat the flags of a SYN that offers classic ECN.
            (Some(Offer::Classic), _) => EcnNegotiation::NotNegotiated,
            (None, 0b011) => EcnNegotiation::Unknown,
            _ => EcnNegotiation::Accurate,
        };
    }
}

/// Returns AE, CWR and ECE: with AccECN the ACE field, the count of packets with CE modulo 8.
#[inline]
pub(crate) fn ace_field(segment: &Segment) -> u8 {
    u8::from(segment.ae) << 2 | segment.flags >> 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use EcnNegotiation::{Accurate, Classic, NotNegotiated, Unknown};

    fn with_ace(ace: u8) -> Segment {
        Segment {
            ae: ace & 0b100 != 0,
            flags: ace << 6,
            ..Segment::default()
        }
    }

    fn negotiate(syns: &[u8], syn_ack: u8) -> EcnNegotiation {
        let mut handshake = EcnHandshake::default();
        syns.iter()
            .for_each(|syn| handshake.process_syn(&with_ace(*syn)));
        handshake.process_syn_ack(&with_ace(syn_ack));
        handshake.negotiated
    }

    /// Each row is a SYN, with the results for the SYN/ACKs 000 to 111.
    #[test]
    fn follows_table_2_of_rfc_9768() {
        let no = NotNegotiated;
        for (syns, expected) in [
            (&[0b000][..], [no; 8]),
            (&[0b011], [no, Classic, no, no, no, Classic, no, no]),
            (
                &[0b111],
                [
                    no, Classic, Accurate, Accurate, Accurate, Classic, Accurate, no,
                ],
            ),
            (
                &[],
                [
                    no, Classic, Accurate, Unknown, Accurate, Classic, Accurate, no,
                ],
            ),
        ] {
            let found: Vec<_> = (0..8).map(|ace| negotiate(syns, ace)).collect();
            assert_eq!(found, expected, "{syns:?}");
        }
    }

    #[test]
    fn answer_may_be_for_a_syn_before_the_fallback() {
        assert_eq!(negotiate(&[0b111, 0b000], 0b010), Accurate);
        assert_eq!(negotiate(&[0b111, 0b000], 0b000), NotNegotiated);
    }
}
