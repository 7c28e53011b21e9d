// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes records to a file on its own thread, so that a slow disk never delays a relayed byte.

use crate::{config::settings::RecordFormat, records::common_log};
use longhaul_admin::relay_record::Record;
use longhaul_command::exit::Refusal;
use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tracing::{error, warn};

/// Capacity of the queue in records, about 1 KB each, and up to 3 KiB with a long URL.
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
    format: RecordFormat,
    /// `None` is standard output.
    path: Option<PathBuf>,
    out: Box<dyn Write + Send>,
    /// Device and inode number of the open file.
    identity: Option<(u64, u64)>,
    /// Rest of the last line, if an error interrupted it. The line is completed before the next one is written.
    rest: Vec<u8>,
    outage: Option<Outage>,
    reported_at: Option<Instant>,
}

/// Time without a successful write.
#[derive(Debug, Default)]
struct Outage {
    lost: u64,
    is_reported: bool,
}

/// Shortest time between two reports of errors, also if the disk is full again and again.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

impl RecordFile {
    /// Opens `path` (`-` is standard output) for appending. It is the value of a flag or of a key.
    ///
    /// # Errors
    ///
    /// A path that can't be a file of this user is a [`Refusal::Usage`].
    pub(crate) fn open(flag: &'static str, key: &str, path: &Path) -> anyhow::Result<Self> {
        let subject = format!("{} (--{flag}, {key})", path.display());
        let opened = if path == Path::new("-") {
            Ok(Self::new(flag, None, Box::new(io::stdout())))
        } else {
            Self::append_to(flag, path)
        };
        match opened {
            Ok(file) => Ok(file),
            Err(error) if is_bad_path(&error) => Err(Refusal::usage(format!("{subject}: {error}"))),
            Err(error) => Err(anyhow::Error::new(error).context(subject)),
        }
    }

    fn new(flag: &'static str, path: Option<PathBuf>, out: Box<dyn Write + Send>) -> Self {
        Self {
            flag,
            format: RecordFormat::Json,
            path,
            out,
            identity: None,
            rest: Vec::new(),
            outage: None,
            reported_at: None,
        }
    }

    /// Sets the format of the records.
    pub(crate) fn with_format(self, format: RecordFormat) -> Self {
        Self { format, ..self }
    }

    /// Returns the line of a record; `None` if the format has none.
    fn line(&self, record: &Record) -> Option<String> {
        let line = match self.format {
            RecordFormat::Common => common_log::line(record)?,
            RecordFormat::Json => serde_json::to_string(record).expect("a record is plain data"),
        };
        Some(line + "\n")
    }

    fn append_to(flag: &'static str, path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let metadata = file.metadata()?;
        let mut opened = Self::new(flag, Some(path.to_owned()), Box::new(file));
        opened.identity = Some(identity(&metadata));
        if metadata.is_file() && ends_within_line(path) {
            opened.rest.push(b'\n');
        }
        Ok(opened)
    }

    /// Writes a line and returns whether it is kept: written, or begun, to be completed later. After an error the next
    /// line is tried like any other, so that records resume when a full disk has room again.
    fn write(&mut self, line: &str) -> bool {
        let completed = self.complete_line();
        let kept = completed.is_ok();
        let outcome = completed.and_then(|()| {
            self.rest = line.into();
            self.complete_line()
        });
        let is_begun = kept && self.rest.len() < line.len();
        match outcome {
            Ok(()) => self.end_outage(),
            Err(error) => self.add_to_outage(&error, is_begun),
        }
        if !is_begun && kept {
            self.rest.clear();
        }
        is_begun
    }

    /// Writes what is left of a line.
    fn complete_line(&mut self) -> io::Result<()> {
        let mut rest = &self.rest[..];
        let written = write_all(&mut self.out, &mut rest);
        self.rest = rest.to_vec();
        written.and_then(|()| self.out.flush())
    }

    fn add_to_outage(&mut self, error: &io::Error, is_kept: bool) {
        let outage = self.outage.get_or_insert_default();
        outage.lost += u64::from(!is_kept);
        let is_due = self
            .reported_at
            .is_none_or(|at| at.elapsed() >= REPORT_INTERVAL);
        if !outage.is_reported && is_due {
            outage.is_reported = true;
            self.reported_at = Some(Instant::now());
            error!(
                "{}: {error}; records are lost until writing succeeds",
                self.flag
            );
        }
    }

    fn end_outage(&mut self) {
        if let Some(outage) = self.outage.take_if(|outage| outage.is_reported) {
            warn!(
                "{}: records are written again; {} were lost",
                self.flag, outage.lost
            );
        }
    }

    /// Opens the file of this name, unless it is already open. A fifo or a device is not opened,
    /// since that could block without end. Returns whether a line was begun in the old file and can't be completed.
    fn reopen(&mut self) -> bool {
        let Some(path) = self.path.clone() else {
            return false;
        };
        let named = fs::metadata(&path).ok();
        let is_open = named.as_ref().map(identity) == self.identity;
        if is_open || named.is_some_and(|named| !named.is_file()) {
            return false;
        }
        match Self::append_to(self.flag, &path) {
            Ok(opened) => {
                let old = std::mem::replace(self, opened);
                (self.outage, self.reported_at) = (old.outage, old.reported_at);
                self.format = old.format;
                !old.rest.is_empty()
            }
            Err(error) => {
                let (flag, path) = (self.flag, path.display());
                warn!("{flag}: {path}: {error}; the file opened before stays in use");
                false
            }
        }
    }
}

/// Whether the last line of a file is incomplete, since a process was killed or a disk was full.
fn ends_within_line(path: &Path) -> bool {
    let last_byte = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last).map(|()| last[0])
    };
    // An empty file, or one that can't be read, has no such line as far as is known.
    last_byte().is_ok_and(|byte: u8| byte != b'\n')
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
            shared.lost.fetch_add(file.reopen().into(), Relaxed);
        }
        if let Message::Record(record) = message {
            let Some(line) = file.line(&record) else {
                continue;
            };
            if !file.write(&line) {
                shared.lost.fetch_add(1, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Writer to a file, with room for this many bytes, as a disk that is nearly full.
    struct LimitedWriter(Arc<AtomicUsize>, File);

    impl Write for LimitedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.load(Relaxed).min(bytes.len());
            self.0.fetch_sub(room, Relaxed);
            match room {
                0 => Err(io::ErrorKind::StorageFull.into()),
                room => self.1.write(&bytes[..room]),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Opens `path` on a disk with room for as many bytes as the counter says.
    fn open(path: &Path, room: usize) -> (RecordFile, Arc<AtomicUsize>) {
        let mut file = RecordFile::open("counters", "counters.file", path).unwrap();
        let room = Arc::new(AtomicUsize::new(room));
        let on_disk = File::options().append(true).open(path).unwrap();
        file.out = Box::new(LimitedWriter(room.clone(), on_disk));
        (file, room)
    }

    #[test]
    fn records_resume_by_themselves_with_complete_lines() {
        let directory = tempfile::tempdir().unwrap();
        for (room, want) in [
            (6, "first\nfourth\n"),
            (8, "first\nsecond\nfourth\n"),
            (12, "first\nsecond\nfourth\n"),
            (13, "first\nsecond\nfourth\n"),
        ] {
            let path = directory.path().join(room.to_string());
            let (mut file, room) = open(&path, room);
            let kept = ["first\n", "second\n", "third\n"].map(|line| file.write(line));
            room.store(100, Relaxed);
            assert!(file.write("fourth\n"));
            assert_eq!(fs::read_to_string(&path).unwrap(), want);
            assert_eq!(kept, [true, want.contains("second"), false], "{want}");
        }
    }

    #[test]
    fn counts_lost_records_and_reports_outage_once() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, room) = open(&directory.path().join("records"), 3);
        for line in ["first\n", "second\n", "third\n"] {
            file.write(line);
        }
        let outage = file.outage.as_ref().unwrap();
        assert_eq!((outage.lost, outage.is_reported), (2, true));
        room.store(100, Relaxed);
        assert!(file.write("fourth\n"));
        assert!(file.outage.is_none());
        room.store(0, Relaxed);
        assert!(!file.write("fifth\n"));
        assert!(
            !file.outage.as_ref().unwrap().is_reported,
            "within a minute"
        );
    }

    #[test]
    fn appends_a_line_of_its_own_to_a_file_that_ends_within_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        for (before, want) in [("", "a\n"), ("x\n", "x\na\n"), ("tor", "tor\na\n")] {
            fs::write(&path, before).unwrap();
            let mut file = RecordFile::open("counters", "counters.file", &path).unwrap();
            assert!(file.write("a\n"));
            assert_eq!(fs::read_to_string(&path).unwrap(), want);
        }
    }

    #[test]
    fn new_file_begins_with_complete_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let (mut file, _room) = open(&path, 2);
        assert!(file.write("second\n"), "begun");
        fs::rename(&path, directory.path().join("records.1")).unwrap();
        assert!(file.reopen(), "the line stays incomplete");
        assert!(file.write("third\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
    }
}
