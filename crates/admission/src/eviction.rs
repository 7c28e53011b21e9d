// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction: chooses the connections that end when the memory budget is used up. Inactive connections end first, then
//! those of clients above their share. If other clients have waited for a while, connections of clients above an equal
//! part end last. Within each of these groups, the client that holds most comes first, with its largest connections
//! first.

use crate::accounts::ClientNetwork;
use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    net::IpAddr,
};

/// The memory that one connection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionMemory {
    /// The connection's number.
    pub number: u64,
    /// Its client.
    pub client_network: ClientNetwork,
    /// Number of bytes in socket buffers and pipes.
    pub bytes: u64,
    /// Whether one end has not read its buffered bytes for a while, or an HTTP client has made no request for a while.
    pub is_inactive: bool,
}

/// Bounds on memory in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bound of all connections together.
    pub budget: u64,
    /// Bound of one client's connections, once the budget is used up.
    pub share: u64,
}

impl Bounds {
    /// Returns the bytes that may remain after an eviction. They are below the budget, so that the next byte does not
    /// cause another eviction.
    fn low_watermark(self) -> u64 {
        self.budget / 4 * 3
    }
}

/// Clients whose new connections wait for memory.
#[derive(Debug, Clone, Copy)]
pub struct WaitingClients<'a> {
    /// Clients at the head of the listen queues.
    pub addresses: &'a [IpAddr],
    /// Whether they have waited for a while. Clients behind them in the queues are unknown.
    pub waited_long: bool,
}

/// Chooses the connections to end; none while their sum is below the budget. A client keeps its active connections if no other client holds memory or waiting.
pub fn choose(
    mut holdings: Vec<ConnectionMemory>,
    bounds: Bounds,
    waiting: WaitingClients<'_>,
) -> Vec<ConnectionMemory> {
    let mut total: u64 = holdings.iter().map(|holding| holding.bytes).sum();
    if total < bounds.budget {
        return Vec::new();
    }
    let mut held: HashMap<ClientNetwork, u64> = HashMap::new();
    for holding in &holdings {
        *held.entry(holding.client_network).or_default() += holding.bytes;
    }
    holdings.sort_by_key(|holding| {
        Reverse((
            held[&holding.client_network],
            holding.client_network,
            holding.bytes,
        ))
    });
    let is_alone = |client_network: &ClientNetwork| {
        let is_own = |address: &IpAddr| *address == client_network.address;
        held.len() == 1 && !waiting.waited_long && waiting.addresses.iter().all(is_own)
    };
    let equal_part = equal_part(&held, bounds, waiting);
    let is_due = |reason, holding: &ConnectionMemory, remaining| {
        let client_network = &holding.client_network;
        match reason {
            Reason::Inactive => holding.is_inactive,
            Reason::AboveShare => {
                !client_network.is_relay && remaining > bounds.share && !is_alone(client_network)
            }
            Reason::AboveEqualPart => {
                !client_network.is_relay && remaining > equal_part && waiting.waited_long
            }
        }
    };
    let mut remaining = held.clone();
    let mut chosen = Vec::new();
    for reason in [Reason::Inactive, Reason::AboveShare, Reason::AboveEqualPart] {
        holdings.retain(|holding| {
            let remaining = remaining
                .get_mut(&holding.client_network)
                .expect("each client has a sum");
            let is_evicted = total > bounds.low_watermark() && is_due(reason, holding, *remaining);
            if is_evicted {
                total -= holding.bytes;
                *remaining -= holding.bytes;
                chosen.push(*holding);
            }
            !is_evicted
        });
    }
    chosen
}

/// Returns the budget divided by the number of clients: those that hold memory, those that wait, and one unknown client
/// behind them.
fn equal_part(
    held: &HashMap<ClientNetwork, u64>,
    bounds: Bounds,
    waiting: WaitingClients<'_>,
) -> u64 {
    let holders = held.keys().map(|client_network| &client_network.address);
    let clients: HashSet<_> = holders.chain(waiting.addresses).collect();
    bounds.budget / (clients.len() as u64 + 1)
}

/// Reason for which a connection may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Nothing moves: see [`ConnectionMemory::is_inactive`].
    Inactive,
    /// The client holds more than its share, and others hold memory or wait.
    AboveShare,
    /// Others have waited for a while, and the client has more than an equal part.
    AboveEqualPart,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        budget: 100,
        share: 25,
    };

    const NO_CONNECTIONS: [u64; 0] = [];

    fn holding(number: u64, client: u8, bytes: u64) -> ConnectionMemory {
        ConnectionMemory {
            number,
            client_network: ClientNetwork {
                address: [192, 0, 2, client].into(),
                is_relay: false,
            },
            bytes,
            is_inactive: false,
        }
    }

    fn stalled(holding: ConnectionMemory) -> ConnectionMemory {
        ConnectionMemory {
            is_inactive: true,
            ..holding
        }
    }

    fn choose_numbers(holdings: &[ConnectionMemory], waiting: &[[u8; 4]]) -> Vec<u64> {
        choose_numbers_after_wait(holdings, waiting, false)
    }

    fn choose_numbers_after_wait(
        holdings: &[ConnectionMemory],
        waiting: &[[u8; 4]],
        waited_long: bool,
    ) -> Vec<u64> {
        let addresses: Vec<IpAddr> = waiting.iter().copied().map(Into::into).collect();
        let waiting = WaitingClients {
            addresses: &addresses,
            waited_long,
        };
        let chosen = choose(holdings.to_vec(), BOUNDS, waiting);
        chosen.iter().map(|holding| holding.number).collect()
    }

    #[test]
    fn evicts_nothing_within_the_budget() {
        let holdings = [stalled(holding(1, 1, 90)), holding(2, 2, 9)];
        assert_eq!(choose_numbers(&holdings, &[[192, 0, 2, 3]]), NO_CONNECTIONS);
    }

    #[test]
    fn evicts_the_largest_connections_of_the_largest_client() {
        let above_share = [holding(1, 1, 20), holding(2, 1, 50), holding(3, 1, 30)];
        let within_share = [holding(4, 2, 24), holding(5, 3, 24)];
        assert_eq!(
            choose_numbers(&[&within_share[..], &above_share].concat(), &[]),
            [2, 3]
        );
    }

    #[test]
    fn keeps_moving_connections_of_clients_within_their_share() {
        let holdings: Vec<_> = (1..=5).map(|n| holding(n.into(), n, 24)).collect();
        assert_eq!(choose_numbers(&holdings, &[]), NO_CONNECTIONS);
    }

    #[test]
    fn evicts_clients_above_an_equal_part_for_those_that_wait() {
        let mut holdings: Vec<_> = (1..=5).map(|n| holding(n.into(), n, 20)).collect();
        holdings.push(holding(6, 6, 4));
        let waiting = [[192, 0, 2, 9]];
        assert_eq!(
            choose_numbers_after_wait(&holdings, &waiting, false),
            NO_CONNECTIONS
        );
        assert_eq!(choose_numbers_after_wait(&holdings, &waiting, true), [5, 4]);
        holdings
            .iter_mut()
            .for_each(|holding| holding.client_network.is_relay = true);
        assert_eq!(
            choose_numbers_after_wait(&holdings, &waiting, true),
            NO_CONNECTIONS
        );
    }

    #[test]
    fn evicts_stalled_connections_first() {
        let holdings = [
            holding(1, 1, 60),
            stalled(holding(2, 2, 40)),
            stalled(holding(3, 1, 10)),
        ];
        assert_eq!(choose_numbers(&holdings, &[]), [3, 2]);
    }

    #[test]
    fn evicts_only_stalled_connections_of_a_lone_client() {
        let holdings = [holding(1, 1, 90), stalled(holding(2, 1, 20))];
        assert_eq!(choose_numbers(&holdings, &[]), [2]);
        assert_eq!(choose_numbers(&holdings, &[[192, 0, 2, 1]]), [2]);
        assert_eq!(choose_numbers(&holdings, &[[192, 0, 2, 9]]), [2, 1]);
        let own = [[192, 0, 2, 1]];
        assert_eq!(
            choose_numbers_after_wait(&holdings, &own, true),
            [2, 1],
            "the clients behind it in the queue are unknown"
        );
    }

    #[test]
    fn applies_no_share_to_relays() {
        let mut relay = holding(1, 1, 99);
        relay.client_network.is_relay = true;
        assert_eq!(
            choose_numbers(&[relay, holding(2, 2, 9)], &[]),
            NO_CONNECTIONS
        );
        assert_eq!(
            choose_numbers(&[stalled(relay), holding(2, 2, 9)], &[]),
            [1]
        );
    }
}
