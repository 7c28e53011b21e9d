// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that read: each takes the next block, of whatever file, so that one large file has all of them.

use super::{
    files::{Files, Found, Next, ToRead, What},
    findings::Findings,
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
pub(super) struct Readers<'a> {
    queue: Mutex<Queue<'a>>,
    findings: &'a Mutex<Findings>,
}

struct Queue<'a> {
    files: Files<'a>,
    /// The file that is being read, and the blocks that are next.
    current: Option<(Arc<Reading>, Ahead)>,
}

type Ahead = Peekable<Flatten<vec::IntoIter<Range<u64>>>>;

/// A file under way.
struct Reading {
    of: ToRead,
    from: OpenFile,
    state: Mutex<State>,
}

struct State {
    hashes: Vec<BlockHash>,
    left: u64,
    failed: bool,
}

impl<'a> Readers<'a> {
    pub(super) fn new(files: Files<'a>, findings: &'a Mutex<Findings>) -> Self {
        let current = None;
        Self {
            queue: Mutex::new(Queue { files, current }),
            findings,
        }
    }

    /// Until all is read.
    pub(super) fn work(&self) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cpus {
                scope.spawn(|| self.read());
            }
        });
    }

    fn read(&self) {
        let mut buffer = Vec::new();
        while let Some((reading, index)) = self.next() {
            let hash = reading.hash(index, &mut buffer);
            let bytes = buffer.len() as u64;
            self.findings.lock().read(bytes);
            if let Some(found) = reading.enter(index, hash) {
                self.finish(&reading, found);
            }
        }
    }

    fn finish(&self, reading: &Reading, found: Result<(), What>) {
        let mut findings = self.findings.lock();
        match found {
            Ok(()) => findings.same(),
            Err(what) => findings.say(&Found {
                path: reading.of.path.as_bytes().to_vec(),
                what,
            }),
        }
    }

    /// The next block that is to be read.
    fn next(&self) -> Option<(Arc<Reading>, u64)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(block) = queue.block() {
                return Some(block);
            }
            match queue.files.next()? {
                Next::File(file) => self.begin(&mut queue, file),
                Next::Said(found) => self.findings.lock().say(&found),
                Next::Nothing => {}
            }
        }
    }

    fn begin(&self, queue: &mut Queue<'_>, file: ToRead) {
        match Reading::begin(file) {
            Ok(reading) => {
                let mut ahead = reading.of.held().into_iter().flatten().peekable();
                match ahead.peek() {
                    None => self.finish(&reading, reading.found(&[])),
                    Some(_) => queue.current = Some((Arc::new(reading), ahead)),
                }
            }
            Err(found) => self.findings.lock().say(&found),
        }
    }
}

impl Queue<'_> {
    fn block(&mut self) -> Option<(Arc<Reading>, u64)> {
        let (reading, mut ahead) = self.current.take()?;
        let index = ahead.next()?;
        if ahead.peek().is_some() {
            self.current = Some((reading.clone(), ahead));
        }
        Some((reading, index))
    }
}

impl Reading {
    fn begin(of: ToRead) -> Result<Self, Found> {
        let from = of.open().map_err(|failure| Found {
            path: of.path.as_bytes().to_vec(),
            what: What::Unreadable(failure.to_string()),
        })?;
        let left = of.held().iter().map(|range| range.end - range.start).sum();
        let hashes = vec![BlockHash::default(); of.blocks.count() as usize];
        Ok(Self {
            of,
            from,
            state: Mutex::new(State {
                hashes,
                left,
                failed: false,
            }),
        })
    }

    fn hash(&self, index: u64, buffer: &mut Vec<u8>) -> io::Result<BlockHash> {
        let range = self.of.blocks.range(index).map_err(io::Error::other)?;
        buffer.resize((range.end - range.start) as usize, 0);
        self.from.file().read_exact_at(buffer, range.start)?;
        self.of.blocks.hash(index, buffer).map_err(io::Error::other)
    }

    /// Takes a block's hash; with the last one, or the first that can't be had, what is found of the file.
    fn enter(&self, index: u64, hash: io::Result<BlockHash>) -> Option<Result<(), What>> {
        let mut state = self.state.lock();
        state.left -= 1;
        let wrong = match hash {
            Ok(hash) if self.from.agrees(index, hash) => {
                state.hashes[index as usize] = hash;
                None
            }
            Ok(_) => Some(self.of.difference()),
            Err(error) => Some(What::Unreadable(error.to_string())),
        };
        if let Some(what) = wrong {
            let first = !std::mem::replace(&mut state.failed, true);
            return first.then_some(Err(what));
        }
        let all = state.left == 0 && !state.failed;
        all.then(|| self.found(&state.hashes))
    }

    fn found(&self, hashes: &[BlockHash]) -> Result<(), What> {
        match self.of.is_as_expected(hashes) {
            true => Ok(()),
            false => Err(self.of.difference()),
        }
    }
}
