// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a packet means to the rules for ACKs.

use super::PureAck;
use longhaul_packet::{
    ip,
    tcp::{self, Header},
};
use std::hash::{Hash, Hasher};

/// The only option that a later ACK brings up to date (RFC 7323 §3.2).
const TIMESTAMPS: u8 = 8;

/// A TCP packet in the eyes of ACK thinning and pacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acking {
    /// No payload, no flag but ACK, no option but timestamps: a later one may stand for it.
    Pure(PureAck),
    /// Anything else of the flow: must pass, and not before what is held of the flow.
    Other {
        /// A hash of the flow's addresses and ports, in this direction.
        flow: u64,
    },
}

impl Acking {
    /// Looks at a packet from its IP header on; `None` if it is not TCP.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let transport = ip::transport(packet).filter(|t| t.protocol == ip::TCP && !t.fragment)?;
        let header = Header::at(&packet[transport.offset..])?;
        let flow = flow_of(packet, transport, &header);
        let payload = packet.len() - transport.offset - header.len();
        // SACK, multipath TCP and what else there may be say things of their own.
        let bare = header.options().all(|(kind, _)| kind == TIMESTAMPS);
        let pure = payload == 0 && header.flags() == tcp::ACK && bare;
        Some(match pure {
            true => Self::Pure(PureAck {
                flow,
                ack: header.ack(),
                window: header.window(),
            }),
            false => Self::Other { flow },
        })
    }
}

fn flow_of(packet: &[u8], transport: ip::Transport, header: &Header<'_>) -> u64 {
    let addresses = match transport.version {
        ip::Version::V4 => &packet[12..20],
        ip::Version::V6 => &packet[8..40],
    };
    let mut hasher = std::hash::DefaultHasher::new();
    (addresses, header.source(), header.destination()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[9] = ip::TCP;
        let mut header = vec![0; 20];
        header[12] = (((20 + options.len()) / 4) << 4) as u8;
        header[13] = flags;
        [packet, header, options.to_vec(), payload.to_vec()].concat()
    }

    fn is_pure(flags: u8, options: &[u8], payload: &[u8]) -> bool {
        matches!(
            Acking::of(&packet(flags, options, payload)),
            Some(Acking::Pure(_))
        )
    }

    #[test]
    fn only_a_bare_ack_is_pure() {
        assert!(is_pure(
            tcp::ACK,
            &[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0],
            &[]
        ));
        assert!(!is_pure(tcp::ACK, &[], b"x"));
        assert!(!is_pure(
            tcp::ACK,
            &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            &[]
        ));
        // MP_FASTCLOSE of multipath TCP (RFC 8684 §3.5) comes with nothing but an ACK.
        assert!(!is_pure(
            tcp::ACK,
            &[30, 12, 0x70, 0, 1, 2, 3, 4, 5, 6, 7, 8],
            &[]
        ));
        for flag in [
            tcp::FIN,
            tcp::SYN,
            tcp::RST,
            tcp::ECE,
            tcp::CWR,
            tcp::URG,
            tcp::PSH,
        ] {
            assert!(!is_pure(tcp::ACK | flag, &[], &[]), "flag {flag:#x}");
        }
    }

    #[test]
    fn other_protocols_are_no_business_of_these_rules() {
        let mut udp = packet(tcp::ACK, &[], &[]);
        udp[9] = ip::UDP;
        assert_eq!(Acking::of(&udp), None);
    }
}
