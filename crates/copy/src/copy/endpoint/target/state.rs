// SPDX-License-Identifier: MIT OR Apache-2.0
//! State shared by all threads of a target, and the completion of entries.

use super::large_file::{CompletedFile, LargeFile, size};
use crate::{
    connection::SendQueue,
    copy::endpoint::{
        limits::{DESCRIPTORS_OTHER, DESCRIPTORS_STREAM, XattrBudget},
        rendezvous::StreamOpener,
        reports::{Counters, Reporter},
    },
    protocol::{
        control::Task,
        message::{Outcome, Portion, TargetMsg},
        options::Options,
    },
};
use longhaul_command::threads::{Ends, Monitor};
use longhaul_store::{
    blocks::{Blocks, FileHash},
    entry::Entry,
    part::FinishedFile,
    path::RelPath,
    root::Root,
    small::SmallFile,
    tree::preserve::Preserve,
};
use longhaul_transport::blocking;
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

/// Maximum open files of several blocks.
const OPEN_FILES_MAX: usize = 64;
/// Maximum blocks of all open files, unless one alone has more: 16 TiB, for which the target needs 140 MB.
const OPEN_BLOCKS_MAX: u64 = 4 << 20;
/// Maximum small files that are written and not yet durable. As many again are written while these become
/// durable.
const BATCH_MAX: usize = 256;
/// Maximum bytes written and not yet durable, plus a block per stream. A kill loses these and the data in
/// flight. At 1 Gbit/s a sync may take a second before streams wait for it.
pub(super) const AT_RISK_MAX: u64 = 128 << 20;

/// Maximum entries in flight that a target accepts: the source's own limit, and entries that its streams are
/// aborting.
const IN_FLIGHT_MAX: u64 = crate::copy::endpoint::limits::IN_FLIGHT_MAX as u64 + 1024;

/// Maximum wait for another copy that writes a file. Its process may have been killed a moment ago.
pub(super) const BUSY_WAIT_MAX: Time = Time::from_secs(3);

pub(super) type Shared = Monitor<State>;

/// Target, shared by all its threads.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) root: Arc<Root>,
    /// Name of the first path component here, if it differs from the source's.
    pub(super) top_name: Option<RelPath>,
    /// Directory that a dry run would have made, and that contains all entries.
    pub(super) planned_directory: Option<RelPath>,
    pub(super) options: Arc<Options>,
    /// Metadata that is copied, by the options.
    pub(super) preserve: Arc<Preserve>,
    pub(super) task: Task,
    pub(super) shared: Arc<Shared>,
    pub(super) to_source: SendQueue<TargetMsg>,
    pub(super) counters: Counters,
    pub(super) reporter: Reporter,
    pub(super) opener: Arc<StreamOpener>,
}

impl Target {
    /// Completes an entry: counts and reports its outcome.
    pub(super) fn complete(&self, number: u64, path: &RelPath, outcome: Outcome) {
        self.counters.update(|progress| progress.count(&outcome));
        match &outcome {
            Outcome::CopiedWithout(what) => {
                let what = what.join(", ");
                self.reporter
                    .send_problem(format!("{path}: copied without {what}"));
            }
            Outcome::Failed(why) => self.reporter.send_problem(why.clone()),
            _ => {}
        }
        // Before the entry counts as completed: the message that ends the session must come after it.
        self.to_source
            .push(TargetMsg::EntryDone { number, outcome });
        self.shared.update_if(
            |state| {
                state.in_flight -= 1;
                state.xattr_budget.remove(number);
            },
            |state| state.in_flight <= state.links || state.needs_commit(),
        );
    }

    /// Counts and reports an error that belongs to no file.
    pub(super) fn report_failure(&self, why: String) {
        self.counters.update(|progress| progress.failed += 1);
        self.reporter.send_problem(why);
    }
}

/// Maximum numbers of open files.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenLimits {
    /// Files of several blocks.
    pub(super) open: usize,
    /// Small files in a batch.
    pub(super) batch: usize,
}

impl Default for OpenLimits {
    fn default() -> Self {
        Self {
            open: OPEN_FILES_MAX,
            batch: BATCH_MAX,
        }
    }
}

impl OpenLimits {
    /// Returns the limits for a number of descriptors, next to those of `streams` streams. Without a number
    /// there is no limit. At least one file of each kind may be open.
    pub(super) fn for_descriptors(descriptors: Option<u64>, streams: usize) -> Self {
        let reserved = DESCRIPTORS_OTHER + DESCRIPTORS_STREAM * streams;
        let all = descriptors.and_then(|all| usize::try_from(all).ok());
        let left = all.unwrap_or(usize::MAX).saturating_sub(reserved);
        // A fifth of the descriptors is for large files, four fifths for small ones.
        Self {
            open: (left / 20).clamp(1, OPEN_FILES_MAX),
            batch: (left / 5).clamp(1, BATCH_MAX),
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) open_limits: OpenLimits,
    /// Entries that were announced and are neither completed nor aborted.
    pub(super) in_flight: u64,
    /// Extended attributes of these entries.
    pub(super) xattr_budget: XattrBudget,
    /// Hard links among these entries: the files must exist first.
    pub(super) links: u64,
    /// Small files whose data is wanted.
    pub(super) small_files: HashMap<u64, Arc<Entry>>,
    /// Files whose hash was requested from the source. When it arrives, a file moves to `to_compare`.
    pub(super) comparing: HashMap<u64, Entry>,
    pub(super) to_compare: VecDeque<Comparison>,
    /// Files that are being written block by block.
    pub(super) large_files: BTreeMap<u64, Arc<LargeFile>>,
    /// Large files with data of an earlier run that is not yet verified.
    pub(super) to_verify: VecDeque<Arc<LargeFile>>,
    /// Files whose other versions are to be read.
    pub(super) to_hash: VecDeque<(u64, Arc<LargeFile>)>,
    /// Files that wait for one of the open files to finish.
    pub(super) waiting: VecDeque<WaitingFile>,
    /// Files that another copy is writing: retried now and then.
    busy: Vec<WaitingFile>,
    /// Blocks of each file that is being opened.
    opening: HashMap<u64, u64>,
    /// Files under their final names that are not yet recorded in the manifest.
    pub(super) renamed: Vec<FinalizedFile>,
    /// Small files written and not yet renamed.
    pub(super) batch: Vec<WrittenFile>,
    streams: HashMap<u64, Stream>,
    /// Bytes of blocks written. `committed_bytes`: of these, the bytes written before the start of the last
    /// finished commit.
    written_bytes: u64,
    committed_bytes: u64,
    /// Streams whose end was reported to the source.
    ended_streams: HashSet<u64>,
    pub(super) over: bool,
    pub(super) source_disconnected: bool,
}

/// File of several blocks that is not open yet.
#[derive(Debug)]
pub(super) struct WaitingFile {
    pub(super) number: u64,
    pub(super) entry: Entry,
    pub(super) portion: Portion,
    /// Time until which it waits for another copy that writes it.
    busy_deadline: Option<Time>,
}

impl WaitingFile {
    pub(super) fn new(number: u64, entry: Entry, portion: Portion) -> Self {
        Self {
            number,
            entry,
            portion,
            busy_deadline: None,
        }
    }
}

#[derive(Debug)]
struct Stream {
    handle: Arc<blocking::Connection>,
    blocks: u64,
    reported_blocks: u64,
}

/// File to compare, with the hash of the source's file.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) number: u64,
    pub(super) entry: Entry,
    pub(super) hash: FileHash,
}

/// File under its final name.
pub(super) struct FinalizedFile {
    pub(super) number: u64,
    pub(super) entry: Arc<Entry>,
    pub(super) skipped_metadata: Vec<String>,
    /// `None` for a small file, which has no journal.
    pub(super) finished: Option<FinishedFile>,
}

impl FinalizedFile {
    pub(super) fn of(number: u64, entry: Arc<Entry>, completed: CompletedFile) -> Self {
        let CompletedFile {
            finished,
            skipped_metadata,
        } = completed;
        Self {
            number,
            entry,
            skipped_metadata,
            finished: Some(finished),
        }
    }
}

/// Small file that waits for its rename.
pub(super) struct WrittenFile {
    pub(super) number: u64,
    pub(super) entry: Arc<Entry>,
    pub(super) small: SmallFile,
    pub(super) skipped_metadata: Vec<String>,
}

impl Ends for State {
    fn is_over(&self) -> bool {
        self.over
    }
}

impl State {
    /// Returns whether the source announced more than an honest one may.
    pub(super) fn announced_too_much(&self) -> bool {
        self.in_flight - self.links > IN_FLIGHT_MAX || self.xattr_budget.is_exceeded()
    }

    /// Returns the bytes that a kill would lose.
    fn bytes_at_risk(&self) -> u64 {
        self.written_bytes - self.committed_bytes
    }

    /// Returns whether more may be written before some of it is durable.
    pub(super) fn has_room(&self) -> bool {
        self.bytes_at_risk() < AT_RISK_MAX
    }

    /// Takes the next waiting file, if it may be opened now. The caller must then call [`Self::record_opened`].
    pub(super) fn next_to_open(&mut self) -> Option<WaitingFile> {
        let next = self.waiting.front()?;
        let (number, next) = (next.number, Blocks::new(size(&next.entry)).count());
        let open = self.opening.len() + self.large_files.len();
        let large = self.large_files.values().map(|large| large.blocks.count());
        let blocks: u64 = self.opening.values().copied().chain(large).sum();
        let fits = open < self.open_limits.open && blocks.saturating_add(next) <= OPEN_BLOCKS_MAX;
        if open > 0 && !fits {
            return None;
        }
        self.opening.insert(number, next);
        self.waiting.pop_front()
    }

    /// Records that a file is open, or cannot be opened.
    pub(super) fn record_opened(&mut self, number: u64, large: Option<Arc<LargeFile>>) {
        self.opening.remove(&number);
        if let Some(large) = large {
            self.to_verify.push_back(large.clone());
            self.large_files.insert(number, large);
        }
    }

    /// Sets aside a file that another copy writes, so that others do not wait for it. Returns it if it has
    /// waited long enough.
    pub(super) fn set_aside_busy(
        &mut self,
        mut file: WaitingFile,
        now: Time,
    ) -> Option<WaitingFile> {
        let deadline = *file.busy_deadline.get_or_insert(now + BUSY_WAIT_MAX);
        if now >= deadline {
            return Some(file);
        }
        self.busy.push(file);
        None
    }

    /// Queues the busy files to be opened next; returns whether there were any.
    pub(super) fn requeue_busy(&mut self) -> bool {
        let any = !self.busy.is_empty();
        self.busy
            .drain(..)
            .for_each(|file| self.waiting.push_front(file));
        any
    }

    /// Removes a file from those to be opened; returns whether it was among them.
    pub(super) fn remove_waiting(&mut self, number: u64) -> bool {
        let all = self.waiting.len() + self.busy.len();
        self.waiting.retain(|file| file.number != number);
        self.busy.retain(|file| file.number != number);
        self.waiting.len() + self.busy.len() < all
    }

    /// Returns whether so much was written that a commit should start at once.
    pub(super) fn has_much_to_commit(&self) -> bool {
        self.bytes_at_risk() >= AT_RISK_MAX / 2
            || self.batch.len() >= self.open_limits.batch.div_ceil(2)
    }

    /// Returns whether the commit thread must not wait: it has much to do, or has the last entries in flight.
    pub(super) fn needs_commit(&self) -> bool {
        let waiting = self.batch.len() as u64;
        self.has_much_to_commit() || (waiting > 0 && waiting >= self.in_flight)
    }

    /// Returns whether all announced entries are completed, except hard links, which come last.
    pub(super) fn has_only_links_left(&self) -> bool {
        self.in_flight == self.links
    }

    /// Returns the bytes that a commit starting now makes durable, for [`Self::end_commit`].
    pub(super) fn begin_commit(&self) -> u64 {
        self.written_bytes
    }

    /// Records the end of a commit: bytes written before its start are durable, or known to be lost.
    pub(super) fn end_commit(&mut self, written: u64) {
        self.committed_bytes = written;
    }

    /// Adds a stream; `false` if it is not wanted any more.
    pub(super) fn add_stream(&mut self, number: u64, handle: Arc<blocking::Connection>) -> bool {
        if self.over || self.ended_streams.contains(&number) {
            return false;
        }
        let stream = Stream {
            handle,
            blocks: 0,
            reported_blocks: 0,
        };
        self.streams.insert(number, stream);
        true
    }

    /// Counts a block of `length` bytes that arrived on a stream and was written or ignored.
    pub(super) fn count_block(&mut self, number: u64, length: usize) {
        self.written_bytes += length as u64;
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.blocks += 1;
        }
    }

    /// Removes a stream that has ended. Returns the blocks that arrived on it, unless they were reported.
    pub(super) fn remove_stream(&mut self, number: u64) -> Option<u64> {
        let stream = self.streams.remove(&number)?;
        self.ended_streams.insert(number).then_some(stream.blocks)
    }

    /// Shuts down a stream that the source has given up. Returns 0 blocks for a stream that never arrived.
    pub(super) fn shut_down_stream(&mut self, number: u64) -> Option<u64> {
        match self.streams.get(&number) {
            // The stream's thread reports its blocks.
            Some(stream) => {
                stream.handle.shutdown();
                None
            }
            None => self.ended_streams.insert(number).then_some(0),
        }
    }

    /// Returns the streams with blocks not yet reported, and marks these as reported.
    pub(super) fn take_unreported(&mut self) -> Vec<(u64, u64)> {
        let changed = self
            .streams
            .iter_mut()
            .filter(|(_, s)| s.reported_blocks < s.blocks);
        let reported = changed.map(|(number, stream)| {
            stream.reported_blocks = stream.blocks;
            (*number, stream.blocks)
        });
        reported.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::endpoint::limits::{DESCRIPTORS_LARGE, DESCRIPTORS_SMALL};
    use crate::copy::fixtures::{entry, file};
    use longhaul_store::blocks::BLOCK_LEN;

    fn waiting(number: u64, size: u64) -> WaitingFile {
        WaitingFile::new(number, entry("file", file(size)), Portion::Whole)
    }

    /// A source may announce any number of sparse files of 64 TiB.
    #[test]
    fn opens_huge_files_one_at_a_time() {
        let huge = (OPEN_BLOCKS_MAX + 1) * BLOCK_LEN;
        let mut state = State::default();
        for (number, size) in [5 * BLOCK_LEN, huge, huge, 5 * BLOCK_LEN]
            .into_iter()
            .enumerate()
        {
            state.waiting.push_back(waiting(number as u64, size));
        }
        let open = |state: &mut State| state.next_to_open().map(|file| file.number);
        assert_eq!((open(&mut state), open(&mut state)), (Some(0), None));
        state.record_opened(0, None);
        assert_eq!((open(&mut state), open(&mut state)), (Some(1), None));
        state.record_opened(1, None);
        assert_eq!(open(&mut state), Some(2));
        state.record_opened(2, None);
        assert_eq!((open(&mut state), open(&mut state)), (Some(3), None));
    }

    #[test]
    fn opens_no_more_files_than_descriptors_allow() {
        let mut state = State::default();
        state.open_limits.open = 2;
        for number in 0..3 {
            state.waiting.push_back(waiting(number, 2 * BLOCK_LEN));
        }
        let opened = std::iter::from_fn(|| state.next_to_open()).count();
        assert_eq!(opened, 2);
    }

    #[test]
    fn busy_file_does_not_delay_others() {
        let mut state = State::default();
        state.open_limits.open = 1;
        let start = Time::from_secs(100);
        state
            .waiting
            .extend([waiting(0, 2 * BLOCK_LEN), waiting(1, 2 * BLOCK_LEN)]);
        let busy = state.next_to_open().unwrap();
        assert!(state.set_aside_busy(busy, start).is_none());
        state.record_opened(0, None);
        assert_eq!(state.next_to_open().unwrap().number, 1);
        state.record_opened(1, None);
        for (elapsed, is_expired) in [
            (BUSY_WAIT_MAX - Time::from_millis(1), false),
            (BUSY_WAIT_MAX, true),
        ] {
            assert!(state.requeue_busy());
            let busy = state.next_to_open().unwrap();
            state.record_opened(0, None);
            let returned = state.set_aside_busy(busy, start + elapsed);
            assert_eq!(returned.is_some(), is_expired);
        }
        assert!(!state.requeue_busy());
        assert!(!state.remove_waiting(0));
    }

    #[test]
    fn opens_fewer_files_with_few_descriptors() {
        let file_limits = |descriptors, streams| {
            let OpenLimits { open, batch } = OpenLimits::for_descriptors(descriptors, streams);
            assert!((1..=OPEN_FILES_MAX).contains(&open) && (1..=BATCH_MAX).contains(&batch));
            let files = DESCRIPTORS_LARGE * open + DESCRIPTORS_SMALL * batch;
            let others = DESCRIPTORS_OTHER + DESCRIPTORS_STREAM * streams;
            (files, others)
        };
        assert_eq!(file_limits(None, 64), file_limits(Some(1 << 20), 64));
        for (descriptors, streams) in [(4096, 256), (1024, 64), (512, 64), (256, 16), (128, 4)] {
            let (files, others) = file_limits(Some(descriptors), streams);
            assert!(files + others <= descriptors as usize, "{descriptors}");
        }
        assert_eq!(file_limits(Some(10), 4).0, 8);
    }

    #[test]
    fn limits_bytes_not_yet_durable() {
        let mut state = State::default();
        let half = AT_RISK_MAX as usize / 2;
        state.count_block(0, half - 1);
        assert!(!state.has_much_to_commit());
        state.count_block(1, 1);
        assert!(state.has_much_to_commit() && state.has_room());
        let commit = state.begin_commit();
        state.count_block(0, half);
        assert!(!state.has_room(), "what comes during a commit is not in it");
        state.end_commit(commit);
        assert!(state.has_room());
        assert_eq!(state.bytes_at_risk(), half as u64);
    }
}
