// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes records to a file from a thread of its own, so that a slow disk never delays a relayed
//! byte.

use super::record::Record;
use anyhow::Context as _;
use std::{
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

/// Records that may wait for the file; about 1 KB each.
const QUEUE_MAX: usize = 4096;

/// The way to the file; without one, records go nowhere.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    queue: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Message {
    Record(Record),
    /// The file may be another one by now.
    Reopen,
}

/// With the writer.
#[derive(Debug, Default)]
struct Shared {
    lost: AtomicU64,
    /// Asked for by a flag as well: the queue may be full.
    reopen: AtomicBool,
}

impl Journal {
    /// Opens `path` (`-` is standard output) for appending and starts the writer.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, JoinHandle<()>)> {
        let sink = Sink::open(path)?;
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let shared = Arc::<Shared>::default();
        let its = shared.clone();
        let writer = std::thread::spawn(move || write(sink, &messages, &its));
        let queue = Some(queue);
        Ok((Self { queue, shared }, writer))
    }

    /// Whether anybody reads what is put here.
    pub(crate) fn is_kept(&self) -> bool {
        self.queue.is_some()
    }

    /// Queues a record, or counts it as lost if the queue is full.
    pub(crate) fn put(&self, record: Record) {
        if let Some(queue) = &self.queue
            && queue.try_send(Message::Record(record)).is_err()
        {
            self.shared.lost.fetch_add(1, Relaxed);
        }
    }

    /// Records from now on go to the file that has the name now: the old one may have been moved.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
        if let Some(queue) = &self.queue {
            // If the queue is full, the next record reopens.
            let _ = queue.try_send(Message::Reopen);
        }
    }

    /// Records dropped so far.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }
}

/// Where records go.
struct Sink {
    /// `None` is standard output.
    path: Option<PathBuf>,
    /// `None` after an error, until it is reopened.
    out: Option<Box<dyn Write + Send>>,
    /// The open file's device and number.
    identity: Option<(u64, u64)>,
}

impl Sink {
    fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                path: None,
                out: Some(Box::new(io::stdout())),
                identity: None,
            });
        }
        let mut sink = Self {
            path: Some(path.to_owned()),
            out: None,
            identity: None,
        };
        let opened = sink.append_to(path);
        opened.with_context(|| format!("--counters {}", path.display()))?;
        Ok(sink)
    }

    fn append_to(&mut self, path: &Path) -> io::Result<()> {
        let file = File::options().create(true).append(true).open(path)?;
        self.identity = Some(identity(&file.metadata()?));
        self.out = Some(Box::new(file));
        Ok(())
    }

    /// Whether it was written. After an error, which is said once, nothing is.
    fn write(&mut self, line: &str) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = &written {
            self.out = None;
            note!("longhaul relay: counters: {error}; no more are written until SIGHUP");
        }
        written.is_ok()
    }

    /// Opens the file that has the name now, unless that is the one that is open, or a fifo or a
    /// device, which it could wait for without end.
    fn reopen(&mut self) {
        let Some(path) = self.path.clone() else {
            return;
        };
        let named = fs::metadata(&path).ok();
        let is_open = self.out.is_some() && named.as_ref().map(identity) == self.identity;
        if is_open || named.is_some_and(|named| !named.is_file()) {
            return;
        }
        if let Err(error) = self.append_to(&path) {
            note!(
                "longhaul relay: counters: {}: {error}; what was open before stays so",
                path.display()
            );
        }
    }
}

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

fn write(mut sink: Sink, messages: &Receiver<Message>, shared: &Shared) {
    for message in messages {
        if shared.reopen.swap(false, Relaxed) {
            sink.reopen();
        }
        if let Message::Record(record) = message {
            let line = serde_json::to_string(&record).expect("a record is plain data");
            if !sink.write(&(line + "\n")) {
                shared.lost.fetch_add(1, Relaxed);
            }
        }
    }
}
