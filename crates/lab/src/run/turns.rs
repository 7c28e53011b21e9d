// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which run comes when.

use crate::source::Book;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::collections::VecDeque;

/// One run to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) cell: usize,
    /// Counted from 1; `None` for a warm-up run.
    pub(crate) repetition: Option<u32>,
}

/// Warm-up rounds, then as many rounds as there are repetitions. A round holds every cell once, in
/// a random order of its own, so that a drift of the machine spreads over all cells.
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

/// Fisher–Yates. The remainder's bias is below 2⁻⁵⁰ for any list that fits here.
fn shuffle<T>(list: &mut [T], random: &mut impl Rng) {
    for last in (1..list.len()).rev() {
        list.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
}

/// What is still to be done, by places in the list of all turns.
#[derive(Debug)]
pub(crate) struct ToDo(VecDeque<Next>);

/// A turn, and how often the machine was too busy for it.
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
    pub(crate) fn pop(&mut self) -> Option<Next> {
        self.0.pop_front()
    }

    /// Behind all others: what keeps the machine busy now may be over by then.
    pub(crate) fn again(&mut self, done: Next) {
        self.0.push_back(Next {
            retaken: done.retaken + 1,
            ..done
        });
    }

    pub(crate) fn ahead(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|next| next.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_was_too_busy_for_comes_again_behind_all_others() {
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
