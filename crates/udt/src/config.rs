// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of an endpoint, and the parameters that a handshake negotiates from the options of both.

use crate::packet::{self, handshake::Handshake, number::Seq};
use longhaul_units::Time;
use std::net::IpAddr;

/// Bytes of the headers of IPv4 and UDP. UDT4 counts the same for IPv6, where packets of 1500 are too long for
/// Ethernet. [`Config::for_peer`] offers less there.
pub(crate) const IP_UDP_HEADERS_LEN: u32 = 28;

/// Bytes by which the header of IPv6 is longer than that of IPv4.
const IPV6_EXTRA_LEN: u32 = 20;

/// Least packet length that is accepted, in bytes: the length that every IPv4 host receives (RFC 791 §3.1).
const MSS_MIN: u32 = 576;

/// Greatest packet length, in bytes: the limit of UDP.
const MSS_MAX: u32 = 65_507 + IP_UDP_HEADERS_LEN;

/// Handshake mode of a byte stream (`SOCK_STREAM` of libudt). Message mode (`SOCK_DGRAM`) is 2, and is refused.
pub(crate) const STREAM_MODE: u32 = 1;

/// Options of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Maximum packet length in bytes, with the headers of IP and UDP. The smaller value of both endpoints is used.
    /// 1500 suits Ethernet.
    pub mss: u32,
    /// Capacity of the send buffer in packets, unsent and unacknowledged ones together. 32,768 packets are 48 MB and
    /// carry 1 Gbit/s over 380 ms. Memory is taken as it is used. (UDT4: 8192, 530 Mbit/s over 180 ms.)
    pub send_packets: u32,
    /// Capacity of the receive buffer in packets, unread ones and those in flight together. Its default is that of
    /// `send_packets`.
    pub receive_packets: u32,
    /// Time after which [`connect`](crate::Endpoint::connect) fails if no answer comes. A rendezvous has three times
    /// as long, because its endpoints do not start at the same moment. (UDT4: 3 s. Ten round trips of 350 ms would
    /// leave nothing of that.)
    pub connect_timeout: Time,
    /// Time without any packet after which a connection fails. An idle connection sends a keep-alive every 0.3 s. 45
    /// s is about the duration of UDT4's 16 expirations on a short path, each longer than the one before.
    pub idle_timeout: Time,
}

impl Config {
    /// Returns the options to offer to this host, so that packets are no longer than [`Self::mss`] with IPv6 either.
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

/// Parameters of a connection, as both endpoints negotiated them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NegotiatedParams {
    /// Connection ID that this endpoint chose, and the one of the peer.
    pub(crate) own_id: u32,
    pub(crate) peer_id: u32,
    pub(crate) mss: u32,
    /// Initial sequence number of each direction.
    pub(crate) first: Seq,
    pub(crate) peer_first: Seq,
    /// Capacity of the peer's receive buffer, in packets.
    pub(crate) peer_window: u32,
}

impl NegotiatedParams {
    /// Combines the options with the peer's handshake. Returns `None` if the offer is not acceptable.
    pub(crate) fn negotiate(
        config: &Config,
        own: u32,
        first: Seq,
        theirs: &Handshake,
    ) -> Option<Self> {
        let mss = config.mss.min(theirs.mss);
        let is_acceptable = theirs.version == Handshake::VERSION
            && theirs.mode == STREAM_MODE
            && (MSS_MIN..=MSS_MAX).contains(&mss)
            && theirs.flow_window_max >= 2;
        is_acceptable.then_some(Self {
            own_id: own,
            peer_id: theirs.socket,
            mss,
            first,
            peer_first: theirs.first,
            peer_window: theirs.flow_window_max,
        })
    }

    /// Maximum payload of a packet, in bytes.
    pub(crate) fn payload_max(&self) -> usize {
        (self.mss - IP_UDP_HEADERS_LEN) as usize - packet::HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_shorter_packets_to_ipv6_peers() {
        let mss = |peer: &str| Config::default().for_peer(peer.parse().unwrap()).mss;
        assert_eq!([mss("10.0.0.1"), mss("::ffff:10.0.0.1")], [1500; 2]);
        assert_eq!(mss("2001:db8::1"), 1480);
    }
}
