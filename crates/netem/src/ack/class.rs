// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of TCP packets for ACK thinning and ACK pacing.

use super::PureAck;
use longhaul_packet::{
    ip,
    tcp::{self, Header},
};
use std::hash::{Hash, Hasher};

/// Timestamps option, the only option that a later ACK supersedes (RFC 7323 §3.2).
const TIMESTAMPS: u8 = 8;

/// Class of a TCP packet for ACK thinning and pacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckClass {
    /// Pure ACK: no payload, no flag but ACK, no option but timestamps. A later one may replace it.
    Pure(PureAck),
    /// Any other packet of a flow. It must pass, after the held ACKs of the flow.
    Other {
        /// Hash of the flow's addresses and ports, in this direction.
        flow: u64,
    },
}

impl AckClass {
    /// Classifies a packet that starts with its IP header. `None` if the packet is not TCP, is a
    /// fragment, or ends within the TCP header.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let transport = ip::transport(packet).filter(|t| t.protocol == ip::TCP && !t.fragment)?;
        let header = Header::at(&packet[transport.offset..])?;
        let flow = hash_flow(packet, transport, &header);
        let payload = packet.len() - transport.offset - header.len();
        // SACK, multipath TCP and unknown options carry information that a later ACK does not repeat.
        let has_only_timestamps = header.options().all(|(kind, _)| kind == TIMESTAMPS);
        let is_pure = payload == 0 && header.flags() == tcp::ACK && has_only_timestamps;
        Some(if is_pure {
            Self::Pure(PureAck {
                flow,
                ack: header.ack(),
                window: header.window(),
            })
        } else {
            Self::Other { flow }
        })
    }
}

/// Hash of addresses and ports, in this direction.
fn hash_flow(packet: &[u8], transport: ip::Transport, header: &Header<'_>) -> u64 {
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
            AckClass::of(&packet(flags, options, payload)),
            Some(AckClass::Pure(_))
        )
    }

    #[test]
    fn classifies_only_a_bare_ack_as_pure() {
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
        // MP_FASTCLOSE of multipath TCP (RFC 8684 §3.5) is an option of an ACK without payload.
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
    fn ignores_other_protocols() {
        let mut udp = packet(tcp::ACK, &[], &[]);
        udp[9] = ip::UDP;
        assert_eq!(AckClass::of(&udp), None);
    }
}
