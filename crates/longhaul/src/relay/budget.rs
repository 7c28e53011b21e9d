// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections the limit on descriptors has room for. Those beyond wait in the listen
//! queue, where they cost nothing, instead of failing half-way.

/// What the descriptors are spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Connections at once.
    pub(crate) connections: usize,
    /// Pipes at once in each worker; when they are used up, bytes are copied.
    pub(crate) pipes_per_worker: usize,
}

/// What there is, and what takes of it besides connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Descriptors; `None`: no limit.
    pub(crate) limit: Option<u64>,
    pub(crate) workers: usize,
    pub(crate) listeners: usize,
    /// Connections to peers that each worker keeps.
    pub(crate) ready: usize,
    /// The most legs that one connection may leave by, at least 1.
    pub(crate) streams: usize,
}

/// Two ends.
const PER_PIPE: usize = 2;
/// Standard streams, counters, signals.
const RESERVE: usize = 16;
/// Pipes that each worker can have however many connections there are. Idle ones hold none, and
/// when these are used up bytes are copied.
const PIPES_MIN_PER_WORKER: usize = 32;
/// A worker's epoll instance, resolver sockets and newcomers that wait for a place.
const RESERVE_PER_WORKER: usize = 16;

impl Budget {
    /// Shares out the descriptors among at most `connections_max` connections, of which each has a
    /// client's leg and others; pipes have what is left. `None` if there is no room for one
    /// connection.
    pub(crate) fn new(connections_max: u32, room: Room) -> Option<Self> {
        let Room {
            limit,
            workers,
            listeners,
            ready,
            streams,
        } = room;
        let per_connection = 1 + streams;
        let wanted = connections_max as usize;
        let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let reserve = RESERVE + workers * (RESERVE_PER_WORKER + 2 * listeners + ready);
        let usable = limit.saturating_sub(reserve);
        let pipes_min = workers * PIPES_MIN_PER_WORKER;
        // With few descriptors, half of them are for pipes.
        let for_pipes = (pipes_min * PER_PIPE).min(usable / 2);
        let connections = wanted.min((usable - for_pipes) / per_connection);
        let left = usable - connections * per_connection;
        (connections > 0).then(|| Self {
            connections,
            // One for each leg of a connection, both directions, and no more: the bound holds
            // without a limit too.
            pipes_per_worker: (left / PER_PIPE / workers).min(per_connection * connections),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(limit: Option<u64>, workers: usize, listeners: usize, ready: usize) -> Room {
        Room {
            limit,
            workers,
            listeners,
            ready,
            streams: 1,
        }
    }

    #[test]
    fn a_generous_limit_gives_all_that_is_wanted() {
        let budget = Budget::new(100, room(None, 2, 3, 0)).unwrap();
        assert_eq!(
            budget,
            Budget {
                connections: 100,
                pipes_per_worker: 200
            }
        );
    }

    #[test]
    fn a_tight_limit_is_never_exceeded() {
        for (limit, streams) in (0..4000u64).map(|n| (n / 2, 1 + n as usize % 2 * 15)) {
            let room = Room {
                streams,
                ..room(Some(limit), 2, 1, 4)
            };
            if let Some(budget) = Budget::new(16384, room) {
                let pipes = budget.pipes_per_worker * 2;
                let spent = budget.connections * (1 + streams) + pipes * PER_PIPE;
                assert!(
                    spent + RESERVE + 2 * 4 <= limit as usize,
                    "{limit}: {budget:?}"
                );
            }
        }
    }

    #[test]
    fn connections_have_nearly_all_of_a_limit() {
        let budget = Budget::new(16_384, room(Some(20_000), 2, 1, 0)).unwrap();
        assert!(budget.connections > 9_800, "{budget:?}");
        assert!(
            budget.pipes_per_worker >= PIPES_MIN_PER_WORKER,
            "{budget:?}"
        );
    }

    #[test]
    fn no_room_is_none() {
        assert_eq!(Budget::new(10, room(Some(32), 2, 1, 0)), None);
    }
}
