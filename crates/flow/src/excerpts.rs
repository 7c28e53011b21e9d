// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single segments of the moments that say most, for a chart that can be zoomed in to them: the first
//! of a flow, those around each loss, and samples in between.
//!
//! A segment outside of them costs one comparison. Of many flows at once only the largest have
//! excerpts, as far as that is known while they go on; of many moments of a kind, those stay that are
//! evenly spread.

use super::record::{Excerpt, Mark, MarkKind, Occasion};
use super::{Settings, segment::unwrap_near};
use std::mem::{size_of, take};

/// Excerpts of losses, and as many samples, a direction.
const OF_A_KIND_MAX: u32 = 7;
/// Packets after which the next sample may begin, and a flow asks again for a place.
pub(super) const SAMPLE_EVERY: u64 = 1_024;
/// How many times the packets of another a flow must have to take its place.
const LARGER: u64 = 4;
/// Segments in flight that an excerpt of a loss begins with: what was sent where the hole is.
pub(super) const BEFORE_A_LOSS: usize = 96;

/// Marks that the table of an excerpt begins with.
const FIRST_MARKS: usize = 64;

/// Marks of an excerpt.
fn marks_max(occasion: Occasion) -> u16 {
    match occasion {
        Occasion::Beginning => 1_024,
        Occasion::Loss => 768,
        Occasion::Sample => 256,
    }
}

/// A direction's own part: where its marks go, and how many it may still make now.
#[derive(Debug, Default)]
pub(super) struct Eye {
    /// Number of the flow that it belongs to, plus one; 0 has no place.
    owner: u64,
    place: u16,
    way: u8,
    /// Marks that the open excerpt may still have.
    left: u16,
    /// Whether the last packet was a retransmission.
    pub(super) again: bool,
    /// A loss that shows before everything below this is acknowledged is the same.
    pub(super) until: u64,
}

impl Eye {
    /// Whether an excerpt is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Whether a loss may be a new occasion, everything below `acked` being acknowledged.
    pub(super) fn awaits_loss(&self, acked: u64) -> bool {
        self.owner != 0 && acked >= self.until
    }
}

/// An excerpt that is being made.
#[derive(Debug)]
struct Open {
    occasion: Occasion,
    /// The first number of it; marks are relative to that.
    base: u64,
    marks: Vec<Mark>,
}

impl Open {
    /// Room for a mark, of `left` that may come: the table doubles, within what all may still grow by.
    fn has_room(&mut self, left: u16, marks_left: &mut usize) -> bool {
        let marks = &mut self.marks;
        if marks.len() < marks.capacity() {
            return true;
        }
        let wanted = marks.capacity().max(FIRST_MARKS).min(usize::from(left));
        let growth = wanted.min(*marks_left);
        marks.reserve_exact(growth);
        *marks_left -= growth;
        growth > 0
    }
}

/// All excerpts of a direction.
#[derive(Debug, Default)]
struct Way {
    all: Vec<Open>,
    /// Tables of excerpts that went, by occasion: the next take them, so that a long flow allocates no more.
    spare: [Vec<Vec<Mark>>; 3],
    /// Occasions of each kind so far, and which of them count: every first, second, fourth…
    seen: [u32; 3],
    every_log2: [u8; 3],
}

/// A flow that has a place.
#[derive(Debug, Default)]
struct Place {
    /// As [`Eye::owner`] has it; 0 is free.
    owner: u64,
    packets: u64,
    ways: [Way; 2],
}

/// The places of a shard.
#[derive(Debug)]
pub(super) struct Excerpts {
    places: Vec<Place>,
    places_max: usize,
    /// By which all tables may still grow.
    marks_left: usize,
}

impl Excerpts {
    /// Memory that they may have, of what all tables may have.
    pub(super) fn bytes_max(settings: &Settings) -> usize {
        match settings.excerpts_flows_max {
            0 => 0,
            _ => settings.tables_max_bytes / 8,
        }
    }

    /// No place is taken.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            places: Vec::new(),
            places_max: settings.excerpts_flows_max,
            marks_left: Self::bytes_max(settings) / size_of::<Mark>(),
        }
    }

    /// A flow has had so many packets: gives its directions a place, if it has none and there is a free
    /// one or one of a much smaller flow.
    pub(super) fn claim(&mut self, number: u64, packets: u64, eyes: [&mut Eye; 2]) {
        let owner = number + 1;
        if let Some(place) = self.place_of(owner, packets) {
            self.places[place].packets = packets;
            for (way, eye) in (0..).zip(eyes) {
                if eye.owner != owner || usize::from(eye.place) != place {
                    (eye.owner, eye.place, eye.way) = (owner, place as u16, way);
                }
            }
        }
    }

    fn place_of(&mut self, owner: u64, packets: u64) -> Option<usize> {
        if let Some(own) = self.places.iter().position(|place| place.owner == owner) {
            return Some(own);
        }
        if self.places.len() < self.places_max {
            self.places.push(Place::default());
            return self.take(self.places.len() - 1, owner);
        }
        let places = self.places.iter().enumerate();
        let (least, place) = places.min_by_key(|(_, place)| (place.owner != 0, place.packets))?;
        let free = place.owner == 0 || place.packets.saturating_mul(LARGER) < packets;
        free.then(|| self.take(least, owner)).flatten()
    }

    fn take(&mut self, place: usize, owner: u64) -> Option<usize> {
        self.clear(place);
        self.places[place].owner = owner;
        Some(place)
    }

    fn clear(&mut self, place: usize) -> [Way; 2] {
        let Place { ways, .. } = take(&mut self.places[place]);
        self.marks_left += ways.iter().map(Way::room).sum::<usize>();
        ways
    }

    /// An occasion: begins an excerpt if this is one that counts and none is open.
    pub(super) fn begin(&mut self, eye: &mut Eye, occasion: Occasion) -> bool {
        let Some(way) = way_of(&mut self.places, eye) else {
            eye.left = 0;
            return false;
        };
        let outranks = occasion == Occasion::Loss && way.samples();
        if eye.left > 0 && !outranks || !way.counts(occasion) {
            return false;
        }
        let marks = way.spare[occasion as usize].pop().unwrap_or_default();
        way.all.push(Open {
            occasion,
            base: 0,
            marks,
        });
        (eye.left, eye.again) = (marks_max(occasion), false);
        true
    }

    /// A mark of the open excerpt, from `low` to `high`.
    pub(super) fn mark(
        &mut self,
        eye: &mut Eye,
        at_ns: u64,
        (low, high): (u64, u64),
        kind: MarkKind,
    ) {
        let way = way_of(&mut self.places, eye).filter(|_| eye.left > 0);
        let open = way.and_then(|way| way.all.last_mut());
        let mut room = |open: &mut Open| open.has_room(eye.left, &mut self.marks_left);
        let Some(open) = open.and_then(|open| room(open).then_some(open)) else {
            eye.left = 0;
            return;
        };
        if open.marks.is_empty() {
            open.base = low;
        }
        let relative = |number: u64| (number as u32).wrapping_sub(open.base as u32).cast_signed();
        open.marks.push(Mark {
            at_ns,
            low: relative(low),
            high: relative(high),
            kind,
        });
        eye.left -= 1;
    }

    /// The flow is over: its excerpts, upload and download, in order of time.
    pub(super) fn release(&mut self, number: u64, origins: [u64; 2]) -> [Vec<Excerpt>; 2] {
        let owner = number + 1;
        let own = self.places.iter().position(|place| place.owner == owner);
        let ways = own.map(|place| self.clear(place)).unwrap_or_default();
        let mut origins = origins.into_iter();
        ways.map(|way| way.finish(origins.next().unwrap_or(0)))
    }
}

/// Where the marks of a direction go, unless another flow took its place.
fn way_of<'a>(places: &'a mut [Place], eye: &Eye) -> Option<&'a mut Way> {
    let place = places.get_mut(usize::from(eye.place))?;
    let mine = eye.owner != 0 && place.owner == eye.owner;
    mine.then(|| &mut place.ways[usize::from(eye.way)])
}

impl Way {
    /// Counts an occasion, and whether it is one of those that are kept. Of too many, each second goes
    /// and each second counts from then on.
    fn counts(&mut self, occasion: Occasion) -> bool {
        let kind = occasion as usize;
        let number = self.seen[kind];
        self.seen[kind] += 1;
        if !self.is_due(number, kind) {
            return false;
        }
        let kept = self.all.iter().filter(|one| one.occasion == occasion);
        if kept.count() >= OF_A_KIND_MAX as usize {
            self.halve(occasion);
        }
        self.is_due(number, kind)
    }

    /// Whether the last excerpt is a sample, which ends where there is something to see.
    fn samples(&self) -> bool {
        (self.all.last()).is_some_and(|open| open.occasion == Occasion::Sample)
    }

    fn is_due(&self, number: u32, kind: usize) -> bool {
        number.trailing_zeros() >= u32::from(self.every_log2[kind])
    }

    /// Drops each second excerpt of a kind.
    fn halve(&mut self, occasion: Occasion) {
        let kind = occasion as usize;
        self.every_log2[kind] += 1;
        let (mut at, spare) = (0, &mut self.spare[kind]);
        self.all.retain_mut(|one| {
            let of_this = one.occasion == occasion;
            let stays = !of_this || at % 2 == 0;
            at += usize::from(of_this);
            if !stays {
                one.marks.clear();
                spare.push(take(&mut one.marks));
            }
            stays
        });
    }

    /// Marks that its tables have room for.
    fn room(&self) -> usize {
        let open = self.all.iter().map(|open| &open.marks);
        let tables = open.chain(self.spare.iter().flatten());
        tables.map(Vec::capacity).sum()
    }

    fn finish(self, origin: u64) -> Vec<Excerpt> {
        let full = self.all.into_iter().filter(|one| one.marks.len() > 1);
        full.map(|one| Excerpt {
            occasion: one.occasion,
            base: one.base.wrapping_sub(origin).cast_signed(),
            marks: one.marks,
        })
        .collect()
    }
}

/// What a packet in flight covers, from a number on the wire near `near`.
pub(super) fn numbers_of(near: u64, start: u32, length: u32) -> (u64, u64) {
    let low = unwrap_near(near, start);
    (low, low + u64::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpts(flows: usize, bytes: usize) -> Excerpts {
        Excerpts::new(&Settings {
            excerpts_flows_max: flows,
            tables_max_bytes: bytes * 8,
            ..Settings::default()
        })
    }

    fn claimed(all: &mut Excerpts, number: u64, packets: u64) -> Eye {
        let (mut eye, mut other) = (Eye::default(), Eye::default());
        all.claim(number, packets, [&mut eye, &mut other]);
        eye
    }

    fn fill(all: &mut Excerpts, eye: &mut Eye, from: u64) {
        let mut number = from;
        while eye.is_open() {
            all.mark(eye, number, (number, number + 1), MarkKind::Sent);
            number += 1;
        }
    }

    #[test]
    fn a_larger_flow_takes_the_place_of_a_smaller() {
        let mut all = excerpts(1, 1 << 20);
        let mut small = claimed(&mut all, 5, 0);
        assert!(all.begin(&mut small, Occasion::Beginning));
        assert_eq!(claimed(&mut all, 6, 0).owner, 0);
        let mut large = claimed(&mut all, 6, SAMPLE_EVERY);
        assert!(all.begin(&mut large, Occasion::Sample));
        all.mark(&mut small, 1, (1, 2), MarkKind::Sent);
        assert!(!small.is_open());
        assert_eq!(all.release(5, [0; 2]), [vec![], vec![]]);
    }

    #[test]
    fn of_many_occasions_those_stay_that_are_evenly_spread() {
        let mut all = excerpts(1, 1 << 20);
        let mut eye = claimed(&mut all, 0, 0);
        for occasion in 0..100 {
            if all.begin(&mut eye, Occasion::Sample) {
                fill(&mut all, &mut eye, 1_000 * (occasion + 1));
            }
        }
        let [found, _] = all.release(0, [0; 2]);
        let times: Vec<u64> = found.iter().map(|e| e.marks[0].at_ns / 1_000 - 1).collect();
        assert_eq!(times, [0, 16, 32, 48, 64, 80, 96]);
        assert!(found.iter().all(|e| e.marks.len() == 256));
    }

    #[test]
    fn marks_have_a_bound_together_and_are_given_back() {
        let marks = 300;
        let mut all = excerpts(2, marks * size_of::<Mark>());
        let mut one = claimed(&mut all, 1, 0);
        all.begin(&mut one, Occasion::Beginning);
        fill(&mut all, &mut one, 7);
        assert_eq!(all.marks_left, 0);
        let [found, _] = all.release(1, [2; 2]);
        assert_eq!((found[0].marks.len(), found[0].base), (marks, 5));
        assert_eq!(all.marks_left, marks);
    }

    #[test]
    fn numbers_are_relative_whatever_wraps() {
        let mut all = excerpts(1, 1 << 20);
        let mut eye = claimed(&mut all, 1, 0);
        all.begin(&mut eye, Occasion::Beginning);
        let base = (1 << 33) - 10;
        for low in [base, base + 20, base - 30] {
            all.mark(&mut eye, 1, (low, low + 5), MarkKind::Sent);
        }
        let [found, _] = all.release(1, [base - 100; 2]);
        let marks: Vec<_> = found[0].marks.iter().map(|m| (m.low, m.high)).collect();
        assert_eq!(
            (found[0].base, marks),
            (100, vec![(0, 5), (20, 25), (-30, -25)])
        );
    }
}
