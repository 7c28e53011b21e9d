// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions on SYNs: which are held until the destination answers, and which bypass the relay. No I/O.
//!
//! Each client has a bound of its own, so that a client that scans silent ports keeps no other client out. SYNs beyond
//! a bound bypass the relay. A SYN that may not bypass it is dropped.

use crate::flow::Flow;
use longhaul_protocol::networks::network;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Maximum pending connections of one listener: held SYNs, and upstream legs that wait for their downstream legs.
/// Memory: a socket, a task and under 1 KiB each.
pub const PENDING_MAX: usize = 1024;

/// Maximum pending connections of one client, which is an IPv4 address or an IPv6 /64. If destinations answer after
/// 100 ms, a client can open 1,280 connections a second, enough for an office behind one address.
pub const PENDING_PER_CLIENT_MAX: usize = PENDING_MAX / 8;

/// Time for which retransmissions of a SYN that bypassed the relay bypass it, too: the answer to the first SYN may be in
/// flight. TCP retransmits a SYN after 1, 3, 7, 15 and 31 s. An answer may take as long as the relay's connect timeout,
/// 10 s by default.
const BYPASS_TTL: Duration = Duration::from_secs(32);

/// Maximum number of connections remembered as bypassing for [`BYPASS_TTL`]. Memory: 1.5 MiB at most.
const BYPASSED_FLOWS_MAX: usize = 16 * 1024;

/// Number of pending connections of each client.
#[derive(Debug, Default)]
pub struct ClientCounts(HashMap<IpAddr, usize>);

impl ClientCounts {
    /// Adds one to the count of `client`.
    pub fn add(&mut self, client: IpAddr) {
        *self.0.entry(network(client)).or_default() += 1;
    }

    /// Subtracts one from the count of `client`.
    pub fn remove(&mut self, client: IpAddr) {
        let client = network(client);
        if let Some(count) = self.0.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&client);
            }
        }
    }

    /// The count of `client`.
    #[must_use]
    pub fn count(&self, client: IpAddr) -> usize {
        self.0.get(&network(client)).copied().unwrap_or(0)
    }
}

/// The decision on a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Hold the SYN until its destination has answered.
    Hold,
    /// Drop the SYN silently; TCP sends it again. Either an earlier SYN of its connection is held, or the SYN exceeds a
    /// bound and may not bypass the relay.
    Drop,
    /// Let the SYN bypass the relay, as the first SYN of its connection did.
    BypassAgain,
    /// Let the SYN bypass the relay: its client has [`PENDING_PER_CLIENT_MAX`] pending connections, or all connections that one
    /// client may have.
    BypassForClientBound,
    /// Let the SYN bypass the relay: there is no room for more pending connections of any client.
    BypassForTotalBound,
}

/// A SYN that has arrived, and what the decision on it depends on.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The connection that the SYN opens.
    pub flow: Flow,
    /// Whether this host itself opens the connection. The bound per client does not apply to it.
    pub is_local: bool,
    /// Whether the SYN may bypass the relay.
    pub may_bypass: bool,
    /// Upstream legs that wait for their downstream legs.
    pub legs_waiting: usize,
    /// Upstream legs of this client that wait for their downstream legs.
    pub client_legs_waiting: usize,
    /// Connections that this client may still open, pending ones included.
    pub client_connections_left: usize,
    /// Connections that all clients may still open, pending ones included.
    pub connections_left: usize,
}

/// The held SYNs of one listener, and the connections that bypassed the relay in the last `BYPASS_TTL`.
#[derive(Debug, Default)]
pub struct HeldSyns {
    /// Packet ID of each held SYN in the kernel's queue.
    held: HashMap<Flow, u32>,
    clients: ClientCounts,
    /// Connections that bypassed the relay in the last [`BYPASS_TTL`], [`BYPASSED_FLOWS_MAX`] at most.
    bypassed_flows: HashSet<Flow>,
    /// Time of the first SYN of each connection in `bypassed_flows`, oldest first.
    bypass_times: VecDeque<(Instant, Flow)>,
}

impl HeldSyns {
    /// Decides on a SYN and remembers the decision. `packet_id` is its ID in the kernel's queue.
    pub fn admit(&mut self, arrival: Arrival, packet_id: u32, now: Instant) -> Decision {
        self.forget_old_bypasses(now);
        let decision = self.decide(arrival);
        match decision {
            Decision::Hold => {
                self.held.insert(arrival.flow, packet_id);
                self.clients.add(arrival.flow.client().ip());
            }
            Decision::BypassForClientBound | Decision::BypassForTotalBound => {
                self.bypassed_flows.insert(arrival.flow);
                self.bypass_times.push_back((now, arrival.flow));
            }
            Decision::Drop | Decision::BypassAgain => {}
        }
        decision
    }

    fn decide(&self, arrival: Arrival) -> Decision {
        if self.held.contains_key(&arrival.flow) {
            return Decision::Drop;
        }
        if self.bypassed_flows.contains(&arrival.flow) {
            return Decision::BypassAgain;
        }
        let client_pending =
            self.clients.count(arrival.flow.client().ip()) + arrival.client_legs_waiting;
        let is_full =
            self.held.len() + arrival.legs_waiting >= arrival.connections_left.min(PENDING_MAX);
        let is_client_full = !arrival.is_local
            && client_pending >= PENDING_PER_CLIENT_MAX.min(arrival.client_connections_left);
        match arrival.may_bypass {
            false if is_full || is_client_full => Decision::Drop,
            true if is_full => Decision::BypassForTotalBound,
            true if is_client_full => Decision::BypassForClientBound,
            _ => Decision::Hold,
        }
    }

    /// The number of held SYNs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Removes a held SYN and returns its packet ID; `None` if the SYN is no longer held.
    pub fn remove(&mut self, flow: Flow) -> Option<u32> {
        let packet_id = self.held.remove(&flow)?;
        self.clients.remove(flow.client().ip());
        Some(packet_id)
    }

    /// Removes all held SYNs and returns their packet IDs.
    pub fn drain(&mut self) -> Vec<u32> {
        self.clients = ClientCounts::default();
        self.held.drain().map(|(_, packet_id)| packet_id).collect()
    }

    fn forget_old_bypasses(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= BYPASS_TTL;
        while let Some((at, flow)) = self.bypass_times.front() {
            if !is_old(*at) && self.bypass_times.len() < BYPASSED_FLOWS_MAX {
                break;
            }
            self.bypassed_flows.remove(flow);
            self.bypass_times.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn syn(client: &str, port: u16) -> Arrival {
        let client = SocketAddr::new(client.parse().unwrap(), port);
        Arrival {
            flow: Flow::new(client, "192.0.2.1:80".parse().unwrap()),
            is_local: false,
            may_bypass: true,
            legs_waiting: 0,
            client_legs_waiting: 0,
            client_connections_left: usize::MAX,
            connections_left: PENDING_MAX,
        }
    }

    fn scan_ports(syns: &mut HeldSyns, client: &str, count: u16, now: Instant) -> Vec<Decision> {
        let ports = 1..=count;
        ports
            .map(|port| syns.admit(syn(client, port), port.into(), now))
            .collect()
    }

    #[test]
    fn lets_a_client_above_its_bound_bypass_and_holds_others() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let decisions = scan_ports(
            &mut syns,
            "10.0.0.1",
            PENDING_PER_CLIENT_MAX as u16 + 2,
            now,
        );
        assert!(
            decisions[..PENDING_PER_CLIENT_MAX]
                .iter()
                .all(|d| *d == Decision::Hold)
        );
        assert_eq!(
            decisions[PENDING_PER_CLIENT_MAX..],
            [Decision::BypassForClientBound; 2]
        );
        assert_eq!(syns.admit(syn("10.0.0.2", 1), 0, now), Decision::Hold);
        assert_eq!(syns.remove(syn("10.0.0.1", 1).flow), Some(1));
        assert_eq!(syns.admit(syn("10.0.0.1", 999), 0, now), Decision::Hold);
    }

    #[test]
    fn counts_an_ipv6_network_as_one_client() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        for host in 0..PENDING_PER_CLIENT_MAX {
            let client = format!("2001:db8::{host:x}");
            assert_eq!(syns.admit(syn(&client, 1), 0, now), Decision::Hold);
        }
        let another = syn("2001:db8::ffff:1", 1);
        assert_eq!(syns.admit(another, 0, now), Decision::BypassForClientBound);
    }

    #[test]
    fn counts_upstream_legs_that_wait() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let waits = |legs_waiting, client_legs_waiting, port| Arrival {
            legs_waiting,
            client_legs_waiting,
            ..syn("10.0.0.1", port)
        };
        assert_eq!(
            syns.admit(
                waits(PENDING_PER_CLIENT_MAX, PENDING_PER_CLIENT_MAX, 1),
                0,
                now
            ),
            Decision::BypassForClientBound
        );
        assert_eq!(
            syns.admit(waits(PENDING_MAX, 0, 2), 0, now),
            Decision::BypassForTotalBound
        );
        assert_eq!(
            syns.admit(waits(PENDING_MAX - 1, 0, 3), 0, now),
            Decision::Hold
        );
    }

    #[test]
    fn lets_a_client_with_all_its_connections_bypass() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let with_room = |client_room, port| Arrival {
            client_connections_left: client_room,
            ..syn("10.0.0.1", port)
        };
        assert_eq!(syns.admit(with_room(1, 1), 0, now), Decision::Hold);
        assert_eq!(
            syns.admit(with_room(1, 2), 0, now),
            Decision::BypassForClientBound
        );
    }

    #[test]
    fn treats_retransmissions_as_the_first_syn() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        assert_eq!(syns.admit(syn("10.0.0.1", 1), 0, now), Decision::Hold);
        assert_eq!(syns.admit(syn("10.0.0.1", 1), 1, now), Decision::Drop);
        let full = Arrival {
            connections_left: 0,
            ..syn("10.0.0.1", 2)
        };
        assert_eq!(syns.admit(full, 2, now), Decision::BypassForTotalBound);
        let retransmission = syn("10.0.0.1", 2);
        assert_eq!(syns.admit(retransmission, 3, now), Decision::BypassAgain);
        let forgotten_at = now + BYPASS_TTL;
        assert_eq!(syns.admit(retransmission, 4, forgotten_at), Decision::Hold);
    }

    #[test]
    fn drops_own_syns_without_room_and_applies_no_client_bound() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let own = |port, room| Arrival {
            is_local: true,
            may_bypass: false,
            connections_left: room,
            ..syn("10.0.0.1", port)
        };
        for port in 0..=PENDING_PER_CLIENT_MAX as u16 {
            assert_eq!(syns.admit(own(port, PENDING_MAX), 0, now), Decision::Hold);
        }
        assert_eq!(syns.admit(own(999, 1), 0, now), Decision::Drop);
    }

    #[test]
    fn drops_syns_that_may_not_bypass() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let without_bypass = |port, client_room, room| Arrival {
            may_bypass: false,
            client_connections_left: client_room,
            connections_left: room,
            ..syn("10.0.0.1", port)
        };
        assert_eq!(
            syns.admit(without_bypass(1, 0, PENDING_MAX), 0, now),
            Decision::Drop
        );
        assert_eq!(syns.admit(without_bypass(2, 9, 0), 0, now), Decision::Drop);
        assert_eq!(
            syns.admit(without_bypass(2, 9, PENDING_MAX), 0, now),
            Decision::Hold
        );
    }

    #[test]
    fn bounds_the_connections_that_bypassed() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        for n in 0..3 * BYPASSED_FLOWS_MAX as u32 {
            let client = std::net::Ipv4Addr::from_bits(n).to_string();
            let full = Arrival {
                connections_left: 0,
                ..syn(&client, 1)
            };
            assert_eq!(syns.admit(full, n, now), Decision::BypassForTotalBound);
        }
        assert!(syns.bypassed_flows.len() <= BYPASSED_FLOWS_MAX);
        assert_eq!(syns.bypassed_flows.len(), syns.bypass_times.len());
    }

    #[test]
    fn draining_frees_the_room_of_all_clients() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        scan_ports(&mut syns, "10.0.0.1", PENDING_PER_CLIENT_MAX as u16, now);
        assert_eq!(syns.drain().len(), PENDING_PER_CLIENT_MAX);
        assert_eq!(syns.remove(syn("10.0.0.1", 1).flow), None);
        assert_eq!(syns.admit(syn("10.0.0.1", 1), 0, now), Decision::Hold);
    }
}
