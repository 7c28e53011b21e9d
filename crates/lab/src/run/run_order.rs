// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order of the runs of an experiment.

use crate::source::ExperimentPlan;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::collections::VecDeque;

/// Planned run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedRun {
    pub(crate) cell: usize,
    /// Repetition, from 1; `None` for a warm-up run.
    pub(crate) repetition: Option<u32>,
}

/// Returns all runs in order: warm-up rounds, then one round for each repetition. A round has every
/// cell once in its own random order, so that drift of the machine affects all cells alike.
pub(crate) fn run_order(experiment: &ExperimentPlan) -> Vec<PlannedRun> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(experiment.scenario.seed);
    let warmups = std::iter::repeat_n(None, experiment.scenario.warmup_runs as usize);
    let rounds = warmups.chain((1..=experiment.scenario.repetitions).map(Some));
    let mut run_order = Vec::new();
    for repetition in rounds {
        let mut round: Vec<PlannedRun> = (0..experiment.cells.len())
            .map(|cell| PlannedRun { cell, repetition })
            .collect();
        shuffle(&mut round, &mut random);
        run_order.extend(round);
    }
    run_order
}

/// Fisher–Yates shuffle. The bias of the remainder is below 2⁻⁵⁰ for any list that fits here.
fn shuffle<T>(list: &mut [T], random: &mut impl Rng) {
    for last in (1..list.len()).rev() {
        list.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
}

/// Queue of the runs to execute.
#[derive(Debug)]
pub(crate) struct RunQueue(VecDeque<QueuedRun>);

/// Queued run, with its number of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuedRun {
    pub(crate) index: usize,
    pub(crate) retries: u32,
}

impl FromIterator<usize> for RunQueue {
    fn from_iter<T: IntoIterator<Item = usize>>(run_order: T) -> Self {
        let first = |index| QueuedRun { index, retries: 0 };
        Self(run_order.into_iter().map(first).collect())
    }
}

impl RunQueue {
    /// Returns the next run.
    pub(crate) fn pop(&mut self) -> Option<QueuedRun> {
        self.0.pop_front()
    }

    /// Queues a run again behind all others. By then the machine may be less busy.
    pub(crate) fn requeue(&mut self, done: QueuedRun) {
        self.0.push_back(QueuedRun {
            retries: done.retries + 1,
            ..done
        });
    }

    /// Indices of the queued runs in the order of all runs.
    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|next| next.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requeued_run_comes_last() {
        let mut queue: RunQueue = [4, 7, 9].into_iter().collect();
        let first = queue.pop().unwrap();
        queue.requeue(first);
        assert_eq!(queue.pending().collect::<Vec<_>>(), [7, 9, 4]);
        let rest: Vec<(usize, u32)> = std::iter::from_fn(|| queue.pop())
            .map(|next| (next.index, next.retries))
            .collect();
        assert_eq!(rest, [(7, 0), (9, 0), (4, 1)]);
    }
}
