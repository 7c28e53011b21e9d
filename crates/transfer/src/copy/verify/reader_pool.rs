// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that read: each takes the next block, of whatever file, so that one large file has all of them.

use super::{
    scan::{FileToRead, Files, Finding, FindingKind, ScanStep},
    verify_report::VerifyReport,
};
use crate::copy::open_file::OpenFile;
use longhaul_store::blocks::BlockHash;
use parking_lot::Mutex;
use std::{
    io,
    iter::{Flatten, Peekable},
    ops::Range,
    os::unix::fs::FileExt,
    sync::Arc,
    vec,
};

/// What the threads share. Memory: a block for each of them, and 33 bytes for each block of the files under way.
pub(super) struct ReaderPool<'a> {
    queue: Mutex<Queue<'a>>,
    findings: &'a Mutex<VerifyReport>,
}

struct Queue<'a> {
    files: Files<'a>,
    /// The file that is being read, and the blocks that are next.
    current: Option<(Arc<FileInProgress>, BlockQueue)>,
}

type BlockQueue = Peekable<Flatten<vec::IntoIter<Range<u64>>>>;

/// A file under way.
struct FileInProgress {
    file: FileToRead,
    open_file: OpenFile,
    state: Mutex<HashState>,
}

struct HashState {
    hashes: Vec<BlockHash>,
    remaining: u64,
    failed: bool,
}

impl<'a> ReaderPool<'a> {
    pub(super) fn new(files: Files<'a>, findings: &'a Mutex<VerifyReport>) -> Self {
        let current = None;
        Self {
            queue: Mutex::new(Queue { files, current }),
            findings,
        }
    }

    /// Until all is read.
    pub(super) fn run(&self) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cpus {
                scope.spawn(|| self.run_reader());
            }
        });
    }

    fn run_reader(&self) {
        let mut buffer = Vec::new();
        while let Some((reading, index)) = self.next_block() {
            let hash = reading.hash(index, &mut buffer);
            let bytes = buffer.len() as u64;
            self.findings.lock().add_bytes(bytes);
            if let Some(found) = reading.add_hash(index, hash) {
                self.report_result(&reading, found);
            }
        }
    }

    fn report_result(&self, reading: &FileInProgress, found: Result<(), FindingKind>) {
        let mut findings = self.findings.lock();
        match found {
            Ok(()) => findings.count_same(),
            Err(what) => findings.report_finding(&Finding {
                path: reading.file.path.as_bytes().to_vec(),
                kind: what,
            }),
        }
    }

    /// The next block that is to be read.
    fn next_block(&self) -> Option<(Arc<FileInProgress>, u64)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(block) = queue.take_block() {
                return Some(block);
            }
            match queue.files.next()? {
                ScanStep::File(file) => self.begin(&mut queue, file),
                ScanStep::Finding(found) => self.findings.lock().report_finding(&found),
                ScanStep::Nothing => {}
            }
        }
    }

    fn begin(&self, queue: &mut Queue<'_>, file: FileToRead) {
        match FileInProgress::begin(file) {
            Ok(reading) => {
                let mut ahead = reading.file.block_ranges().into_iter().flatten().peekable();
                match ahead.peek() {
                    None => self.report_result(&reading, reading.result(&[])),
                    Some(_) => queue.current = Some((Arc::new(reading), ahead)),
                }
            }
            Err(found) => self.findings.lock().report_finding(&found),
        }
    }
}

impl Queue<'_> {
    fn take_block(&mut self) -> Option<(Arc<FileInProgress>, u64)> {
        let (reading, mut ahead) = self.current.take()?;
        let index = ahead.next()?;
        if ahead.peek().is_some() {
            self.current = Some((reading.clone(), ahead));
        }
        Some((reading, index))
    }
}

impl FileInProgress {
    fn begin(of: FileToRead) -> Result<Self, Finding> {
        let from = of.open().map_err(|failure| Finding {
            path: of.path.as_bytes().to_vec(),
            kind: FindingKind::Unreadable(failure.to_string()),
        })?;
        let left = of
            .block_ranges()
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let hashes = vec![BlockHash::default(); of.blocks.count() as usize];
        Ok(Self {
            file: of,
            open_file: from,
            state: Mutex::new(HashState {
                hashes,
                remaining: left,
                failed: false,
            }),
        })
    }

    fn hash(&self, index: u64, buffer: &mut Vec<u8>) -> io::Result<BlockHash> {
        let range = self.file.blocks.range(index).map_err(io::Error::other)?;
        buffer.resize((range.end - range.start) as usize, 0);
        self.open_file.file().read_exact_at(buffer, range.start)?;
        self.file
            .blocks
            .hash(index, buffer)
            .map_err(io::Error::other)
    }

    /// Takes a block's hash; with the last one, or the first that can't be had, what is found of the file.
    fn add_hash(&self, index: u64, hash: io::Result<BlockHash>) -> Option<Result<(), FindingKind>> {
        let mut state = self.state.lock();
        state.remaining -= 1;
        let wrong = match hash {
            Ok(hash) if self.open_file.hash_matches(index, hash) => {
                state.hashes[index as usize] = hash;
                None
            }
            Ok(_) => Some(self.file.hash_mismatch()),
            Err(error) => Some(FindingKind::Unreadable(error.to_string())),
        };
        if let Some(what) = wrong {
            let first = !std::mem::replace(&mut state.failed, true);
            return first.then_some(Err(what));
        }
        let all = state.remaining == 0 && !state.failed;
        all.then(|| self.result(&state.hashes))
    }

    fn result(&self, hashes: &[BlockHash]) -> Result<(), FindingKind> {
        match self.file.matches(hashes) {
            true => Ok(()),
            false => Err(self.file.hash_mismatch()),
        }
    }
}
