// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trip of a QUIC handshake (RFC 9312 §3.8.1).

use super::datagram::End;

/// Longest time between the packets of one flight, ns. A client that repeats its first packets waits much longer
/// (RFC 9002 §6.2.2).
const FLIGHT_MAX_NS: u64 = 10_000_000;

/// Times of the first datagrams with long headers.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// Time of the client's first and last packet before the server's first, ns.
    client_flight: Option<(u64, u64)>,
    /// Time of the server's first packet, ns.
    server_ns: Option<u64>,
    /// Time of the client's first packet after the server's, ns.
    answer_ns: Option<u64>,
}

impl Handshake {
    /// Processes a datagram that begins with a long header.
    pub(super) fn process(&mut self, at_ns: u64, sender: End) {
        match (sender, self.server_ns) {
            (End::Client, None) => {
                let first = self.client_flight.map_or(at_ns, |(first, _)| first);
                self.client_flight = Some((first, at_ns));
            }
            (End::Client, Some(_)) => _ = self.answer_ns.get_or_insert(at_ns),
            (End::Server, _) => _ = self.server_ns.get_or_insert(at_ns),
        }
    }

    /// Returns the round trip between the ends, ns. `None` if a part is missing, or the client repeated its first
    /// packets, so that nothing says which of them was answered.
    pub(super) fn rtt_ns(&self) -> Option<u64> {
        let (first, last) = self.client_flight?;
        let is_one_flight = last.saturating_sub(first) <= FLIGHT_MAX_NS;
        let rtt = self.answer_ns?.checked_sub(last)?;
        (is_one_flight && self.server_ns? >= last).then_some(rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use End::{Client, Server};

    fn rtt_ns(datagrams: &[(u64, End)]) -> Option<u64> {
        let mut handshake = Handshake::default();
        for (at_ns, sender) in datagrams {
            handshake.process(*at_ns, *sender);
        }
        handshake.rtt_ns()
    }

    #[test]
    fn round_trip_is_from_the_clients_flight_to_its_answer() {
        let two_initials = [(0, Client), (5, Client), (30, Server), (31, Server)];
        assert_eq!(rtt_ns(&two_initials), None);
        let answered = [&two_initials[..], &[(105, Client), (900, Client)]].concat();
        assert_eq!(rtt_ns(&answered), Some(100));
    }

    #[test]
    fn repeated_flight_has_no_round_trip() {
        let repeated = [
            (0, Client),
            (1_000_000_000, Client),
            (1_000_000_100, Server),
        ];
        let answered = [&repeated[..], &[(1_000_000_200, Client)]].concat();
        assert_eq!(rtt_ns(&answered), None);
    }

    #[test]
    fn handshake_without_the_clients_flight_has_no_round_trip() {
        assert_eq!(rtt_ns(&[(0, Server), (50, Client)]), None);
    }
}
