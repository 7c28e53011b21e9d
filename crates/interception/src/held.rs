// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which SYNs are held until the destination answers, and which pass by, as decisions without I/O. One client that knocks
//! at silent ports keeps nobody else out: it has a bound of its own, and what is beyond a bound goes straight to its
//! destination.

use crate::flow::Flow;
use longhaul_protocol::networks::network;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Connections of one listener that are on their way at once: SYNs that are held, and far legs that wait for their near
/// legs. Memory: a socket, a task and under 1 KiB each.
pub const HELD_MAX: usize = 1024;

/// Of them, those of one client: who has one address, of IPv6 one /64. Suits an office behind one address whose
/// destinations are 100 ms away and answer: 1,280 connections a second.
pub const CLIENT_MAX: usize = HELD_MAX / 8;

/// A SYN that passed by does so when it is sent again, too, as long as this: its first answer may be on its way. TCP sends
/// the third repetition 7 s after the first SYN, and the answer to it may take as long as a connection's timeout here.
const PASSES_FOR: Duration = Duration::from_secs(32);

/// Connections that are remembered for that; memory: 1.5 MiB at most.
const PASSED_MAX: usize = 16 * 1024;

/// How many of something each client has.
#[derive(Debug, Default)]
pub struct PerClient(HashMap<IpAddr, usize>);

impl PerClient {
    /// One more of `client`'s.
    pub fn add(&mut self, client: IpAddr) {
        *self.0.entry(network(client)).or_default() += 1;
    }

    /// One fewer of `client`'s.
    pub fn remove(&mut self, client: IpAddr) {
        let client = network(client);
        if let Some(count) = self.0.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&client);
            }
        }
    }

    /// Those of `client`.
    #[must_use]
    pub fn count(&self, client: IpAddr) -> usize {
        self.0.get(&network(client)).copied().unwrap_or(0)
    }
}

/// What becomes of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is held until its destination has answered.
    Hold,
    /// It never was: its first is held already, or it can't pass by. TCP sends it again.
    Drop,
    /// It goes straight to its destination, as its first did.
    PassAgain,
    /// It goes straight to its destination, because its client has [`CLIENT_MAX`] on their way, or as many connections as it
    /// may have.
    PassClient,
    /// It goes straight to its destination, because all clients have as many on their way as there is room for.
    PassAll,
}

/// Where a SYN comes from, and what else is on its way.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Whose SYN it is.
    pub flow: Flow,
    /// This host's own, which have no bound of their own.
    pub is_local: bool,
    /// There is a way to the destination that is not through the relay, and it may be taken.
    pub may_pass: bool,
    /// Far legs that wait for their near legs.
    pub waiting: usize,
    /// Of them, those of this client.
    pub waiting_of_client: usize,
    /// How many connections more this client may have.
    pub room_of_client: usize,
    /// How many may be on their way at once.
    pub room: usize,
}

/// The SYNs of one listener that are held, and those that passed by of late.
#[derive(Debug, Default)]
pub struct HeldSyns {
    /// By the kernel's number.
    held: HashMap<Flow, u32>,
    clients: PerClient,
    passed: HashSet<Flow>,
    /// The same in the order in which they passed.
    passed_at: VecDeque<(Instant, Flow)>,
}

impl HeldSyns {
    /// Decides on a SYN with this number, and remembers it.
    pub fn take(&mut self, arrival: Arrival, number: u32, now: Instant) -> Decision {
        self.forget_passed(now);
        let decision = self.decide(arrival);
        match decision {
            Decision::Hold => {
                self.held.insert(arrival.flow, number);
                self.clients.add(arrival.flow.client().ip());
            }
            Decision::PassClient | Decision::PassAll => {
                self.passed.insert(arrival.flow);
                self.passed_at.push_back((now, arrival.flow));
            }
            Decision::Drop | Decision::PassAgain => {}
        }
        decision
    }

    fn decide(&self, arrival: Arrival) -> Decision {
        if self.held.contains_key(&arrival.flow) {
            return Decision::Drop;
        }
        if self.passed.contains(&arrival.flow) {
            return Decision::PassAgain;
        }
        let client = self.clients.count(arrival.flow.client().ip()) + arrival.waiting_of_client;
        let full = self.held.len() + arrival.waiting >= arrival.room.min(HELD_MAX);
        let greedy = !arrival.is_local && client >= CLIENT_MAX.min(arrival.room_of_client);
        match arrival.may_pass {
            false if full || greedy => Decision::Drop,
            true if full => Decision::PassAll,
            true if greedy => Decision::PassClient,
            _ => Decision::Hold,
        }
    }

    /// SYNs that are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// The number of a SYN that is held no longer; `None` if it was given up.
    pub fn remove(&mut self, flow: Flow) -> Option<u32> {
        let number = self.held.remove(&flow)?;
        self.clients.remove(flow.client().ip());
        Some(number)
    }

    /// Gives all up that are held; returns their numbers.
    pub fn give_up(&mut self) -> Vec<u32> {
        self.clients = PerClient::default();
        self.held.drain().map(|(_, number)| number).collect()
    }

    fn forget_passed(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= PASSES_FOR;
        while let Some((at, flow)) = self.passed_at.front() {
            if !is_old(*at) && self.passed_at.len() < PASSED_MAX {
                break;
            }
            self.passed.remove(flow);
            self.passed_at.pop_front();
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
            may_pass: true,
            waiting: 0,
            waiting_of_client: 0,
            room_of_client: usize::MAX,
            room: HELD_MAX,
        }
    }

    fn scanned(syns: &mut HeldSyns, client: &str, count: u16, now: Instant) -> Vec<Decision> {
        let ports = 1..=count;
        ports
            .map(|port| syns.take(syn(client, port), port.into(), now))
            .collect()
    }

    #[test]
    fn a_client_beyond_its_bound_passes_by_and_others_are_held() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let decisions = scanned(&mut syns, "10.0.0.1", CLIENT_MAX as u16 + 2, now);
        assert!(decisions[..CLIENT_MAX].iter().all(|d| *d == Decision::Hold));
        assert_eq!(decisions[CLIENT_MAX..], [Decision::PassClient; 2]);
        assert_eq!(syns.take(syn("10.0.0.2", 1), 0, now), Decision::Hold);
        assert_eq!(syns.remove(syn("10.0.0.1", 1).flow), Some(1));
        assert_eq!(syns.take(syn("10.0.0.1", 999), 0, now), Decision::Hold);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        for host in 0..CLIENT_MAX {
            let client = format!("2001:db8::{host:x}");
            assert_eq!(syns.take(syn(&client, 1), 0, now), Decision::Hold);
        }
        let another = syn("2001:db8::ffff:1", 1);
        assert_eq!(syns.take(another, 0, now), Decision::PassClient);
    }

    #[test]
    fn far_legs_that_wait_count_too() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let waits = |waiting, waiting_of_client, port| Arrival {
            waiting,
            waiting_of_client,
            ..syn("10.0.0.1", port)
        };
        let most = CLIENT_MAX;
        assert_eq!(
            syns.take(waits(most, most, 1), 0, now),
            Decision::PassClient
        );
        assert_eq!(syns.take(waits(HELD_MAX, 0, 2), 0, now), Decision::PassAll);
        assert_eq!(syns.take(waits(HELD_MAX - 1, 0, 3), 0, now), Decision::Hold);
    }

    #[test]
    fn who_has_all_its_connections_passes_by() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let with_room = |room_of_client, port| Arrival {
            room_of_client,
            ..syn("10.0.0.1", port)
        };
        assert_eq!(syns.take(with_room(1, 1), 0, now), Decision::Hold);
        assert_eq!(syns.take(with_room(1, 2), 0, now), Decision::PassClient);
    }

    #[test]
    fn what_is_sent_again_fares_as_before() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        assert_eq!(syns.take(syn("10.0.0.1", 1), 0, now), Decision::Hold);
        assert_eq!(syns.take(syn("10.0.0.1", 1), 1, now), Decision::Drop);
        let full = Arrival {
            room: 0,
            ..syn("10.0.0.1", 2)
        };
        assert_eq!(syns.take(full, 2, now), Decision::PassAll);
        let later = syn("10.0.0.1", 2);
        assert_eq!(syns.take(later, 3, now), Decision::PassAgain);
        let over = now + PASSES_FOR;
        assert_eq!(syns.take(later, 4, over), Decision::Hold);
    }

    #[test]
    fn this_hosts_own_wait_where_there_is_no_room_and_have_no_bound() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let own = |port, room| Arrival {
            is_local: true,
            may_pass: false,
            room,
            ..syn("10.0.0.1", port)
        };
        for port in 0..=CLIENT_MAX as u16 {
            assert_eq!(syns.take(own(port, HELD_MAX), 0, now), Decision::Hold);
        }
        assert_eq!(syns.take(own(999, 1), 0, now), Decision::Drop);
    }

    #[test]
    fn what_may_not_pass_waits() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        let kept_in = |port, room_of_client, room| Arrival {
            may_pass: false,
            room_of_client,
            room,
            ..syn("10.0.0.1", port)
        };
        assert_eq!(syns.take(kept_in(1, 0, HELD_MAX), 0, now), Decision::Drop);
        assert_eq!(syns.take(kept_in(2, 9, 0), 0, now), Decision::Drop);
        assert_eq!(syns.take(kept_in(2, 9, HELD_MAX), 0, now), Decision::Hold);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        for n in 0..3 * PASSED_MAX as u32 {
            let client = std::net::Ipv4Addr::from_bits(n).to_string();
            let full = Arrival {
                room: 0,
                ..syn(&client, 1)
            };
            assert_eq!(syns.take(full, n, now), Decision::PassAll);
        }
        assert!(syns.passed.len() <= PASSED_MAX);
        assert_eq!(syns.passed.len(), syns.passed_at.len());
    }

    #[test]
    fn those_given_up_leave_room() {
        let (mut syns, now) = (HeldSyns::default(), Instant::now());
        scanned(&mut syns, "10.0.0.1", CLIENT_MAX as u16, now);
        assert_eq!(syns.give_up().len(), CLIENT_MAX);
        assert_eq!(syns.remove(syn("10.0.0.1", 1).flow), None);
        assert_eq!(syns.take(syn("10.0.0.1", 1), 0, now), Decision::Hold);
    }
}
