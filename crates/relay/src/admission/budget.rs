// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections the limit on descriptors has room for. Those beyond wait in the listen
//! queue, where they cost nothing, instead of failing half-way.

use crate::{admission::lookups, config::Config};

/// Said where the limit, raised as far as it goes, leaves no room.
pub(crate) const NO_ROOM: &str = "RLIMIT_NOFILE is too low for a single connection: raise the hard limit \
                                  (ulimit -Hn, LimitNOFILE= of a service)";

/// What a configuration wants of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// At once.
    pub(crate) connections: usize,
    pub(crate) workers: usize,
    pub(crate) listeners: usize,
    /// Connections to peers that each worker keeps ready.
    pub(crate) ready: usize,
    /// The most legs that one connection may leave by, at least 1.
    pub(crate) streams: usize,
}

impl Demand {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            connections: config.limits.connections_max as usize,
            workers: config.limits.workers,
            listeners: config.listeners.len(),
            ready: config.peers.values().map(|peer| peer.pool).sum(),
            streams: config
                .peers
                .values()
                .map(|peer| peer.streams)
                .max()
                .unwrap_or(1)
                .into(),
        }
    }

    /// A client's leg and the others.
    pub(crate) fn per_connection(&self) -> usize {
        1 + self.streams
    }

    /// What is needed whether there are connections or not.
    fn reserve(&self) -> usize {
        RESERVE + self.workers * (RESERVE_PER_WORKER + 2 * self.listeners + self.ready)
    }

    /// Descriptors for all connections, none of which has a pipe.
    pub(crate) fn idle(&self) -> usize {
        self.reserve() + self.connections * self.per_connection()
    }

    /// Descriptors for all connections, all of which have pipes for both directions, and for as many
    /// lookups of names as so many descriptors have room for.
    pub(crate) fn busy(&self) -> usize {
        let busy = self.idle() + self.connections * self.per_connection() * PER_PIPE;
        busy + lookups(busy) * lookups::DESCRIPTORS
    }
}

/// What the descriptors are spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Connections at once.
    pub(crate) connections: usize,
    /// Pipes at once in each worker; when they are used up, bytes are copied.
    pub(crate) pipes_per_worker: usize,
    /// Lookups of names at once.
    pub(crate) lookups: usize,
}

/// The part of the descriptors that lookups have, and the bounds on their number.
const LOOKUPS_PART: usize = 64;
const LOOKUPS_MIN: usize = 4;
const LOOKUPS_MAX: usize = 1024;

/// Two ends.
const PER_PIPE: usize = 2;
/// Standard streams, counters, signals.
const RESERVE: usize = 16;
/// Pipes that each worker can have however many connections there are. Idle ones hold none, and
/// when these are used up bytes are copied.
const PIPES_MIN_PER_WORKER: usize = 32;
/// A worker's epoll instance, TCP to name servers and newcomers that wait for a place.
const RESERVE_PER_WORKER: usize = 16;

impl Budget {
    /// Shares out `limit` descriptors (`None`: no limit) among as many connections as are wanted or
    /// have room; pipes have what is left. `None` if there is no room for one connection.
    pub(crate) fn new(limit: Option<u64>, demand: &Demand) -> Option<Self> {
        let usable = count(limit).saturating_sub(demand.reserve());
        let lookups = lookups(usable);
        let usable = usable.saturating_sub(lookups * lookups::DESCRIPTORS);
        let pipes_min = demand.workers * PIPES_MIN_PER_WORKER;
        // With few descriptors, half of them are for pipes.
        let for_pipes = (pipes_min * PER_PIPE).min(usable / 2);
        let room = (usable - for_pipes) / demand.per_connection();
        let connections = demand.connections.min(room);
        let left = usable - connections * demand.per_connection();
        (connections > 0).then(|| Self {
            connections,
            // One for each leg of a connection, and no more: the bound holds without a limit too.
            pipes_per_worker: (left / PER_PIPE / demand.workers)
                .min(demand.per_connection() * connections),
            lookups,
        })
    }

    /// Connections that `limit` has room for beside the pipes, which stay as they are, and the
    /// listeners and ready connections of another configuration.
    pub(crate) fn connections_with(&self, limit: Option<u64>, demand: &Demand) -> usize {
        let pipes = self.pipes_per_worker * demand.workers;
        let usable = count(limit).saturating_sub(demand.reserve());
        let taken = pipes * PER_PIPE + self.lookups * lookups::DESCRIPTORS;
        let room = usable.saturating_sub(taken) / demand.per_connection();
        room.min(demand.connections)
    }
}

fn lookups(usable: usize) -> usize {
    (usable / LOOKUPS_PART / lookups::DESCRIPTORS).clamp(LOOKUPS_MIN, LOOKUPS_MAX)
}

fn count(limit: Option<u64>) -> usize {
    limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(connections: usize, listeners: usize, ready: usize) -> Demand {
        Demand {
            connections,
            workers: 2,
            listeners,
            ready,
            streams: 1,
        }
    }

    #[test]
    fn a_generous_limit_gives_all_that_is_wanted() {
        let budget = Budget::new(None, &demand(100, 3, 0)).unwrap();
        assert_eq!(
            budget,
            Budget {
                connections: 100,
                pipes_per_worker: 200,
                lookups: LOOKUPS_MAX,
            }
        );
    }

    #[test]
    fn a_tight_limit_is_never_exceeded() {
        for (limit, streams) in (0..4000u64).map(|n| (n / 2, 1 + n as usize % 2 * 15)) {
            let demand = Demand {
                streams,
                ..demand(16384, 1, 4)
            };
            if let Some(budget) = Budget::new(Some(limit), &demand) {
                let pipes = budget.pipes_per_worker * 2;
                let spent = budget.connections * (1 + streams) + pipes * PER_PIPE;
                let spent = spent + budget.lookups * lookups::DESCRIPTORS;
                assert!(
                    spent + RESERVE + 2 * 4 <= limit as usize,
                    "{limit}: {budget:?}"
                );
            }
        }
    }

    #[test]
    fn connections_have_nearly_all_of_a_limit() {
        let budget = Budget::new(Some(20_000), &demand(16_384, 1, 0)).unwrap();
        assert!(budget.connections > 9_700, "{budget:?}");
        assert!(
            budget.pipes_per_worker >= PIPES_MIN_PER_WORKER,
            "{budget:?}"
        );
    }

    #[test]
    fn no_room_is_none() {
        assert_eq!(Budget::new(Some(32), &demand(10, 1, 0)), None);
    }

    #[test]
    fn ready_connections_take_the_places_of_others() {
        let (now, more) = (demand(100, 1, 4), demand(100, 1, 40));
        let just = now.busy() as u64;
        let tight = Budget::new(Some(just), &now).unwrap();
        assert_eq!(tight.connections_with(Some(just), &now), 100);
        // 36 more in each of two workers, two descriptors a place.
        assert_eq!(tight.connections_with(Some(just), &more), 100 - 36);
        assert_eq!(tight.connections_with(Some(just), &demand(100, 1, 900)), 0);
        // More pipes than can be used are never shared out.
        let roomy = Budget::new(Some(10 * just), &now).unwrap();
        assert_eq!(roomy.connections_with(Some(10 * just), &more), 100);
    }
}
