// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue of events: each actor has the time of its next event, and the earliest is found at once.

use longhaul_units::Time;

/// Tournament tree over the actors' next times. Ties go to the lower number, so that a run is repeatable.
#[derive(Debug)]
pub(crate) struct EventQueue {
    times: Vec<Time>,
    /// Actor with the earliest time below each node of the tree. The leaves are the actors; any other `winners[n]` is
    /// the earlier of `winners[2n]` and `winners[2n + 1]`.
    winners: Vec<u32>,
}

impl EventQueue {
    /// Creates a queue of `actors` actors without events.
    pub(crate) fn new(actors: usize) -> Self {
        let leaves = actors.next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for node in (1..2 * leaves).rev() {
            winners[node] = if node >= leaves {
                (node - leaves) as u32
            } else {
                winners[2 * node]
            };
        }
        Self {
            times: vec![Time::MAX; leaves],
            winners,
        }
    }

    /// Sets the time of `actor`'s next event.
    pub(crate) fn set(&mut self, actor: usize, at: Time) {
        if self.times[actor] == at {
            return;
        }
        self.times[actor] = at;
        let mut node = (self.times.len() + actor) / 2;
        while node > 0 {
            self.winners[node] = self.earlier(self.winners[2 * node], self.winners[2 * node + 1]);
            node /= 2;
        }
    }

    /// Returns the time of the next event, and its actor.
    pub(crate) fn next(&self) -> (Time, usize) {
        let actor = self.winners[1] as usize;
        (self.times[actor], actor)
    }

    fn earlier(&self, left: u32, right: u32) -> u32 {
        if self.times[right as usize] < self.times[left as usize] {
            right
        } else {
            left
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn next_is_the_lowest_of_the_earliest_actors(
            actors in 1usize..20,
            changes in prop::collection::vec((0usize..20, 0u64..10), 1..60),
        ) {
            let mut queue = EventQueue::new(actors);
            let mut times = vec![Time::MAX; actors];
            for (actor, at) in changes {
                let actor = actor % actors;
                times[actor] = Time::from_nanos(at);
                queue.set(actor, times[actor]);
                let first = (0..actors).min_by_key(|n| times[*n]).unwrap();
                prop_assert_eq!(queue.next(), (times[first], first));
            }
        }
    }
}
