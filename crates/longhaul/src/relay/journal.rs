// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes records to a file from a thread of its own, so that a slow disk never delays a relayed
//! byte.

use super::record::Record;
use anyhow::Context as _;
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

/// Records that may wait for the file; about 1 KB each.
const QUEUE_MAX: usize = 4096;

/// The way to the file; without one, records go nowhere.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    queue: Option<SyncSender<Record>>,
    lost: AtomicU64,
}

impl Journal {
    /// Opens `path` (`-` is standard output) for appending and starts the writer.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, JoinHandle<()>)> {
        let sink: Box<dyn Write + Send> = match path == Path::new("-") {
            true => Box::new(io::stdout()),
            false => Box::new(append_to(path)?),
        };
        let (queue, records) = sync_channel(QUEUE_MAX);
        let writer = std::thread::spawn(move || write(sink, &records));
        let journal = Self {
            queue: Some(queue),
            lost: AtomicU64::new(0),
        };
        Ok((journal, writer))
    }

    /// Whether anybody reads what is put here.
    pub(crate) fn is_kept(&self) -> bool {
        self.queue.is_some()
    }

    /// Queues a record, or counts it as lost if the queue is full.
    pub(crate) fn put(&self, record: Record) {
        if let Some(queue) = &self.queue
            && queue.try_send(record).is_err()
        {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Records dropped so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

fn append_to(path: &Path) -> anyhow::Result<File> {
    let file = File::options().create(true).append(true).open(path);
    file.with_context(|| format!("--counters {}", path.display()))
}

fn write(mut sink: impl Write, records: &Receiver<Record>) {
    for record in records {
        let line = serde_json::to_string(&record).expect("a record is plain data");
        if let Err(error) = writeln!(sink, "{line}").and_then(|()| sink.flush()) {
            note!("longhaul relay: counters: {error}; no more are written");
            return;
        }
    }
}
