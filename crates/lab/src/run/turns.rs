// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order of the runs of an experiment.

use crate::source::Book;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::collections::VecDeque;

/// Planned run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) cell: usize,
    /// Repetition, from 1; `None` for a warm-up run.
    pub(crate) repetition: Option<u32>,
}

/// Returns all runs in order: warm-up rounds, then one round for each repetition. A round has every
/// cell once in its own random order, so that drift of the machine affects all cells alike.
pub(crate) fn turns(book: &Book) -> Vec<Turn> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(book.base.seed);
    let warmups = std::iter::repeat_n(None, book.base.warmup as usize);
    let rounds = warmups.chain((1..=book.base.repetitions).map(Some));
    let mut turns = Vec::new();
    for repetition in rounds {
        let mut round: Vec<Turn> = (0..book.cells.len())
            .map(|cell| Turn { cell, repetition })
            .collect();
        shuffle(&mut round, &mut random);
        turns.extend(round);
    }
    turns
}

/// Fisher–Yates shuffle. The bias of the remainder is below 2⁻⁵⁰ for any list that fits here.
fn shuffle<T>(list: &mut [T], random: &mut impl Rng) {
    for last in (1..list.len()).rev() {
        list.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
}

/// Queue of the runs to execute.
#[derive(Debug)]
pub(crate) struct ToDo(VecDeque<Next>);

/// Queued run, with its number of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) turn: usize,
    pub(crate) retaken: u32,
}

impl FromIterator<usize> for ToDo {
    fn from_iter<T: IntoIterator<Item = usize>>(turns: T) -> Self {
        let first = |turn| Next { turn, retaken: 0 };
        Self(turns.into_iter().map(first).collect())
    }
}

impl ToDo {
    /// Returns the next run.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        self.0.pop_front()
    }

    /// Queues a run again behind all others. By then the machine may be less busy.
    pub(crate) fn again(&mut self, done: Next) {
        self.0.push_back(Next {
            retaken: done.retaken + 1,
            ..done
        });
    }

    /// Indices of the queued runs in the order of all runs.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|next| next.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requeued_run_comes_last() {
        let mut to_do: ToDo = [4, 7, 9].into_iter().collect();
        let first = to_do.pop().unwrap();
        to_do.again(first);
        assert_eq!(to_do.ahead().collect::<Vec<_>>(), [7, 9, 4]);
        let rest: Vec<(usize, u32)> = std::iter::from_fn(|| to_do.pop())
            .map(|next| (next.turn, next.retaken))
            .collect();
        assert_eq!(rest, [(7, 0), (9, 0), (4, 1)]);
    }
}
