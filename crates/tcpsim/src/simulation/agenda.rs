// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who acts next: one time for each actor, the earliest found at once.

use longhaul_units::Time;

/// A tournament over the actors' next times. Ties go to the lower number, so that a run repeats.
#[derive(Debug)]
pub(crate) struct Agenda {
    times: Vec<Time>,
    /// `winners[n]` is the earlier of `winners[2n]` and `winners[2n + 1]`; actors are the leaves.
    winners: Vec<u32>,
}

impl Agenda {
    /// `actors` of them, none with anything to do.
    pub(crate) fn new(actors: usize) -> Self {
        let leaves = actors.next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for place in (1..2 * leaves).rev() {
            winners[place] = match place >= leaves {
                true => (place - leaves) as u32,
                false => winners[2 * place],
            };
        }
        Self {
            times: vec![Time::MAX; leaves],
            winners,
        }
    }

    /// Says when `actor` acts next.
    pub(crate) fn set(&mut self, actor: usize, at: Time) {
        if self.times[actor] == at {
            return;
        }
        self.times[actor] = at;
        let mut place = (self.times.len() + actor) / 2;
        while place > 0 {
            self.winners[place] =
                self.earlier(self.winners[2 * place], self.winners[2 * place + 1]);
            place /= 2;
        }
    }

    /// The next time, and whose it is.
    pub(crate) fn next(&self) -> (Time, usize) {
        let actor = self.winners[1] as usize;
        (self.times[actor], actor)
    }

    fn earlier(&self, left: u32, right: u32) -> u32 {
        match self.times[right as usize] < self.times[left as usize] {
            true => right,
            false => left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_the_earliest_is_next(
            actors in 1usize..20,
            changes in prop::collection::vec((0usize..20, 0u64..10), 1..60),
        ) {
            let mut agenda = Agenda::new(actors);
            let mut times = vec![Time::MAX; actors];
            for (actor, at) in changes {
                let actor = actor % actors;
                times[actor] = Time::from_nanos(at);
                agenda.set(actor, times[actor]);
                let first = (0..actors).min_by_key(|n| times[*n]).unwrap();
                prop_assert_eq!(agenda.next(), (times[first], first));
            }
        }
    }
}
