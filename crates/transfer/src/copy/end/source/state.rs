// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all threads of a source share: what is to be sent, what is under way, what is not yet done with.

use super::{
    file::{Sending, SourceFile},
    limit::Limit,
    tuning::Tuning,
};
use crate::{
    copy::end::{
        limits::{Attributes, UNSETTLED_MAX},
        meeting::Opener,
        reports::{Reporter, Tally},
    },
    protocol::{message::Order, options::Switch, order::Task},
    transport::outbox::Outbox,
};
use longhaul_command::threads::{Ends, Monitor};
use longhaul_scheduling::{Ledger, Missing, Pace, Parcel, Stragglers, Work};
use longhaul_store::entry::{Entry, Kind};
use longhaul_transport::blocking::Handle;
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Instant,
};

/// What all threads of a source have.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) shared: Arc<Shared>,
    pub(super) orders: Outbox<Order>,
    pub(super) tally: Tally,
    pub(super) reporter: Reporter,
    pub(super) opener: Arc<Opener>,
    pub(super) tuning: Arc<Tuning>,
    pub(super) limit: Option<Arc<Limit>>,
    pub(super) hash: Switch,
    pub(super) task: Task,
    /// Why what is here is not all of what it is called.
    pub(super) incomplete: Vec<String>,
}

impl Source {
    /// Something that could not be copied.
    pub(super) fn fail(&self, why: String) {
        self.tally.add(|now| now.failed += 1);
        self.reporter.problem(why);
    }
}

/// What of an extent is not settled.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    pub(super) files: u64,
    /// Whether more of it is to be announced.
    pub(super) more: bool,
    pub(super) failed: Option<String>,
}

pub(super) type Shared = Monitor<State>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) work: Work,
    pub(super) ledger: Ledger,
    pub(super) stragglers: Stragglers,
    /// What goes a second time, on a stream that has nothing else under way.
    late: VecDeque<Parcel>,
    /// Announced, and neither settled nor withdrawn. Only files have more to say.
    pub(super) announced: HashMap<u64, Option<Arc<SourceFile>>>,
    /// What those have that are no data.
    attributes: Attributes,
    pub(super) sending: HashMap<u64, Sending>,
    /// Hard links among what was announced: the target makes them when it has heard of all else.
    links: usize,
    /// Files of which the target wants the hash: those that nobody has begun with, and all.
    pub(super) to_hash: VecDeque<u64>,
    pub(super) hashing: HashSet<u64>,
    /// Extents of which something is not settled.
    pub(super) extents: BTreeMap<u64, Unsettled>,
    /// Files that changed while they were read, and when that was seen: to be announced again.
    pub(super) changed: VecDeque<(Instant, u64)>,
    next_number: u64,
    /// Streams that carry, by number.
    pub(super) streams: BTreeMap<u64, Handle>,
    /// More than that end when they have nothing under way; none is any number.
    pub(super) streams_max: Option<usize>,
    pub(super) over: bool,
}

impl Ends for State {
    fn is_over(&self) -> bool {
        self.over
    }
}

/// What a stream carries next; waits for it. `None`: nothing more comes, the stream has ended, or there are too many.
pub(super) fn next_parcel(shared: &Shared, stream: u64) -> Option<Parcel> {
    shared.wait_for(|state| match state.is_done_with(stream) {
        true => Some(None),
        false => state.next(stream).map(Some),
    })
}

impl State {
    /// Those that carry.
    pub(super) fn streams(&self) -> Vec<(u64, Handle)> {
        let all = self.streams.iter();
        all.map(|(number, handle)| (*number, handle.clone()))
            .collect()
    }

    /// Whether another entry may be announced. No link waits for that, nor does anything for a link.
    pub(super) fn has_room(&self) -> bool {
        self.announced.len() < UNSETTLED_MAX + self.links && self.attributes.have_room()
    }

    /// The number under which the target is told of something.
    pub(super) fn announce(&mut self, entry: &Entry, file: Option<Arc<SourceFile>>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.announced.insert(number, file);
        self.attributes.add(number, &entry.metadata);
        self.links += usize::from(matches!(entry.kind, Kind::HardLink { .. }));
        number
    }

    /// Whether a stream carries nothing more.
    fn is_done_with(&mut self, stream: u64) -> bool {
        self.over || self.ledger.has_ended(stream) || self.retires(stream)
    }

    /// Whether a stream is one too many; it is not counted any more then.
    fn retires(&mut self, stream: u64) -> bool {
        let most = self.streams_max;
        most.is_some_and(|most| is_too_many(&self.streams, most, stream))
            && self.streams.remove(&stream).is_some()
    }

    /// The target wants a file; `false` if it has said so before.
    pub(super) fn need(&mut self, file: u64, missing: Missing, count: u64) -> bool {
        if self.sending.contains_key(&file) {
            return false;
        }
        // It may have been withdrawn meanwhile.
        if let Some(Some(source)) = self.announced.get(&file) {
            self.sending
                .insert(file, Sending::new(source.clone(), count));
            self.work.need(file, missing);
        }
        true
    }

    /// An entry is done with; its file, if it is one, unless it was done with before. What is still to be sent of it is passed over.
    pub(super) fn settle(&mut self, number: u64) -> Option<Option<Arc<SourceFile>>> {
        self.sending.remove(&number);
        self.forget(number)
    }

    /// What was announced is known under that number no more.
    pub(super) fn forget(&mut self, number: u64) -> Option<Option<Arc<SourceFile>>> {
        self.attributes.remove(number);
        self.announced.remove(&number)
    }

    /// What slow streams have under way goes on others, too, if those have nothing else to carry.
    pub(super) fn repeat(&mut self, paces: &BTreeMap<u64, Pace>, now: Time) {
        if self.work.is_empty() && self.late.is_empty() {
            self.late = self.stragglers.repeat(&self.ledger, paces, now).into();
        }
    }

    /// What a stream carries next. A slow one must not get its own again.
    fn next(&mut self, stream: u64) -> Option<Parcel> {
        let next = self.work.take();
        next.or_else(|| match self.ledger.is_idle(stream) {
            true => self.late.pop_front(),
            false => None,
        })
    }

    /// What a broken stream did not deliver goes again, but for files that are done with.
    pub(super) fn again(&mut self, parcels: VecDeque<Parcel>) {
        for parcel in parcels.into_iter().rev() {
            let file = match &parcel {
                Parcel::Block { file, .. } => Some(*file),
                Parcel::Files(files) => files.first().copied(),
            };
            if file.is_some_and(|file| self.sending.contains_key(&file)) {
                self.work.again(parcel);
            }
        }
    }
}

/// Whether a stream is beyond the first `most`: those that came last go, for the others have their windows.
fn is_too_many<T>(streams: &BTreeMap<u64, T>, most: usize, stream: u64) -> bool {
    let first_too_many = streams.keys().nth(most);
    first_too_many.is_some_and(|first| stream >= *first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::samples::entry;
    use longhaul_store::path::RelPath;

    /// The target makes links at the end: who waited for them would wait for ever.
    #[test]
    fn any_number_of_hard_links_may_be_announced() {
        let shared = Shared::default();
        let to = RelPath::parse(b"a").unwrap();
        let link = Kind::HardLink { to };
        let max = UNSETTLED_MAX as u64;
        let announce = |kind: &Kind| {
            let entry = entry("b", kind.clone());
            shared.change(|state| state.announce(&entry, None))
        };
        for _ in 0..max {
            announce(&link);
        }
        assert!(shared.look(State::has_room));
        for _ in 0..max {
            announce(&Kind::Fifo);
        }
        assert!(!shared.look(State::has_room));
        shared.change(|state| state.settle(max));
        assert!(shared.look(State::has_room));
    }

    #[test]
    fn the_streams_that_came_last_are_too_many() {
        let streams: BTreeMap<u64, ()> = [1, 4, 6, 9].map(|number| (number, ())).into();
        let too_many = |most| -> Vec<u64> {
            let all = streams.keys().copied();
            all.filter(|stream| is_too_many(&streams, most, *stream))
                .collect()
        };
        assert_eq!(too_many(2), [6, 9]);
        assert_eq!(too_many(0), [1, 4, 6, 9]);
        assert!(too_many(4).is_empty() && too_many(usize::MAX).is_empty());
    }
}
