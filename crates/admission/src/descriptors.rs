// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors: the number of connections, pipes and lookups that RLIMIT_NOFILE has room for. Connections beyond
//! that number wait in the listen queue, where they cost nothing, instead of failing half-way.

use crate::lookups;

/// The error message for a limit that has no room for one connection, raised as far as it goes.
pub const DESCRIPTOR_LIMIT_TOO_LOW: &str = "RLIMIT_NOFILE is too low for a single connection: raise the hard limit \
                                  (ulimit -Hn, LimitNOFILE= of a service)";

/// The descriptors that a configuration asks for, by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorDemand {
    /// Connections at a time.
    pub connections: usize,
    /// Worker threads.
    pub workers: usize,
    /// Listeners; each worker has sockets of its own for each.
    pub listeners: usize,
    /// Idle connections to peers that each worker keeps in its pools.
    pub pooled: usize,
    /// The most outgoing connections that carry one client's connection, at least 1.
    pub streams: usize,
}

impl DescriptorDemand {
    /// Sockets of one connection: the client's and the outgoing ones.
    pub fn per_connection(&self) -> usize {
        1 + self.streams
    }

    /// Descriptors that are needed without any connection.
    fn reserve(&self) -> usize {
        RESERVE + self.workers * (RESERVE_PER_WORKER + 2 * self.listeners + self.pooled)
    }

    /// Descriptors for all connections without pipes.
    pub fn idle(&self) -> usize {
        self.reserve() + self.connections * self.per_connection()
    }

    /// Descriptors for all connections with pipes for both directions, and for the lookups that go with so many.
    pub fn busy(&self) -> usize {
        let busy = self.idle() + self.connections * self.per_connection() * PER_PIPE;
        busy + lookups(busy) * lookups::DESCRIPTORS_PER_LOOKUP
    }
}

/// The division of the descriptors among their uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// Connections at a time.
    pub connections: usize,
    /// Pipes at a time in each worker. When they are used up, bytes are copied.
    pub pipes_per_worker: usize,
    /// Name lookups at a time.
    pub lookups: usize,
}

/// One part in 64 of the descriptors is for lookups, within these bounds on their number.
const LOOKUPS_PART: usize = 64;
const LOOKUPS_MIN: usize = 4;
const LOOKUPS_MAX: usize = 1024;

/// Descriptors of one pipe.
const PER_PIPE: usize = 2;
/// Standard streams, counters, signals.
const RESERVE: usize = 16;
/// Pipes that each worker has, whatever the number of connections. Idle connections hold no pipe.
const PIPES_MIN_PER_WORKER: usize = 32;
/// Descriptors of one worker: its epoll instance, TCP to name servers, accepted connections that wait for a permit.
const RESERVE_PER_WORKER: usize = 16;

impl DescriptorBudget {
    /// Divides `limit` descriptors (`None`: no limit). Connections come first, up to the number asked for; pipes get the
    /// rest. `None` if there is no room for one connection.
    pub fn new(limit: Option<u64>, demand: &DescriptorDemand) -> Option<Self> {
        let usable = count(limit).saturating_sub(demand.reserve());
        let lookups = lookups(usable);
        let usable = usable.saturating_sub(lookups * lookups::DESCRIPTORS_PER_LOOKUP);
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

    /// The number of connections after a reload to `demand`: the pipes and lookups stay as they are.
    pub fn connections_with(&self, limit: Option<u64>, demand: &DescriptorDemand) -> usize {
        let pipes = self.pipes_per_worker * demand.workers;
        let usable = count(limit).saturating_sub(demand.reserve());
        let taken = pipes * PER_PIPE + self.lookups * lookups::DESCRIPTORS_PER_LOOKUP;
        let room = usable.saturating_sub(taken) / demand.per_connection();
        room.min(demand.connections)
    }
}

fn lookups(usable: usize) -> usize {
    (usable / LOOKUPS_PART / lookups::DESCRIPTORS_PER_LOOKUP).clamp(LOOKUPS_MIN, LOOKUPS_MAX)
}

fn count(limit: Option<u64>) -> usize {
    limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(connections: usize, listeners: usize, pooled: usize) -> DescriptorDemand {
        DescriptorDemand {
            connections,
            workers: 2,
            listeners,
            pooled,
            streams: 1,
        }
    }

    #[test]
    fn gives_all_connections_without_a_limit() {
        let budget = DescriptorBudget::new(None, &demand(100, 3, 0)).unwrap();
        assert_eq!(
            budget,
            DescriptorBudget {
                connections: 100,
                pipes_per_worker: 200,
                lookups: LOOKUPS_MAX,
            }
        );
    }

    #[test]
    fn never_exceeds_the_limit() {
        for (limit, streams) in (0..4000u64).map(|n| (n / 2, 1 + n as usize % 2 * 15)) {
            let demand = DescriptorDemand {
                streams,
                ..demand(16384, 1, 4)
            };
            if let Some(budget) = DescriptorBudget::new(Some(limit), &demand) {
                let pipes = budget.pipes_per_worker * 2;
                let spent = budget.connections * (1 + streams) + pipes * PER_PIPE;
                let spent = spent + budget.lookups * lookups::DESCRIPTORS_PER_LOOKUP;
                assert!(
                    spent + RESERVE + 2 * 4 <= limit as usize,
                    "{limit}: {budget:?}"
                );
            }
        }
    }

    #[test]
    fn gives_connections_nearly_all_descriptors() {
        let budget = DescriptorBudget::new(Some(20_000), &demand(16_384, 1, 0)).unwrap();
        assert!(budget.connections > 9_700, "{budget:?}");
        assert!(
            budget.pipes_per_worker >= PIPES_MIN_PER_WORKER,
            "{budget:?}"
        );
    }

    #[test]
    fn refuses_a_limit_without_room_for_one_connection() {
        assert_eq!(DescriptorBudget::new(Some(32), &demand(10, 1, 0)), None);
    }

    #[test]
    fn pools_of_a_reload_reduce_connections() {
        let (now, more) = (demand(100, 1, 4), demand(100, 1, 40));
        let just = now.busy() as u64;
        let tight = DescriptorBudget::new(Some(just), &now).unwrap();
        assert_eq!(tight.connections_with(Some(just), &now), 100);
        // 36 more in each of two workers, two descriptors a place.
        assert_eq!(tight.connections_with(Some(just), &more), 100 - 36);
        assert_eq!(tight.connections_with(Some(just), &demand(100, 1, 900)), 0);
        // More pipes than can be used are never shared out.
        let roomy = DescriptorBudget::new(Some(10 * just), &now).unwrap();
        assert_eq!(roomy.connections_with(Some(10 * just), &more), 100);
    }
}
