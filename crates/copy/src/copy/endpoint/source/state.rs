// SPDX-License-Identifier: MIT OR Apache-2.0
//! State shared by all threads of a source: data to send, data in flight, and entries not yet completed.

use super::{
    file::{OutgoingFile, SourceFile},
    rate_limit::RateLimit,
    tuning::StreamTuning,
};
use crate::{
    connection::SendQueue,
    copy::endpoint::{
        limits::{IN_FLIGHT_MAX, XattrBudget},
        rendezvous::StreamOpener,
        reports::{Counters, Reporter},
    },
    protocol::{control::Task, message::SourceMsg, options::Switch, sections::SectionHash},
};
use longhaul_command::threads::{Ends, Monitor};
use longhaul_scheduling::{Ledger, Missing, Parcel, StreamRate, Work};
use longhaul_store::entry::{Entry, Kind};
use longhaul_transport::blocking;
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Instant,
};

/// State of a source, shared by all its threads.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) shared: Arc<Shared>,
    pub(super) to_target: SendQueue<SourceMsg>,
    pub(super) counters: Counters,
    pub(super) reporter: Reporter,
    pub(super) opener: Arc<StreamOpener>,
    pub(super) tuning: Arc<StreamTuning>,
    pub(super) limit: Option<Arc<RateLimit>>,
    pub(super) hash: Switch,
    pub(super) task: Task,
    /// Reasons why the sources are incomplete.
    pub(super) incomplete: Vec<String>,
}

impl Source {
    /// Counts and reports an entry that was removed between its listing and its reading.
    pub(super) fn report_vanished(&self, why: String) {
        self.counters.update(|progress| progress.vanished += 1);
        self.reporter.send_problem(why);
    }

    /// Counts and reports an entry that could not be copied.
    pub(super) fn report_failure(&self, why: String) {
        self.counters.update(|progress| progress.failed += 1);
        self.reporter.send_problem(why);
    }
}

/// Part of an extent that is not completed.
#[derive(Debug, Default)]
pub(super) struct ExtentProgress {
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
    /// Parcels to send a second time, on streams with nothing else in flight.
    resends: VecDeque<Parcel>,
    /// Entries announced and neither completed nor aborted. Only files have further messages.
    pub(super) announced: HashMap<u64, Option<Arc<SourceFile>>>,
    /// Extended attributes of these entries.
    xattr_budget: XattrBudget,
    pub(super) outgoing: HashMap<u64, OutgoingFile>,
    /// Hard links among the announced entries: the target makes them after all other entries.
    announced_links: usize,
    /// Files whose hash the target requested: those not started yet, and (`hashing`) all of them.
    pub(super) to_hash: VecDeque<u64>,
    pub(super) hashing: HashSet<u64>,
    /// Extents that are not completed.
    pub(super) extents: BTreeMap<u64, ExtentProgress>,
    /// Files that changed while they were read, with the time of detection: to be announced again.
    pub(super) to_reannounce: VecDeque<(Instant, u64)>,
    next_number: u64,
    /// Open streams, by number.
    pub(super) streams: BTreeMap<u64, Arc<blocking::Connection>>,
    /// Maximum streams: those beyond it end when they have nothing in flight; `None` is no limit.
    pub(super) streams_max: Option<usize>,
    pub(super) over: bool,
}

impl Ends for State {
    fn is_over(&self) -> bool {
        self.over
    }
}

/// Waits for the next parcel of a stream. `None`: no more data, the stream has ended, or there are too many
/// streams.
pub(super) fn next_parcel(shared: &Shared, stream: u64) -> Option<Parcel> {
    shared.wait_for(|state| {
        if state.is_finished(stream) {
            Some(None)
        } else {
            state.next_parcel(stream).map(Some)
        }
    })
}

impl State {
    /// Returns the open streams.
    pub(super) fn streams(&self) -> Vec<(u64, Arc<blocking::Connection>)> {
        let all = self.streams.iter();
        all.map(|(number, handle)| (*number, handle.clone()))
            .collect()
    }

    /// Returns whether another entry may be announced. Hard links take no room: they complete last.
    pub(super) fn has_room(&self) -> bool {
        self.announced.len() < IN_FLIGHT_MAX + self.announced_links && self.xattr_budget.has_room()
    }

    /// Adds an entry to those announced; returns its number.
    pub(super) fn announce(&mut self, entry: &Entry, file: Option<Arc<SourceFile>>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.announced.insert(number, file);
        self.xattr_budget.add(number, &entry.metadata);
        self.announced_links += usize::from(matches!(entry.kind, Kind::HardLink { .. }));
        number
    }

    /// Returns whether a stream carries nothing more.
    fn is_finished(&mut self, stream: u64) -> bool {
        self.over || self.ledger.has_ended(stream) || self.retire_excess(stream)
    }

    /// Removes a stream that is one too many; returns whether it was.
    fn retire_excess(&mut self, stream: u64) -> bool {
        let streams_max = self.streams_max;
        streams_max.is_some_and(|streams_max| is_excess(&self.streams, streams_max, stream))
            && self.streams.remove(&stream).is_some()
    }

    /// Queues the missing data of a file; `false` if the target requested it before.
    pub(super) fn request(
        &mut self,
        file: u64,
        missing: Missing,
        count: u64,
        known: Vec<SectionHash>,
    ) -> bool {
        if self.outgoing.contains_key(&file) {
            return false;
        }
        // The file may have been aborted meanwhile.
        if let Some(Some(source)) = self.announced.get(&file) {
            self.outgoing
                .insert(file, OutgoingFile::new(source.clone(), count, known));
            self.work.add(file, missing);
        }
        true
    }

    /// Completes an entry; returns its file, if it is one, and `None` if it was completed before. Data still
    /// queued for it is skipped.
    pub(super) fn complete(&mut self, number: u64) -> Option<Option<Arc<SourceFile>>> {
        self.outgoing.remove(&number);
        self.remove(number)
    }

    /// Removes an entry from those announced.
    pub(super) fn remove(&mut self, number: u64) -> Option<Option<Arc<SourceFile>>> {
        self.xattr_budget.remove(number);
        self.announced.remove(&number)
    }

    /// Queues data in flight on slow streams for other streams, if these have nothing else to carry.
    pub(super) fn queue_resends(&mut self, rates: &BTreeMap<u64, StreamRate>, now: Time) {
        if self.work.is_empty() && self.resends.is_empty() {
            self.resends = self.ledger.choose_resends(rates, now).into();
        }
    }

    /// Takes the next parcel for a stream. A slow stream must not get its own parcel again.
    fn next_parcel(&mut self, stream: u64) -> Option<Parcel> {
        let next = self.work.next_parcel();
        next.or_else(|| {
            if self.ledger.is_idle(stream) {
                self.resends.pop_front()
            } else {
                None
            }
        })
    }

    /// Queues again what a broken stream did not deliver, except parcels of completed files.
    pub(super) fn requeue(&mut self, parcels: VecDeque<Parcel>) {
        for parcel in parcels.into_iter().rev() {
            let file = match &parcel {
                Parcel::Block { file, .. } => Some(*file),
                Parcel::Files(files) => files.first().copied(),
            };
            if file.is_some_and(|file| self.outgoing.contains_key(&file)) {
                self.work.requeue(parcel);
            }
        }
    }
}

/// Returns whether a stream is beyond the first `streams_max`. The newest streams end, because the windows of
/// the others have grown.
fn is_excess<T>(streams: &BTreeMap<u64, T>, streams_max: usize, stream: u64) -> bool {
    let first_excess = streams.keys().nth(streams_max);
    first_excess.is_some_and(|first| stream >= *first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::fixtures::entry;
    use longhaul_store::path::RelPath;

    /// The target makes links at the end: waiting for them would never end.
    #[test]
    fn hard_links_take_no_room() {
        let shared = Shared::default();
        let to = RelPath::parse(b"a").unwrap();
        let link = Kind::HardLink { to };
        let max = IN_FLIGHT_MAX as u64;
        let announce = |kind: &Kind| {
            let entry = entry("b", kind.clone());
            shared.update(|state| state.announce(&entry, None))
        };
        for _ in 0..max {
            announce(&link);
        }
        assert!(shared.read(State::has_room));
        for _ in 0..max {
            announce(&Kind::Fifo);
        }
        assert!(!shared.read(State::has_room));
        shared.update(|state| state.complete(max));
        assert!(shared.read(State::has_room));
    }

    #[test]
    fn retires_newest_streams_first() {
        let streams: BTreeMap<u64, ()> = [1, 4, 6, 9].map(|number| (number, ())).into();
        let excess = |streams_max| -> Vec<u64> {
            let all = streams.keys().copied();
            all.filter(|stream| is_excess(&streams, streams_max, *stream))
                .collect()
        };
        assert_eq!(excess(2), [6, 9]);
        assert_eq!(excess(0), [1, 4, 6, 9]);
        assert!(excess(4).is_empty() && excess(usize::MAX).is_empty());
    }
}
