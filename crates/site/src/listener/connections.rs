// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections there are, and from where: bounded, and no address may have all of them. Who is not let in yet
//! makes room for newcomers, the longest there first.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

/// Connections at once, at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Beyond them one that is not let in is closed, or the newcomer if all are.
    pub(crate) all: usize,
    /// Of them from one address, or one network of IPv6 that a single host may have (64 bits). Beyond them newcomers from
    /// there are closed at once.
    pub(crate) of_one: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Connections {
    room: Room,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    counts: HashMap<IpAddr, usize>,
    /// Those that are not let in, by age.
    strangers: BTreeMap<u64, Stranger>,
    next: u64,
}

#[derive(Debug)]
struct Stranger {
    from: IpAddr,
    displaced: Arc<Notify>,
}

/// Somebody in it, until dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    table: Arc<Mutex<Table>>,
    from: IpAddr,
    number: u64,
    displaced: Arc<Notify>,
    admitted: Mutex<bool>,
}

impl Connections {
    pub(crate) fn new(room: Room) -> Self {
        let table = Arc::default();
        Self { room, table }
    }

    /// `None`: there is no room for one more from there.
    pub(crate) fn enter(&self, from: IpAddr) -> Option<Connection> {
        let from = network(from);
        let mut table = self.table.lock();
        let all: usize = table.counts.values().sum();
        let of_one = table.counts.get(&from).copied().unwrap_or_default();
        if of_one >= self.room.of_one || all >= self.room.all && !table.displace() {
            return None;
        }
        let displaced = Arc::<Notify>::default();
        let number = table.enter(from, displaced.clone());
        Some(Connection {
            table: self.table.clone(),
            from,
            number,
            displaced,
            admitted: Mutex::default(),
        })
    }
}

impl Table {
    fn enter(&mut self, from: IpAddr, displaced: Arc<Notify>) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.counts.entry(from).or_default() += 1;
        self.strangers.insert(number, Stranger { from, displaced });
        number
    }

    /// Takes its place from who has been a stranger for longest, if there is one.
    fn displace(&mut self) -> bool {
        let Some((_, Stranger { from, displaced })) = self.strangers.pop_first() else {
            return false;
        };
        self.leave(from);
        displaced.notify_one();
        true
    }

    fn leave(&mut self, from: IpAddr) {
        match self.counts.get_mut(&from) {
            Some(of_one) if *of_one > 1 => *of_one -= 1,
            _ => drop(self.counts.remove(&from)),
        }
    }
}

impl Connection {
    /// It has shown a token, and keeps its place.
    pub(crate) fn admit(&self) {
        let mut table = self.table.lock();
        // Displaced meanwhile, it is closed.
        *self.admitted.lock() |= table.strangers.remove(&self.number).is_some();
    }

    /// Returns when it is to be closed: it was not let in for so long, or a newcomer has its place.
    pub(crate) async fn overstays(&self, limit: Duration) {
        // Whichever comes first.
        let _ = timeout(limit, self.displaced.notified()).await;
        if *self.admitted.lock() {
            pending::<()>().await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        let was_stranger = table.strangers.remove(&self.number).is_some();
        if was_stranger || *self.admitted.lock() {
            table.leave(self.from);
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
        greedy.iter().for_each(Connection::admit);
        let others: Vec<_> = (0..32)
            .filter_map(|number| enter(&format!("198.51.100.{number}")))
            .collect();
        others.iter().for_each(Connection::admit);
        assert_eq!(others.len(), 32);
        assert!(enter("203.0.113.1").is_none(), "all are let in");
        drop(greedy);
        assert!(enter("192.0.2.1").is_some());
        drop(others);
        assert!(
            connections.table.lock().counts.is_empty(),
            "who went is forgotten"
        );
    }

    #[tokio::test]
    async fn a_stranger_makes_room_for_a_newcomer() {
        let connections = Connections::new(Room { all: 3, of_one: 2 });
        let enter = |from: &str| connections.enter(from.parse().unwrap()).unwrap();
        let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(10));
        let (known, eldest) = (enter("192.0.2.1"), enter("192.0.2.1"));
        known.admit();
        let younger = enter("192.0.2.2");
        let newcomer = enter("192.0.2.3");
        eldest.overstays(hour).await;
        eldest.admit();
        assert!(!*eldest.admitted.lock(), "too late");
        assert!(timeout(moment, younger.overstays(hour)).await.is_err());
        assert!(timeout(2 * moment, known.overstays(moment)).await.is_err());
        newcomer.overstays(moment).await;
        drop(eldest);
        let table = connections.table.lock();
        assert_eq!(table.counts.values().sum::<usize>(), 3);
    }
}
