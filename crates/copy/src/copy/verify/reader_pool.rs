// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pool of reader threads. Each thread takes the next block of any file, so that all threads read a single large file.

use super::{
    scan::{FileToRead, Files, Finding, FindingKind, ScanStep},
    verify_report::VerifyReport,
};
use longhaul_store::{
    blocks::{BlockContent, BlockHash},
    tree::scan::OpenFile,
};
use parking_lot::Mutex;
use std::{
    io,
    iter::{Flatten, Peekable},
    ops::Range,
    sync::Arc,
    vec,
};

/// State that the threads share. Memory: a block for each thread, and 33 bytes for each block of the files in progress.
pub(super) struct ReaderPool<'a> {
    queue: Mutex<Queue<'a>>,
    report: &'a Mutex<VerifyReport>,
}

/// Files and blocks that are still to read.
struct Queue<'a> {
    files: Files<'a>,
    /// File that is being read, and its next blocks.
    current: Option<(Arc<FileInProgress>, BlockQueue)>,
}

/// Indices of the blocks that are still to read.
type BlockQueue = Peekable<Flatten<vec::IntoIter<Range<u64>>>>;

/// File that is being read.
struct FileInProgress {
    file: FileToRead,
    open_file: OpenFile,
    state: Mutex<HashState>,
}

/// Hashes of the blocks read so far.
struct HashState {
    hashes: Vec<BlockHash>,
    remaining: u64,
    failed: bool,
}

impl<'a> ReaderPool<'a> {
    pub(super) fn new(files: Files<'a>, report: &'a Mutex<VerifyReport>) -> Self {
        let current = None;
        Self {
            queue: Mutex::new(Queue { files, current }),
            report,
        }
    }

    /// Runs the threads until all files are read.
    pub(super) fn run(&self) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cpus {
                scope.spawn(|| self.run_reader());
            }
        });
        let mut queue = self.queue.lock();
        while let Some(finding) = queue.files.take_part() {
            self.report.lock().report_finding(&finding);
        }
    }

    fn run_reader(&self) {
        let mut buffer = Vec::new();
        while let Some((in_progress, index)) = self.next_block() {
            let hash = self.hash(&in_progress, index, &mut buffer);
            if let Some(result) = in_progress.add_hash(index, hash) {
                let files = &mut self.queue.lock().files;
                self.report_result(files, &in_progress, result);
            }
        }
    }

    /// Reads a block, and returns its hash.
    fn hash(
        &self,
        in_progress: &FileInProgress,
        index: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<BlockHash> {
        let blocks = in_progress.file.blocks;
        let content = blocks.read(in_progress.open_file.file(), index, buffer)?;
        let range = blocks.range(index).map_err(io::Error::other)?;
        let is_hole = content == BlockContent::Hole;
        let bytes = range.end - range.start;
        self.report.lock().add_bytes(bytes, is_hole);
        blocks
            .hash_content(index, content)
            .map_err(io::Error::other)
    }

    fn report_result(
        &self,
        files: &mut Files<'_>,
        in_progress: &FileInProgress,
        result: Result<(), FindingKind>,
    ) {
        match result {
            Ok(()) => self.report.lock().count_unchanged(),
            Err(kind) => {
                let path = in_progress.file.path.as_bytes().to_vec();
                let finding = files.explain(Finding { path, kind });
                self.report.lock().report_finding(&finding);
            }
        }
    }

    /// Returns the next block to read.
    fn next_block(&self) -> Option<(Arc<FileInProgress>, u64)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(block) = queue.take_block() {
                return Some(block);
            }
            match queue.files.next()? {
                ScanStep::File(file) => self.open_next(&mut queue, file),
                ScanStep::Finding(finding) => {
                    let finding = queue.files.explain(finding);
                    self.report.lock().report_finding(&finding);
                }
                ScanStep::Nothing => {}
            }
        }
    }

    fn open_next(&self, queue: &mut Queue<'_>, file: FileToRead) {
        match FileInProgress::open(file) {
            Ok(in_progress) => {
                let mut blocks = in_progress
                    .file
                    .block_ranges()
                    .into_iter()
                    .flatten()
                    .peekable();
                match blocks.peek() {
                    None => {
                        let result = in_progress.result(&[]);
                        self.report_result(&mut queue.files, &in_progress, result);
                    }
                    Some(_) => queue.current = Some((Arc::new(in_progress), blocks)),
                }
            }
            Err(finding) => self.report.lock().report_finding(&finding),
        }
    }
}

impl Queue<'_> {
    fn take_block(&mut self) -> Option<(Arc<FileInProgress>, u64)> {
        let (in_progress, mut blocks) = self.current.take()?;
        let index = blocks.next()?;
        if blocks.peek().is_some() {
            self.current = Some((in_progress.clone(), blocks));
        }
        Some((in_progress, index))
    }
}

impl FileInProgress {
    fn open(file: FileToRead) -> Result<Self, Finding> {
        let open_file = file.open().map_err(|failure| Finding {
            path: file.path.as_bytes().to_vec(),
            kind: FindingKind::Unreadable(failure.to_string()),
        })?;
        let remaining = file
            .block_ranges()
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let hashes = vec![BlockHash::default(); file.blocks.count() as usize];
        Ok(Self {
            file,
            open_file,
            state: Mutex::new(HashState {
                hashes,
                remaining,
                failed: false,
            }),
        })
    }

    /// Adds the hash of a block. Returns the result for the file after the last block, or after the first error.
    fn add_hash(&self, index: u64, hash: io::Result<BlockHash>) -> Option<Result<(), FindingKind>> {
        let mut state = self.state.lock();
        state.remaining -= 1;
        let problem = match hash {
            Ok(hash) if self.open_file.hash_matches(index, hash) => {
                state.hashes[index as usize] = hash;
                None
            }
            Ok(_) => Some(self.file.hash_mismatch()),
            Err(error) => Some(FindingKind::Unreadable(error.to_string())),
        };
        if let Some(kind) = problem {
            let first = !std::mem::replace(&mut state.failed, true);
            return first.then_some(Err(kind));
        }
        let all = state.remaining == 0 && !state.failed;
        all.then(|| self.result(&state.hashes))
    }

    fn result(&self, hashes: &[BlockHash]) -> Result<(), FindingKind> {
        if self.file.matches(hashes) {
            Ok(())
        } else {
            Err(self.file.hash_mismatch())
        }
    }
}
