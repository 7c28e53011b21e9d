// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loss list of the sender and of the receiver: the missing packets of a window (draft-gg-udt-03 §6).
//!
//! libudt keeps sorted arrays of runs, in which an insertion walks over the runs before it. A window is a few ten
//! thousand packets, so a bit for each takes less memory (a window of 10 Gbit/s × 180 ms: 19 KB). The bitmap never
//! grows whatever a peer reports, and costs the same for any pattern of losses.

use crate::packet::number::Seq;

/// Set of packets within a window of fixed size that only moves forward.
#[derive(Debug, Clone)]
pub(crate) struct LossList {
    /// One bit per packet, at its number modulo the capacity; none is set outside the window.
    bits: Box<[u64]>,
    /// First packet of the window.
    from: Seq,
    /// Lower bound of the packets in the set.
    low: Seq,
    len: u32,
}

impl LossList {
    /// Creates an empty set for a window of `window` packets from `from` on, rounded up to a power of two, 64 to 2³⁰.
    /// It takes one bit per packet.
    #[must_use]
    pub(crate) fn new(from: Seq, window: u32) -> Self {
        let capacity = window.clamp(64, 1 << 30).next_power_of_two();
        Self {
            bits: vec![0; capacity as usize / 64].into(),
            from,
            low: from,
            len: 0,
        }
    }

    /// Returns the capacity in packets.
    #[must_use]
    pub(crate) fn capacity(&self) -> u32 {
        self.bits.len() as u32 * 64
    }

    /// Returns the number of packets in the set.
    #[must_use]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether the set is empty.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `first` to `last`, as far as they lie in the window. Returns how many were not in the set before.
    pub(crate) fn insert(&mut self, first: Seq, last: Seq) -> u32 {
        let Some((first, count)) = self.within(first, last) else {
            return 0;
        };
        if first.is_before(self.low) {
            self.low = first;
        }
        let before = self.len;
        for (word, mask) in words(first, count, self.capacity()) {
            self.len += (mask & !self.bits[word]).count_ones();
            self.bits[word] |= mask;
        }
        self.len - before
    }

    /// Removes `first` to `last`. Returns how many were in the set.
    pub(crate) fn remove(&mut self, first: Seq, last: Seq) -> u32 {
        let Some((first, count)) = self.within(first, last) else {
            return 0;
        };
        let before = self.len;
        for (word, mask) in words(first, count, self.capacity()) {
            self.len -= (mask & self.bits[word]).count_ones();
            self.bits[word] &= !mask;
        }
        before - self.len
    }

    /// Whether a packet is in the set.
    #[must_use]
    pub(crate) fn contains(&self, seq: Seq) -> bool {
        let inside = self.within(seq, seq).is_some();
        let at = seq.get() & (self.capacity() - 1);
        inside && self.bits[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Returns the first packet.
    pub(crate) fn first(&mut self) -> Option<Seq> {
        self.low = self.next_from(self.low)?;
        Some(self.low)
    }

    /// Moves the window forward so that it starts with `from`. Packets before it leave the set.
    pub(crate) fn advance(&mut self, from: Seq) {
        let distance = from.since(self.from);
        if distance <= 0 {
            return;
        }
        if self.len > 0 {
            self.remove(self.from, from.minus(1));
        }
        self.from = from;
        if self.low.is_before(from) {
            self.low = from;
        }
    }

    /// Iterates over the packets from `from` on as runs of first and last packet, in order.
    pub(crate) fn runs(&self, from: Seq) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        let mut at = if from.is_before(self.low) {
            self.low
        } else {
            from
        };
        std::iter::from_fn(move || {
            let first = self.next_from(at)?;
            let mut last = first;
            while self.contains(last.plus(1)) {
                last = last.plus(1);
            }
            at = last.plus(1);
            Some((first, last))
        })
    }

    /// Returns the first packet at or after `at`.
    fn next_from(&self, at: Seq) -> Option<Seq> {
        if self.len == 0 {
            return None;
        }
        let end = self.from.plus(self.capacity());
        let left = u32::try_from(end.since(at)).ok()?;
        words(at, left, self.capacity()).find_map(|(word, mask)| {
            let found = self.bits[word] & mask;
            let number = word as u32 * 64 + found.trailing_zeros();
            let offset = number.wrapping_sub(at.get()) & (self.capacity() - 1);
            (found != 0).then(|| at.plus(offset))
        })
    }

    /// Returns the part of a run that lies in the window, as its first packet and its length.
    fn within(&self, first: Seq, last: Seq) -> Option<(Seq, u32)> {
        let capacity = i64::from(self.capacity());
        let begin = i64::from(first.since(self.from)).max(0);
        let end = i64::from(last.since(self.from)).min(capacity - 1);
        (begin <= end).then(|| (self.from.plus(begin as u32), (end - begin + 1) as u32))
    }
}

/// Iterates over the words of the bitmap that hold `count` packets from `first` on, each with the mask of their bits.
fn words(first: Seq, count: u32, capacity: u32) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, mut left) = (first.get() & (capacity - 1), count.min(capacity));
    std::iter::from_fn(move || {
        let (word, bit) = (at / 64, at % 64);
        let taken = left.min(64 - bit);
        let mask = (u64::MAX >> (64 - taken.max(1))) << bit;
        left -= taken;
        at = (at + taken) & (capacity - 1);
        (taken > 0).then_some((word as usize, mask))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::collections::BTreeSet;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(i32, u32),
        Remove(i32, u32),
        Advance(u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (-100i32..400, 0u32..200).prop_map(|(at, more)| Step::Insert(at, more)),
            (-100i32..400, 0u32..200).prop_map(|(at, more)| Step::Remove(at, more)),
            (0u32..150).prop_map(Step::Advance),
        ]
    }

    fn at(from: Seq, offset: i32) -> Seq {
        Seq::new(from.get().wrapping_add_signed(offset))
    }

    /// Runs of a set of packets, given as their distance from the origin, which never wraps.
    fn runs_of(model: &BTreeSet<i64>) -> Vec<(i64, i64)> {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for &seq in model {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == seq => *last = seq,
                _ => runs.push((seq, seq)),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(begin: u32, steps in vec(any_step(), 0..60)) {
            let origin = Seq::new(begin);
            let mut list = LossList::new(origin, 256);
            let (mut model, mut from) = (BTreeSet::new(), 0i64);
            for step in steps {
                let now = origin.plus(from as u32);
                match step {
                    Step::Insert(first, more) => {
                        let run = (from + i64::from(first)).max(from)..=(from + i64::from(first) + i64::from(more)).min(from + 255);
                        let before = model.len();
                        model.extend(run);
                        let new = list.insert(at(now, first), at(now, first).plus(more));
                        prop_assert_eq!(new as usize, model.len() - before);
                    }
                    Step::Remove(first, more) => {
                        let run = from + i64::from(first)..=from + i64::from(first) + i64::from(more);
                        let before = model.len();
                        model.retain(|seq| !run.contains(seq));
                        let removed = list.remove(at(now, first), at(now, first).plus(more));
                        prop_assert_eq!(removed as usize, before - model.len());
                    }
                    Step::Advance(by) => {
                        from += i64::from(by);
                        model.retain(|seq| *seq >= from);
                        list.advance(origin.plus(from as u32));
                    }
                }
                let seq = |offset: i64| origin.plus(offset as u32);
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.first(), model.first().copied().map(seq));
                let runs: Vec<_> = runs_of(&model).into_iter().map(|(first, last)| (seq(first), seq(last))).collect();
                prop_assert_eq!(list.runs(seq(from)).collect::<Vec<_>>(), runs);
            }
        }
    }

    #[test]
    fn uses_a_bit_per_packet_and_never_grows() {
        let mut list = LossList::new(Seq::new(7), 25_600);
        assert_eq!(list.capacity(), 32_768);
        assert_eq!(list.insert(Seq::new(7), Seq::new(7).plus(1 << 29)), 32_768);
        assert_eq!(
            list.insert(Seq::new(7).plus(40_000), Seq::new(7).plus(50_000)),
            0
        );
        list.advance(Seq::new(7).plus(32_768));
        assert!(list.is_empty());
    }
}
