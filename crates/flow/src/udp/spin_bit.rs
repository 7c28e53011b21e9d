// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trips by QUIC's latency spin bit (RFC 9000 §17.4; RFC 9312 §3.8.2).
//!
//! The client sends the opposite of the last value from the server, and the server sends the last value from the
//! client. So edges of both directions alternate at every observer. From an edge of the client to the server's next is
//! a round trip to the server; from that to the client's next is a round trip to the client. A change of value out of
//! turn is a reordered packet, or an end has switched the bit off and sends random values.

use super::datagram::End;
use super::record::{Quic, SpinBit};
use crate::distribution::Histogram;

/// Packets that it takes to call the bit constant or random.
const PACKETS_MIN: u64 = 16;
/// Share of packets with a change out of turn, at which the bit is random: one of so many packets. Random values of
/// both ends give a sixth at least.
const RANDOM_SHARE: u64 = 8;

/// Spin bit of a connection.
#[derive(Debug, Default)]
pub(super) struct SpinTracker {
    /// Value of client and server.
    values: [Option<bool>; 2],
    /// Time of the last edge of client and server, ns.
    edges_ns: [Option<u64>; 2],
    /// Packets with a short header.
    packets: u64,
    edges: u64,
    /// Changes of value that are no edge.
    false_edges: u64,
    /// Time of the last packet, ns.
    last_ns: Option<u64>,
    /// Longest time without a packet since the last edge, ns.
    silence_ns: u64,
    /// Round trip to the server that waits for its other half.
    to_server_half: Option<Half>,
    /// Least round trip between the ends so far, ns.
    least_rtt_ns: Option<u64>,
    /// Round trip between the ends of late, ns: follows shorter ones at once, longer ones slowly.
    recent_rtt_ns: Option<u64>,
    rtt: Histogram,
    to_server: Histogram,
    to_client: Histogram,
}

/// Time from an edge of one end to that of the other.
#[derive(Debug, Clone, Copy)]
struct Half {
    length_ns: u64,
    silence_ns: u64,
}

impl SpinTracker {
    /// Sets the round trip of the handshake, ns, with which the first ones by the spin bit are compared.
    pub(super) fn set_handshake_rtt(&mut self, rtt_ns: u64) {
        self.least_rtt_ns.get_or_insert(rtt_ns);
        self.recent_rtt_ns.get_or_insert(rtt_ns);
    }

    /// Processes a packet with a short header.
    pub(super) fn process(&mut self, at_ns: u64, sender: End, spin: bool) {
        let silence_ns = at_ns.saturating_sub(self.last_ns.unwrap_or(at_ns));
        self.silence_ns = self.silence_ns.max(silence_ns);
        self.last_ns = Some(at_ns);
        self.packets += 1;
        match (
            self.values[sender as usize],
            self.values[sender.other() as usize],
        ) {
            (Some(value), _) if value == spin => {}
            (Some(_), Some(other)) => self.process_change(at_ns, sender, spin, other),
            _ => self.values[sender as usize] = Some(spin),
        }
    }

    /// Processes a change of value; `other` is the value of the other end.
    fn process_change(&mut self, at_ns: u64, sender: End, spin: bool, other: bool) {
        let is_in_turn = match sender {
            End::Client => spin != other,
            End::Server => spin == other,
        };
        if !is_in_turn || self.is_too_early(at_ns, sender) {
            self.false_edges += 1;
            return;
        }
        self.values[sender as usize] = Some(spin);
        self.edges += 1;
        self.add_half(at_ns, sender);
        self.edges_ns[sender as usize] = Some(at_ns);
    }

    /// Returns whether an edge would follow the last one of this end in less than a quarter of a round trip.
    fn is_too_early(&self, at_ns: u64, sender: End) -> bool {
        let since_edge =
            self.edges_ns[sender as usize].map(|edge_ns| at_ns.saturating_sub(edge_ns));
        (since_edge.zip(self.recent_rtt_ns))
            .is_some_and(|(since_edge, recent)| since_edge < recent / 4)
    }

    /// Adds the time since the other end's edge.
    fn add_half(&mut self, at_ns: u64, sender: End) {
        let silence_ns = std::mem::take(&mut self.silence_ns);
        let Some(start_ns) = self.edges_ns[sender.other() as usize] else {
            return;
        };
        let half = Half {
            length_ns: at_ns.saturating_sub(start_ns),
            silence_ns,
        };
        match sender {
            End::Server => {
                self.to_server_half = Some(half);
                record(&mut self.to_server, half, self.least_rtt_ns);
            }
            End::Client => {
                record(&mut self.to_client, half, self.least_rtt_ns);
                self.add_round_trip(half);
            }
        }
    }

    fn add_round_trip(&mut self, to_client: Half) {
        let Some(to_server) = self.to_server_half.take() else {
            return;
        };
        let whole = Half {
            length_ns: to_server.length_ns + to_client.length_ns,
            silence_ns: to_server.silence_ns.max(to_client.silence_ns),
        };
        if record(&mut self.rtt, whole, self.least_rtt_ns) {
            self.update_estimates(whole.length_ns);
        }
    }

    fn update_estimates(&mut self, rtt_ns: u64) {
        let least = self.least_rtt_ns.unwrap_or(rtt_ns);
        self.least_rtt_ns = Some(least.min(rtt_ns));
        let recent = self.recent_rtt_ns.unwrap_or(rtt_ns);
        self.recent_rtt_ns = Some(rtt_ns.min(recent + rtt_ns.saturating_sub(recent) / 8));
    }

    fn behaviour(&self) -> SpinBit {
        let both_seen = self.values.iter().all(Option::is_some);
        let is_enough = self.packets >= PACKETS_MIN && both_seen;
        match self.edges {
            _ if is_enough && self.false_edges * RANDOM_SHARE > self.packets => SpinBit::Random,
            3.. => SpinBit::Spins,
            // The first values may differ from all later ones.
            0..=1 if is_enough => SpinBit::Constant,
            _ => SpinBit::Unknown,
        }
    }

    /// Returns the memory of the histograms, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.rtt.bytes() + self.to_server.bytes() + self.to_client.bytes()
    }

    /// Writes the behaviour to `quic`, and the round trips if the bit spins.
    pub(super) fn write_to(&self, quic: &mut Quic) {
        quic.spin_bit = self.behaviour();
        if quic.spin_bit == SpinBit::Spins {
            quic.spin_rtt = self.rtt.summary();
            quic.spin_rtt_to_server = self.to_server.summary();
            quic.spin_rtt_to_client = self.to_client.summary();
        }
    }
}

/// Records a round trip, unless the connection was silent for so long that it says how long an application waited.
/// Returns whether it was recorded.
fn record(histogram: &mut Histogram, half: Half, least_rtt_ns: Option<u64>) -> bool {
    let is_busy = least_rtt_ns.is_none_or(|least| half.silence_ns <= 2 * least);
    if is_busy {
        histogram.record(half.length_ns);
    }
    is_busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use End::{Client, Server};
    use std::collections::VecDeque;

    const MS: u64 = 1_000_000;

    /// Packet at the observer: time in ms, sender, spin bit.
    type Packet = (u64, End, bool);

    /// Connection whose ends send a packet every so many ms.
    struct Connection {
        /// Time between the packets of client and server, ms.
        gaps: [u64; 2],
        /// Delay between the observer and client and server, ms.
        delays: [u64; 2],
    }

    /// Connection of 100 ms, seen near the client.
    const CONNECTION: Connection = Connection {
        gaps: [1, 1],
        delays: [10, 40],
    };

    impl Connection {
        /// Returns the packets of `until` ms as the observer sees them. `choose` may replace the value that an end
        /// would send at a time, or withhold the packet.
        fn observe(
            &self,
            until: u64,
            mut choose: impl FnMut(u64, End, bool) -> Option<bool>,
        ) -> Vec<Packet> {
            let mut values = [false; 2];
            let mut arriving = [VecDeque::new(), VecDeque::new()];
            let mut observed = Vec::new();
            for now in 0..until {
                for end in [Client, Server] {
                    let arrivals: &mut VecDeque<(u64, bool)> = &mut arriving[end as usize];
                    while let Some((_, value)) = arrivals.front().filter(|next| next.0 <= now) {
                        values[end as usize] = *value != (end == Client);
                        arrivals.pop_front();
                    }
                    let is_due = now % self.gaps[end as usize] == 0;
                    let value = values[end as usize];
                    if let Some(value) = is_due.then(|| choose(now, end, value)).flatten() {
                        observed.push((now + self.delays[end as usize], end, value));
                        let arrival = (now + self.delays[0] + self.delays[1], value);
                        arriving[end.other() as usize].push_back(arrival);
                    }
                }
            }
            observed.sort_by_key(|packet| packet.0);
            observed
        }
    }

    fn track(packets: &[Packet]) -> Quic {
        track_after_handshake(100, packets)
    }

    fn track_after_handshake(rtt_ms: u64, packets: &[Packet]) -> Quic {
        let mut tracker = SpinTracker::default();
        tracker.set_handshake_rtt(rtt_ms * MS);
        for (at_ms, sender, spin) in packets {
            tracker.process(at_ms * MS, *sender, *spin);
        }
        let mut quic = Quic::default();
        tracker.write_to(&mut quic);
        quic
    }

    fn assert_round_trips(quic: &Quic, [least, most]: [u64; 2]) {
        assert_eq!(quic.spin_bit, SpinBit::Spins);
        let rtt = &quic.spin_rtt;
        assert!(rtt.count >= 5, "{rtt:?}");
        assert!(rtt.min >= least * MS && rtt.max <= most * MS, "{rtt:?}");
    }

    #[test]
    fn edges_have_the_round_trips_of_both_sides() {
        for gaps in [[1, 1], [1, 7], [20, 1], [9, 9]] {
            let quic =
                track(&Connection { gaps, ..CONNECTION }.observe(3_000, |_, _, spin| Some(spin)));
            let [client_gap, server_gap] = gaps;
            assert_round_trips(&quic, [100, 100 + client_gap + server_gap]);
            let (to_server, to_client) = (&quic.spin_rtt_to_server, &quic.spin_rtt_to_client);
            assert!(
                (80 * MS..=(80 + server_gap) * MS).contains(&to_server.p50),
                "{to_server:?}"
            );
            assert!(
                (20 * MS..=(20 + client_gap) * MS).contains(&to_client.p50),
                "{to_client:?}"
            );
        }
    }

    /// Ping-pong: each end sends one packet a round trip.
    #[test]
    fn one_packet_a_round_trip_is_enough() {
        let gaps = [100, 100];
        let quic =
            track(&Connection { gaps, ..CONNECTION }.observe(3_000, |_, _, spin| Some(spin)));
        assert_round_trips(&quic, [100, 200]);
    }

    /// Near the server, a late packet of the client may come after the server's answer to later ones.
    #[test]
    fn reordered_packets_are_no_edges() {
        for delays in [[50, 0], [30, 20], [0, 50]] {
            let connection = Connection {
                delays,
                ..CONNECTION
            };
            let mut packets = connection.observe(3_000, |_, _, spin| Some(spin));
            packets
                .iter_mut()
                .step_by(7)
                .for_each(|packet| packet.0 += 6);
            packets.sort_by_key(|packet| packet.0);
            assert_round_trips(&track(&packets), [94, 110]);
        }
    }

    /// The ends may take long to compute their keys.
    #[test]
    fn slow_handshake_does_not_hide_shorter_round_trips() {
        let packets = CONNECTION.observe(6_000, |_, _, spin| Some(spin));
        let quic = track_after_handshake(2_000, &packets);
        assert_eq!(quic.spin_bit, SpinBit::Spins);
        assert!((100 * MS..=106 * MS).contains(&quic.spin_rtt.p50));
    }

    #[test]
    fn lost_edges_lengthen_round_trips_only_by_the_gaps() {
        let kept = |now: u64| !now.is_multiple_of(3);
        let quic = track(&CONNECTION.observe(3_000, |now, _, spin| kept(now).then_some(spin)));
        assert_round_trips(&quic, [100, 106]);
    }

    #[test]
    fn pauses_of_the_application_are_no_round_trips() {
        let sends = |now: u64| now % 2_500 < 500;
        let quic = track(&CONNECTION.observe(20_000, |now, _, spin| sends(now).then_some(spin)));
        assert_round_trips(&quic, [100, 110]);
    }

    #[test]
    fn constant_bit_does_not_spin() {
        for constant in [Client, Server] {
            let value = |end, spin| if end == constant { true } else { spin };
            let quic = track(&CONNECTION.observe(3_000, |_, end, spin| Some(value(end, spin))));
            assert_eq!((quic.spin_bit, quic.spin_rtt.count), (SpinBit::Constant, 0));
        }
    }

    #[test]
    fn random_bit_does_not_spin() {
        for (gaps, random_end) in [
            ([1, 1], None),
            ([10, 1], None),
            ([1, 1], Some(Client)),
            ([10, 1], Some(Server)),
        ] {
            let mut random = 1u64;
            let mut value = |end, spin| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let is_random = random_end.is_none_or(|random_end| random_end == end);
                if is_random { random >> 63 == 1 } else { spin }
            };
            let connection = Connection { gaps, ..CONNECTION };
            let quic = track(&connection.observe(3_000, |_, end, spin| Some(value(end, spin))));
            assert_eq!(
                (quic.spin_bit, quic.spin_rtt.count),
                (SpinBit::Random, 0),
                "{gaps:?}"
            );
        }
    }

    #[test]
    fn one_direction_says_nothing() {
        let mut packets = CONNECTION.observe(3_000, |_, _, spin| Some(spin));
        packets.retain(|packet| packet.1 == Server);
        assert_eq!(track(&packets).spin_bit, SpinBit::Unknown);
        assert_eq!(track(&[]).spin_bit, SpinBit::Unknown);
    }
}
