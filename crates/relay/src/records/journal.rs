// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes records to a file on its own thread, so that a slow disk never delays a relayed byte.

use longhaul_admin::relay_record::Record;
use longhaul_command::exit::Refusal;
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
use tracing::{error, warn};

/// Capacity of the queue in records, about 1 KB each.
const QUEUE_MAX: usize = 4096;

/// Queue to the writer; without a file, records are discarded.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    queue: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Message {
    Record(Record),
    /// Request to reopen the file, which may have been replaced.
    Reopen,
}

/// State shared with the writer.
#[derive(Debug, Default)]
struct Shared {
    lost: AtomicU64,
    /// Request to reopen the file. A flag beside the message, since the queue may be full.
    reopen: AtomicBool,
}

impl Journal {
    /// Starts the writer of `file`.
    pub(crate) fn start(file: RecordFile) -> (Self, JoinHandle<()>) {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let shared = Arc::<Shared>::default();
        let writer_state = shared.clone();
        let writer = std::thread::spawn(move || write(file, &messages, &writer_state));
        let queue = Some(queue);
        (Self { queue, shared }, writer)
    }

    /// Returns whether records are written.
    pub(crate) fn is_enabled(&self) -> bool {
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

    /// Reopens the file by its name: the old one may have been moved.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
        if let Some(queue) = &self.queue {
            // If the queue is full, the next record reopens.
            let _ = queue.try_send(Message::Reopen);
        }
    }

    /// Returns the number of lost records.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }
}

/// Output of a writer.
pub(crate) struct RecordFile {
    /// Flag that names the file, without dashes: `counters` or `access-log`.
    flag: &'static str,
    /// `None` is standard output.
    path: Option<PathBuf>,
    /// `None` after an error, until it is reopened.
    out: Option<Box<dyn Write + Send>>,
    /// Device and inode number of the open file.
    identity: Option<(u64, u64)>,
    /// Identity of a file whose last line is incomplete.
    file_with_partial_line: Option<(u64, u64)>,
}

impl RecordFile {
    /// Opens `path` (`-` is standard output) for appending.
    ///
    /// # Errors
    ///
    /// A path that can't be a file of this user is a [`Refusal::Usage`].
    pub(crate) fn open(flag: &'static str, path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                flag,
                path: None,
                out: Some(Box::new(io::stdout())),
                identity: None,
                file_with_partial_line: None,
            });
        }
        let mut file = Self {
            flag,
            path: Some(path.to_owned()),
            out: None,
            identity: None,
            file_with_partial_line: None,
        };
        let subject = format!("--{flag} {}", path.display());
        match file.append_to(path) {
            Ok(()) => Ok(file),
            Err(error) if is_bad_path(&error) => Err(Refusal::usage(format!("{subject}: {error}"))),
            Err(error) => Err(anyhow::Error::new(error).context(subject)),
        }
    }

    fn append_to(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::options().create(true).append(true).open(path)?;
        let opened = Some(identity(&file.metadata()?));
        if self
            .file_with_partial_line
            .take_if(|partial| Some(*partial) == opened)
            .is_some()
        {
            file.write_all(b"\n")?;
        }
        self.identity = opened;
        self.out = Some(Box::new(file));
        Ok(())
    }

    /// Writes a line and returns whether this succeeded. The first error is logged, and nothing is
    /// written after it.
    fn write(&mut self, line: &str) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        let mut rest = line.as_bytes();
        let written = write_all(out, &mut rest).and_then(|()| out.flush());
        if let Err(error) = &written {
            let partly = rest.len() < line.len();
            self.file_with_partial_line = self.identity.filter(|_| partly);
            self.out = None;
            error!("{}: {error}; nothing is written until SIGHUP", self.flag);
        }
        written.is_ok()
    }

    /// Opens the file of this name, unless it is already open. A fifo or a device is not opened,
    /// since that could block without end.
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
            warn!(
                "{}: {}: {error}; the file opened before stays in use",
                self.flag,
                path.display()
            );
        }
    }
}

/// Returns whether another path, or other permissions, are the remedy.
fn is_bad_path(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::NotFound
            | K::NotADirectory
            | K::IsADirectory
            | K::PermissionDenied
            | K::ReadOnlyFilesystem
    )
}

/// Works as `Write::write_all`, but leaves the unwritten bytes in `rest`.
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

fn write(mut file: RecordFile, messages: &Receiver<Message>, shared: &Shared) {
    for message in messages {
        if shared.reopen.swap(false, Relaxed) {
            file.reopen();
        }
        if let Message::Record(record) = message {
            let line = serde_json::to_string(&record).expect("a record is plain data");
            if !file.write(&(line + "\n")) {
                shared.lost.fetch_add(1, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writer with room for this many bytes, as a disk that is nearly full.
    struct LimitedWriter(usize);

    impl Write for LimitedWriter {
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
    fn ends_incomplete_line_before_next_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        for (room, want) in [(0, "first\nthird\n"), (2, "first\nse\nthird\n")] {
            fs::write(&path, "").unwrap();
            let mut file = RecordFile::open("counters", &path).unwrap();
            assert!(file.write("first\n"));
            // Part of the line that fits on the disk.
            fs::write(&path, "first\n".to_owned() + &"second\n"[..room]).unwrap();
            file.out = Some(Box::new(LimitedWriter(room)));
            assert!(!file.write("second\n"));
            file.reopen();
            assert!(file.write("third\n"));
            assert_eq!(fs::read_to_string(&path).unwrap(), want);
        }
    }

    #[test]
    fn new_file_begins_with_complete_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let mut file = RecordFile::open("counters", &path).unwrap();
        file.out = Some(Box::new(LimitedWriter(2)));
        assert!(!file.write("second\n"));
        fs::rename(&path, directory.path().join("records.1")).unwrap();
        file.reopen();
        assert!(file.write("third\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
    }
}
