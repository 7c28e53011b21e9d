// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections end when the memory budget is used up, so that there is room for others:
//! those that stand still first, then those of clients that hold more than their share, and where
//! others have waited for a while, more than an equal part. Of each kind, the client comes first that
//! holds most, and its largest connections.

use crate::admission::accounts::Holder;
use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    net::IpAddr,
};

/// What a connection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Of the connection.
    pub(crate) number: u64,
    pub(crate) holder: Holder,
    pub(crate) bytes: u64,
    /// Somebody takes nothing of what is there for them.
    pub(crate) is_still: bool,
}

/// What all connections may hold, and those of one client when that is used up, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) budget: u64,
    pub(crate) share: u64,
}

impl Bounds {
    /// What is left once connections have ended, so that the next byte is not one too many again.
    fn enough(self) -> u64 {
        self.budget / 4 * 3
    }
}

/// Clients that wait for memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<'a> {
    /// Those at the head of the queues.
    pub(crate) addresses: &'a [IpAddr],
    /// They have waited for a while: nobody knows who is behind them.
    pub(crate) for_long: bool,
}

/// The connections that are to end; none within the budget. Nobody loses a connection that moves while
/// there is nobody else.
pub(crate) fn choose(
    mut holdings: Vec<Holding>,
    bounds: Bounds,
    waiting: Waiting<'_>,
) -> Vec<Holding> {
    let mut total: u64 = holdings.iter().map(|holding| holding.bytes).sum();
    if total < bounds.budget {
        return Vec::new();
    }
    let mut held: HashMap<Holder, u64> = HashMap::new();
    for holding in &holdings {
        *held.entry(holding.holder).or_default() += holding.bytes;
    }
    holdings.sort_by_key(|holding| Reverse((held[&holding.holder], holding.holder, holding.bytes)));
    let is_alone = |holder: &Holder| {
        let is_own = |address: &IpAddr| *address == holder.address;
        held.len() == 1 && !waiting.for_long && waiting.addresses.iter().all(is_own)
    };
    let part = equal_part(&held, bounds, waiting);
    let is_due = |kind, holding: &Holding, left| {
        let holder = &holding.holder;
        match kind {
            Kind::Still => holding.is_still,
            Kind::Greedy => !holder.is_relay && left > bounds.share && !is_alone(holder),
            Kind::Uneven => !holder.is_relay && left > part && waiting.for_long,
        }
    };
    let mut left = held.clone();
    let mut chosen = Vec::new();
    for kind in [Kind::Still, Kind::Greedy, Kind::Uneven] {
        holdings.retain(|holding| {
            let left = left.get_mut(&holding.holder).expect("summed up");
            let ends = total > bounds.enough() && is_due(kind, holding, *left);
            if ends {
                total -= holding.bytes;
                *left -= holding.bytes;
                chosen.push(*holding);
            }
            !ends
        });
    }
    chosen
}

/// What each client could hold, those that wait included, and one that nobody sees behind them.
fn equal_part(held: &HashMap<Holder, u64>, bounds: Bounds, waiting: Waiting<'_>) -> u64 {
    let holders = held.keys().map(|holder| &holder.address);
    let clients: HashSet<_> = holders.chain(waiting.addresses).collect();
    bounds.budget / (clients.len() as u64 + 1)
}

/// Why a connection may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Still,
    Greedy,
    /// Others wait, and its client has more than an equal part.
    Uneven,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        budget: 100,
        share: 25,
    };

    const NOBODY: [u64; 0] = [];

    fn holding(number: u64, client: u8, bytes: u64) -> Holding {
        Holding {
            number,
            holder: Holder {
                address: [192, 0, 2, client].into(),
                is_relay: false,
            },
            bytes,
            is_still: false,
        }
    }

    fn still(holding: Holding) -> Holding {
        Holding {
            is_still: true,
            ..holding
        }
    }

    fn chosen(holdings: &[Holding], waiting: &[[u8; 4]]) -> Vec<u64> {
        chosen_after(holdings, waiting, false)
    }

    fn chosen_after(holdings: &[Holding], waiting: &[[u8; 4]], for_long: bool) -> Vec<u64> {
        let addresses: Vec<IpAddr> = waiting.iter().copied().map(Into::into).collect();
        let waiting = Waiting {
            addresses: &addresses,
            for_long,
        };
        let chosen = choose(holdings.to_vec(), BOUNDS, waiting);
        chosen.iter().map(|holding| holding.number).collect()
    }

    #[test]
    fn within_the_budget_nobody_loses_anything() {
        let holdings = [still(holding(1, 1, 90)), holding(2, 2, 9)];
        assert_eq!(chosen(&holdings, &[[192, 0, 2, 3]]), NOBODY);
    }

    #[test]
    fn the_greediest_loses_its_largest_until_there_is_room() {
        let greedy = [holding(1, 1, 20), holding(2, 1, 50), holding(3, 1, 30)];
        let modest = [holding(4, 2, 24), holding(5, 3, 24)];
        assert_eq!(chosen(&[&modest[..], &greedy].concat(), &[]), [2, 3]);
    }

    #[test]
    fn within_its_share_nobody_loses_what_moves() {
        let holdings: Vec<_> = (1..=5).map(|n| holding(n.into(), n, 24)).collect();
        assert_eq!(chosen(&holdings, &[]), NOBODY);
    }

    #[test]
    fn those_who_wait_get_room_from_whoever_has_more_than_an_equal_part() {
        let mut holdings: Vec<_> = (1..=5).map(|n| holding(n.into(), n, 20)).collect();
        holdings.push(holding(6, 6, 4));
        let waits = [[192, 0, 2, 9]];
        assert_eq!(chosen_after(&holdings, &waits, false), NOBODY);
        assert_eq!(chosen_after(&holdings, &waits, true), [5, 4]);
        holdings
            .iter_mut()
            .for_each(|holding| holding.holder.is_relay = true);
        assert_eq!(chosen_after(&holdings, &waits, true), NOBODY);
    }

    #[test]
    fn what_stands_still_goes_first_whoever_has_it() {
        let holdings = [
            holding(1, 1, 60),
            still(holding(2, 2, 40)),
            still(holding(3, 1, 10)),
        ];
        assert_eq!(chosen(&holdings, &[]), [3, 2]);
    }

    #[test]
    fn a_client_alone_loses_only_what_stands_still() {
        let holdings = [holding(1, 1, 90), still(holding(2, 1, 20))];
        assert_eq!(chosen(&holdings, &[]), [2]);
        assert_eq!(chosen(&holdings, &[[192, 0, 2, 1]]), [2]);
        assert_eq!(chosen(&holdings, &[[192, 0, 2, 9]]), [2, 1]);
        let own = [[192, 0, 2, 1]];
        assert_eq!(
            chosen_after(&holdings, &own, true),
            [2, 1],
            "who is behind?"
        );
    }

    #[test]
    fn a_relay_has_no_share() {
        let mut relay = holding(1, 1, 99);
        relay.holder.is_relay = true;
        assert_eq!(chosen(&[relay, holding(2, 2, 9)], &[]), NOBODY);
        assert_eq!(chosen(&[still(relay), holding(2, 2, 9)], &[]), [1]);
    }
}
