// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end brings to a connection, and what both agree on.

use crate::packet::{self, handshake::Handshake, number::Seq};
use longhaul_units::Time;
use std::net::IpAddr;

/// Bytes of the headers of IPv4 and UDP. UDT4 counts no more with IPv6, where packets of 1500 are too
/// long for an Ethernet: there [`Config::towards`] offers less.
pub(crate) const IP_UDP_HEADERS_LEN: u32 = 28;

/// Bytes that IPv6's header is longer than IPv4's.
const IPV6_EXTRA_LEN: u32 = 20;

/// The shortest packets that are agreed to: IPv4's least that every host takes (RFC 791 §3.1).
const MSS_MIN: u32 = 576;

/// The longest: UDP's own limit.
const MSS_MAX: u32 = 65_507 + IP_UDP_HEADERS_LEN;

/// What a connection carries, as handshakes say it: bytes (`SOCK_STREAM` of libudt). Messages (`SOCK_DGRAM`) are 2, and
/// refused.
pub(crate) const STREAM_MODE: u32 = 1;

/// What an end brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of the longest packet, with the headers of IP and UDP; the smaller of both ends' counts. 1500
    /// suits Ethernet.
    pub mss: u32,
    /// Packets that may wait to be sent or acknowledged: 32,768 are 48 MB, of which memory is taken as it is
    /// used, and carry 1 Gbit/s over 380 ms. (UDT4: 8192, 530 Mbit/s over 180 ms.)
    pub send_packets: u32,
    /// Packets that may have arrived and not been read, or be on their way. As many.
    pub receive_packets: u32,
    /// How long a listener is asked until nobody answers. (UDT4: 3 s, of which ten round trips of 350 ms would be left nothing.) A
    /// rendezvous has three times as long, for its ends do not begin at the same moment.
    pub connect_timeout: Time,
    /// How long nothing may be heard before a connection is broken; an idle one says every 0.3 s that it is there. 45 s is about
    /// what UDT4's 16 expirations take on a short path, each longer than the one before.
    pub idle_timeout: Time,
}

impl Config {
    /// What is offered to this host, so that packets are no longer than [`Self::mss`] by either protocol.
    pub(crate) fn for_peer(self, peer: IpAddr) -> Self {
        let more = match peer.to_canonical() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => IPV6_EXTRA_LEN,
        };
        Self {
            mss: self.mss.saturating_sub(more).max(MSS_MIN),
            ..self
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1500,
            send_packets: 32_768,
            receive_packets: 32_768,
            connect_timeout: Time::from_secs(10),
            idle_timeout: Time::from_secs(45),
        }
    }
}

/// What both agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NegotiatedParams {
    /// Our name for the connection, and theirs.
    pub(crate) own_id: u32,
    pub(crate) peer_id: u32,
    pub(crate) mss: u32,
    /// Numbers of the first packets.
    pub(crate) first: Seq,
    pub(crate) peer_first: Seq,
    /// Packets that they have room for.
    pub(crate) peer_window: u32,
}

impl NegotiatedParams {
    /// What follows from what they said; nothing if that is no offer to take.
    pub(crate) fn negotiate(
        config: &Config,
        own: u32,
        first: Seq,
        theirs: &Handshake,
    ) -> Option<Self> {
        let mss = config.mss.min(theirs.mss);
        let takes = theirs.version == Handshake::VERSION
            && theirs.mode == STREAM_MODE
            && (MSS_MIN..=MSS_MAX).contains(&mss)
            && theirs.flow_window_max >= 2;
        takes.then_some(Self {
            own_id: own,
            peer_id: theirs.socket,
            mss,
            first,
            peer_first: theirs.first,
            peer_window: theirs.flow_window_max,
        })
    }

    /// Bytes that a packet carries.
    pub(crate) fn payload_max(&self) -> usize {
        (self.mss - IP_UDP_HEADERS_LEN) as usize - packet::HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_no_longer_with_ipv6() {
        let mss = |peer: &str| Config::default().for_peer(peer.parse().unwrap()).mss;
        assert_eq!([mss("10.0.0.1"), mss("::ffff:10.0.0.1")], [1500; 2]);
        assert_eq!(mss("2001:db8::1"), 1480);
    }
}
