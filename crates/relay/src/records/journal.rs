// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes records to a file from a thread of its own, so that a slow disk never delays a relayed
//! byte.

use anyhow::Context as _;
use longhaul_admin::relay_record::Record;
use longhaul_command::note;
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
    /// The file with this identity ends in a part of a line.
    torn: Option<(u64, u64)>,
}

impl Sink {
    fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                path: None,
                out: Some(Box::new(io::stdout())),
                identity: None,
                torn: None,
            });
        }
        let mut sink = Self {
            path: Some(path.to_owned()),
            out: None,
            identity: None,
            torn: None,
        };
        let opened = sink.append_to(path);
        opened.with_context(|| format!("--counters {}", path.display()))?;
        Ok(sink)
    }

    fn append_to(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::options().create(true).append(true).open(path)?;
        let opened = Some(identity(&file.metadata()?));
        if self.torn.take_if(|torn| Some(*torn) == opened).is_some() {
            file.write_all(b"\n")?;
        }
        self.identity = opened;
        self.out = Some(Box::new(file));
        Ok(())
    }

    /// Whether it was written. After an error, which is said once, nothing is.
    fn write(&mut self, line: &str) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        let mut rest = line.as_bytes();
        let written = write_all(out, &mut rest).and_then(|()| out.flush());
        if let Err(error) = &written {
            let partly = rest.len() < line.len();
            self.torn = self.identity.filter(|_| partly);
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

/// As `Write::write_all`; `rest` is what is not written.
fn write_all(out: &mut dyn Write, rest: &mut &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => *rest = &rest[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes this many bytes, as a disk that is nearly full.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.min(bytes.len());
            self.0 -= room;
            match room {
                0 => Err(io::ErrorKind::StorageFull.into()),
                room => Ok(room),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_written_partly_is_ended_before_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        for (room, want) in [(0, "first\nthird\n"), (2, "first\nse\nthird\n")] {
            fs::write(&path, "").unwrap();
            let mut sink = Sink::open(&path).unwrap();
            assert!(sink.write("first\n"));
            // What the disk took of it.
            fs::write(&path, "first\n".to_owned() + &"second\n"[..room]).unwrap();
            sink.out = Some(Box::new(Full(room)));
            assert!(!sink.write("second\n"));
            sink.reopen();
            assert!(sink.write("third\n"));
            assert_eq!(fs::read_to_string(&path).unwrap(), want);
        }
    }

    #[test]
    fn another_file_begins_with_a_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let mut sink = Sink::open(&path).unwrap();
        sink.out = Some(Box::new(Full(2)));
        assert!(!sink.write("second\n"));
        fs::rename(&path, directory.path().join("records.1")).unwrap();
        sink.reopen();
        assert!(sink.write("third\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
    }
}
