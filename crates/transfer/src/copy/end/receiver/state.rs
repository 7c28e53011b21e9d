// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all threads of a target share.

use super::large::{Large, Named, size};
use crate::{
    copy::end::limits::{Attributes, DESCRIPTORS_OTHER, DESCRIPTORS_STREAM},
    protocol::message::Share,
};
use longhaul_command::threads::{Ends, Monitor};
use longhaul_store::{
    blocks::{Blocks, FileHash},
    entry::Entry,
    part::Finished,
    small::Small,
};
use longhaul_transport::blocking::Handle;
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

/// Files of several blocks that are open at once, at most.
const OPEN_MAX: usize = 64;
/// Blocks of all of them, unless one alone has more: 16 TiB, of which the target keeps 140 MB.
const OPEN_BLOCKS_MAX: u64 = 4 << 20;
/// Small files that are written and not yet durable, at most; as many again are written while these become durable.
const BATCH_MAX: usize = 256;
/// Bytes that were written and are not yet durable, at most, and a block a stream: a kill costs no more, and what is
/// under way. At 1 Gbit/s a disk may take a second for a sync before streams wait for it.
pub(super) const AT_RISK_MAX: u64 = 128 << 20;

/// What a source may have announced that is not settled: what it allows itself, and what its streams are withdrawing.
const UNSETTLED_MAX: u64 = crate::copy::end::limits::UNSETTLED_MAX as u64 + 1024;

/// How long another copy may be at a file. Whoever held it may have been killed a moment ago.
const BUSY_MAX: Time = Time::from_secs(3);

pub(super) type Shared = Monitor<State>;

/// How many files may be open at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Of several blocks.
    pub(super) open: usize,
    /// Small ones in a batch.
    pub(super) batch: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            open: OPEN_MAX,
            batch: BATCH_MAX,
        }
    }
}

impl Room {
    /// What so many descriptors are enough for beside streams; `None` is no limit. At least one of each.
    pub(super) fn within(descriptors: Option<u64>, streams: usize) -> Self {
        let taken = DESCRIPTORS_OTHER + DESCRIPTORS_STREAM * streams;
        let all = descriptors.and_then(|all| usize::try_from(all).ok());
        let left = all.unwrap_or(usize::MAX).saturating_sub(taken);
        // Four fifths are for the small ones.
        Self {
            open: (left / 20).clamp(1, OPEN_MAX),
            batch: (left / 5).clamp(1, BATCH_MAX),
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) room: Room,
    /// Entries that were announced and are neither settled nor withdrawn.
    pub(super) unsettled: u64,
    /// What those have that are no data.
    pub(super) attributes: Attributes,
    /// Hard links among them: the files have to be there first.
    pub(super) links: u64,
    /// Small files that are wanted.
    pub(super) small: HashMap<u64, Arc<Entry>>,
    /// Files of which the source was asked for the hash, and those whose hash has come.
    pub(super) comparing: HashMap<u64, Entry>,
    pub(super) to_compare: VecDeque<Comparison>,
    /// Files that are being written block by block.
    pub(super) large: BTreeMap<u64, Arc<Large>>,
    /// Those of them of which an earlier run brought something, which nobody has read again.
    pub(super) to_check: VecDeque<Arc<Large>>,
    /// Those that wait until one of these is done.
    pub(super) waiting: VecDeque<Waiting>,
    /// Those that another copy is at: they are looked at again now and then.
    busy: Vec<Waiting>,
    /// Files that are being opened, and how many blocks each has.
    opening: HashMap<u64, u64>,
    /// Under their names already, without a record of it.
    pub(super) renamed: Vec<Done>,
    /// Written, without a name yet.
    pub(super) batch: Vec<Written>,
    streams: HashMap<u64, Stream>,
    /// Bytes of blocks that were written, and of those that were before the last commit began that has ended.
    written: u64,
    committed: u64,
    /// Streams of which the source was told the end.
    ended: HashSet<u64>,
    pub(super) over: bool,
    pub(super) source_gone: bool,
}

/// A file of several blocks that is not open yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) entry: Entry,
    pub(super) share: Share,
    /// Another copy was at it: how long this one waits for that.
    until: Option<Time>,
}

impl Waiting {
    pub(super) fn new(number: u64, entry: Entry, share: Share) -> Self {
        Self {
            number,
            entry,
            share,
            until: None,
        }
    }
}

#[derive(Debug)]
struct Stream {
    handle: Handle,
    blocks: u64,
    told: u64,
}

/// A file, and the hash of the source's.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) number: u64,
    pub(super) entry: Entry,
    pub(super) hash: FileHash,
}

/// A file that has its name.
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) entry: Arc<Entry>,
    pub(super) left_out: Vec<String>,
    /// None of a small one, which has no journal.
    pub(super) finished: Option<Finished>,
}

impl Done {
    pub(super) fn of(number: u64, entry: Arc<Entry>, named: Named) -> Self {
        let Named { finished, left_out } = named;
        Self {
            number,
            entry,
            left_out,
            finished: Some(finished),
        }
    }
}

/// A small file that waits for its name.
pub(super) struct Written {
    pub(super) number: u64,
    pub(super) entry: Arc<Entry>,
    pub(super) small: Small,
    pub(super) left_out: Vec<String>,
}

impl Ends for State {
    fn is_over(&self) -> bool {
        self.over
    }
}

impl State {
    /// Whether the source is no honest one.
    pub(super) fn announced_too_much(&self) -> bool {
        self.unsettled - self.links > UNSETTLED_MAX || self.attributes.are_too_many()
    }

    /// Bytes that a kill would cost.
    fn at_risk(&self) -> u64 {
        self.written - self.committed
    }

    /// Whether more may be written before some of it is durable.
    pub(super) fn has_room(&self) -> bool {
        self.at_risk() < AT_RISK_MAX
    }

    /// A file that waited, if it may be opened now. Whoever gets it says afterwards that it [is open, or is not](Self::opened).
    pub(super) fn next_to_open(&mut self) -> Option<Waiting> {
        let next = self.waiting.front()?;
        let (number, next) = (next.number, Blocks::of(size(&next.entry)).count());
        let open = self.opening.len() + self.large.len();
        let large = self.large.values().map(|large| large.blocks.count());
        let blocks: u64 = self.opening.values().copied().chain(large).sum();
        let fits = open < self.room.open && blocks.saturating_add(next) <= OPEN_BLOCKS_MAX;
        if open > 0 && !fits {
            return None;
        }
        self.opening.insert(number, next);
        self.waiting.pop_front()
    }

    /// What was to be opened is open, or can't be.
    pub(super) fn opened(&mut self, number: u64, large: Option<Arc<Large>>) {
        self.opening.remove(&number);
        if let Some(large) = large {
            self.to_check.push_back(large.clone());
            self.large.insert(number, large);
        }
    }

    /// Another copy is at a file that was to be opened: it waits apart, so that others don't wait for it. Given back if it has
    /// waited long enough.
    pub(super) fn wait_for_another(&mut self, mut file: Waiting, now: Time) -> Option<Waiting> {
        let until = *file.until.get_or_insert(now + BUSY_MAX);
        if now >= until {
            return Some(file);
        }
        self.busy.push(file);
        None
    }

    /// Those that another copy was at are to be opened next.
    pub(super) fn look_again(&mut self) -> bool {
        let any = !self.busy.is_empty();
        self.busy
            .drain(..)
            .for_each(|file| self.waiting.push_front(file));
        any
    }

    /// A file is not to be opened any more; whether it was to be.
    pub(super) fn forget_waiting(&mut self, number: u64) -> bool {
        let all = self.waiting.len() + self.busy.len();
        self.waiting.retain(|file| file.number != number);
        self.busy.retain(|file| file.number != number);
        self.waiting.len() + self.busy.len() < all
    }

    /// Whether so much was written that its commit shall not wait.
    pub(super) fn is_worth_a_commit(&self) -> bool {
        self.at_risk() >= AT_RISK_MAX / 2 || self.batch.len() >= self.room.batch.div_ceil(2)
    }

    /// Whether the committing thread has something to do that can't wait: much, or the last that is to come.
    pub(super) fn wants_a_commit(&self) -> bool {
        let waiting = self.batch.len() as u64;
        self.is_worth_a_commit() || (waiting > 0 && waiting >= self.unsettled)
    }

    /// Whether all that was announced is done with, but for hard links, which come last.
    pub(super) fn only_links_are_left(&self) -> bool {
        self.unsettled == self.links
    }

    /// What a commit that begins now makes durable, for [`Self::end_commit`].
    pub(super) fn begin_commit(&self) -> u64 {
        self.written
    }

    /// What was written before it began is durable, or known to be lost.
    pub(super) fn end_commit(&mut self, written: u64) {
        self.committed = written;
    }

    /// A stream has come; `false` if it is not wanted any more.
    pub(super) fn begin_stream(&mut self, number: u64, handle: Handle) -> bool {
        if self.over || self.ended.contains(&number) {
            return false;
        }
        let stream = Stream {
            handle,
            blocks: 0,
            told: 0,
        };
        self.streams.insert(number, stream);
        true
    }

    /// A block of `length` bytes has come by a stream and was written, or passed over.
    pub(super) fn count_block(&mut self, number: u64, length: usize) {
        self.written += length as u64;
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.blocks += 1;
        }
    }

    /// A stream has ended; how many blocks came by it, if that was not told yet.
    pub(super) fn end_stream(&mut self, number: u64) -> Option<u64> {
        let stream = self.streams.remove(&number)?;
        self.ended.insert(number).then_some(stream.blocks)
    }

    /// The source has given a stream up. One that never came has brought nothing.
    pub(super) fn give_up_stream(&mut self, number: u64) -> Option<u64> {
        match self.streams.get(&number) {
            // Its thread tells.
            Some(stream) => {
                stream.handle.cut();
                None
            }
            None => self.ended.insert(number).then_some(0),
        }
    }

    /// How many blocks came by each stream, where that has not been told.
    pub(super) fn untold(&mut self) -> Vec<(u64, u64)> {
        let changed = self.streams.iter_mut().filter(|(_, s)| s.told < s.blocks);
        let told = changed.map(|(number, stream)| {
            stream.told = stream.blocks;
            (*number, stream.blocks)
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::end::limits::{DESCRIPTORS_LARGE, DESCRIPTORS_SMALL};
    use crate::copy::samples::{entry, file};
    use longhaul_store::blocks::BLOCK;

    fn waiting(number: u64, size: u64) -> Waiting {
        Waiting::new(number, entry("file", file(size)), Share::Whole)
    }

    /// A source may announce any number of sparse files of 64 TiB.
    #[test]
    fn huge_files_are_opened_one_after_the_other() {
        let huge = (OPEN_BLOCKS_MAX + 1) * BLOCK;
        let mut state = State::default();
        for (number, size) in [5 * BLOCK, huge, huge, 5 * BLOCK].into_iter().enumerate() {
            state.waiting.push_back(waiting(number as u64, size));
        }
        let open = |state: &mut State| state.next_to_open().map(|file| file.number);
        assert_eq!((open(&mut state), open(&mut state)), (Some(0), None));
        state.opened(0, None);
        assert_eq!((open(&mut state), open(&mut state)), (Some(1), None));
        state.opened(1, None);
        assert_eq!(open(&mut state), Some(2));
        state.opened(2, None);
        assert_eq!((open(&mut state), open(&mut state)), (Some(3), None));
    }

    #[test]
    fn no_more_files_are_open_than_descriptors_allow() {
        let mut state = State::default();
        state.room.open = 2;
        for number in 0..3 {
            state.waiting.push_back(waiting(number, 2 * BLOCK));
        }
        let opened = std::iter::from_fn(|| state.next_to_open()).count();
        assert_eq!(opened, 2);
    }

    #[test]
    fn who_waits_for_another_copy_keeps_nobody_waiting() {
        let mut state = State::default();
        state.room.open = 1;
        let begun = Time::from_secs(100);
        state
            .waiting
            .extend([waiting(0, 2 * BLOCK), waiting(1, 2 * BLOCK)]);
        let busy = state.next_to_open().unwrap();
        assert!(state.wait_for_another(busy, begun).is_none());
        state.opened(0, None);
        assert_eq!(state.next_to_open().unwrap().number, 1);
        state.opened(1, None);
        for (elapsed, given_up) in [(BUSY_MAX - Time::from_millis(1), false), (BUSY_MAX, true)] {
            assert!(state.look_again());
            let busy = state.next_to_open().unwrap();
            state.opened(0, None);
            let given_back = state.wait_for_another(busy, begun + elapsed);
            assert_eq!(given_back.is_some(), given_up);
        }
        assert!(!state.look_again());
        assert!(!state.forget_waiting(0));
    }

    #[test]
    fn where_descriptors_are_few_fewer_files_are_open() {
        let room = |descriptors, streams| {
            let Room { open, batch } = Room::within(descriptors, streams);
            assert!((1..=OPEN_MAX).contains(&open) && (1..=BATCH_MAX).contains(&batch));
            let files = DESCRIPTORS_LARGE * open + DESCRIPTORS_SMALL * batch;
            let others = DESCRIPTORS_OTHER + DESCRIPTORS_STREAM * streams;
            (files, others)
        };
        assert_eq!(room(None, 64), room(Some(1 << 20), 64));
        for (descriptors, streams) in [(4096, 256), (1024, 64), (512, 64), (256, 16), (128, 4)] {
            let (files, others) = room(Some(descriptors), streams);
            assert!(files + others <= descriptors as usize, "{descriptors}");
        }
        assert_eq!(room(Some(10), 4).0, 8);
    }

    #[test]
    fn what_is_written_waits_for_what_is_durable() {
        let mut state = State::default();
        let half = AT_RISK_MAX as usize / 2;
        state.count_block(0, half - 1);
        assert!(!state.is_worth_a_commit());
        state.count_block(1, 1);
        assert!(state.is_worth_a_commit() && state.has_room());
        let commit = state.begin_commit();
        state.count_block(0, half);
        assert!(!state.has_room(), "what comes during a commit is not in it");
        state.end_commit(commit);
        assert!(state.has_room());
        assert_eq!(state.at_risk(), half as u64);
    }
}
