// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue ordered by time, for segments on the wire and other items that are pushed nearly in order of time.

use longhaul_units::Time;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// Items ordered by the time at which they come out. Ties come out in the order in which they were pushed.
///
/// Nearly every item comes out after its predecessor, and costs one push and one pop of a ring buffer.
/// Only an item that overtakes its predecessor, by jitter or reordering, goes to a heap.
#[derive(Debug)]
pub struct PropagationQueue<T> {
    in_order: VecDeque<(Time, T)>,
    overtaking: BinaryHeap<Reverse<Entry<T>>>,
    pushed: u64,
}

impl<T> PropagationQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            in_order: VecDeque::new(),
            overtaking: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// Adds `item`, which comes out at `at`.
    pub fn push(&mut self, at: Time, item: T) {
        match self.in_order.back() {
            Some((last, _)) if at < *last => {
                self.pushed += 1;
                self.overtaking.push(Reverse(Entry {
                    at,
                    order: self.pushed,
                    item,
                }));
            }
            _ => self.in_order.push_back((at, item)),
        }
    }

    /// Time at which the next item comes out; `None` if the queue is empty.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let in_order = self.in_order.front().map(|(at, _)| *at);
        match self.overtaking.peek() {
            None => in_order,
            Some(Reverse(entry)) => Some(in_order.map_or(entry.at, |at| at.min(entry.at))),
        }
    }

    /// Takes the next item, and the time at which it comes out, if that is at or before `now`.
    pub fn pop(&mut self, now: Time) -> Option<(Time, T)> {
        let next = self.next().filter(|at| *at <= now)?;
        match self.overtaking.peek() {
            Some(Reverse(entry)) if entry.at == next => self
                .overtaking
                .pop()
                .map(|Reverse(entry)| (entry.at, entry.item)),
            _ => self.in_order.pop_front(),
        }
    }

    /// Number of items in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.in_order.len() + self.overtaking.len()
    }

    /// Whether the queue has no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for PropagationQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// An item of the heap, ordered by time, then by the order of pushes.
#[derive(Debug)]
struct Entry<T> {
    at: Time,
    order: u64,
    item: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_time_and_ties_by_push() {
        let mut queue = PropagationQueue::new();
        for (at, item) in [(10, 'a'), (30, 'b'), (20, 'c'), (20, 'd'), (30, 'e')] {
            queue.push(Time::from_nanos(at), item);
        }
        let mut out = String::new();
        while let Some((_, item)) = queue.pop(Time::MAX) {
            out.push(item);
        }
        assert_eq!(out, "acdbe");
    }

    #[test]
    fn releases_nothing_a_nanosecond_early() {
        let mut queue = PropagationQueue::new();
        queue.push(Time::from_nanos(10), ());
        assert_eq!(queue.pop(Time::from_nanos(9)), None);
        assert!(queue.pop(Time::from_nanos(10)).is_some());
    }
}
