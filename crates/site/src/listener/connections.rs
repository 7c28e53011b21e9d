// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections there are, and from where: bounded, and no address may have all of them.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

/// Connections at once, at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Beyond them newcomers are closed at once.
    pub(crate) all: usize,
    /// Of them from one address, or one network of IPv6 that a single host may have (64 bits).
    pub(crate) of_one: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Connections {
    room: Room,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Somebody in it, until dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    connections: Connections,
    from: IpAddr,
}

impl Connections {
    pub(crate) fn new(room: Room) -> Self {
        let counts = Arc::default();
        Self { room, counts }
    }

    /// `None`: there is no room for one more from there.
    pub(crate) fn enter(&self, from: IpAddr) -> Option<Connection> {
        let from = network(from);
        let mut counts = self.counts.lock();
        let all: usize = counts.values().sum();
        let of_one = counts.get(&from).copied().unwrap_or_default();
        if all >= self.room.all || of_one >= self.room.of_one {
            return None;
        }
        counts.insert(from, of_one + 1);
        let connections = self.clone();
        Some(Connection { connections, from })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut counts = self.connections.counts.lock();
        match counts.get_mut(&self.from) {
            Some(of_one) if *of_one > 1 => *of_one -= 1,
            _ => drop(counts.remove(&self.from)),
        }
    }
}

/// What one host may have: an address of IPv4, 64 bits of IPv6.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_the_room_of_all_others() {
        let connections = Connections::new(Room {
            all: 64,
            of_one: 32,
        });
        let enter = |from: &str| connections.enter(from.parse().unwrap());
        let greedy: Vec<_> = std::iter::from_fn(|| enter("192.0.2.1")).collect();
        assert_eq!(greedy.len(), 32);
        assert!(
            enter("::ffff:192.0.2.1").is_none(),
            "the same in other clothes"
        );
        let networks = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        let [one, same, other] = networks.map(|from| network(from.parse().unwrap()));
        assert!(one == same && one != other);
        let others: Vec<_> = (0..100)
            .map_while(|number| enter(&format!("198.51.100.{number}")))
            .collect();
        assert_eq!(others.len(), 32);
        drop(greedy);
        assert!(enter("192.0.2.1").is_some());
        drop(others);
        assert!(
            connections.counts.lock().is_empty(),
            "who went is forgotten"
        );
    }
}
