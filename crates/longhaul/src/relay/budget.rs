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

/// Two sockets.
const PER_CONNECTION: usize = 2;
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
    /// Shares out `limit` descriptors (`None`: no limit) among at most `connections_max`
    /// connections; each worker keeps `ready` connections to peers, and pipes have what is left.
    /// `None` if there is no room for one connection.
    pub(crate) fn new(
        limit: Option<u64>,
        connections_max: u32,
        workers: usize,
        listeners: usize,
        ready: usize,
    ) -> Option<Self> {
        let wanted = connections_max as usize;
        let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let reserve = RESERVE + workers * (RESERVE_PER_WORKER + 2 * listeners + ready);
        let usable = limit.saturating_sub(reserve);
        let pipes_min = workers * PIPES_MIN_PER_WORKER;
        // With few descriptors, half of them are for pipes.
        let for_pipes = (pipes_min * PER_PIPE).min(usable / 2);
        let connections = wanted.min((usable - for_pipes) / PER_CONNECTION);
        let left = usable - connections * PER_CONNECTION;
        (connections > 0).then(|| Self {
            connections,
            // Two directions a connection, and no more: the bound holds without a limit too.
            pipes_per_worker: (left / PER_PIPE / workers).min(2 * connections),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generous_limit_gives_all_that_is_wanted() {
        let budget = Budget::new(None, 100, 2, 3, 0).unwrap();
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
        for limit in 0..2000u64 {
            if let Some(budget) = Budget::new(Some(limit), 16384, 2, 1, 4) {
                let pipes = budget.pipes_per_worker * 2;
                let spent = budget.connections * PER_CONNECTION + pipes * PER_PIPE;
                assert!(
                    spent + RESERVE + 2 * 4 <= limit as usize,
                    "{limit}: {budget:?}"
                );
            }
        }
    }

    #[test]
    fn connections_have_nearly_all_of_a_limit() {
        let budget = Budget::new(Some(20_000), 16_384, 2, 1, 0).unwrap();
        assert!(budget.connections > 9_800, "{budget:?}");
        assert!(
            budget.pipes_per_worker >= PIPES_MIN_PER_WORKER,
            "{budget:?}"
        );
    }

    #[test]
    fn no_room_is_none() {
        assert_eq!(Budget::new(Some(32), 10, 2, 1, 0), None);
    }
}
