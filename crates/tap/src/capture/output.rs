// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a capture: complete pcapng blocks only, within the size limit of a file.

use super::counters::{CounterSnapshot, InterfaceCounters};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_linux::clock;
use longhaul_packet::capture::writer::{self, Statistics};
use longhaul_units::Bytes;
use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{IsTerminal, Seek, SeekFrom, Write, stdout},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Smallest size limit of a file, bytes. One write of an interface's thread is always smaller.
pub(super) const ROTATE_MIN: u64 = 1_000_000;

/// Destination of a capture.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    /// Path; `-` is standard output.
    path: PathBuf,
    /// Size limit of a file, bytes; a new file begins before it is exceeded.
    rotate_bytes: Option<u64>,
    /// Number of files to keep.
    files_max: Option<usize>,
    force: bool,
}

/// Files of a running capture.
pub(super) struct Output {
    destination: Destination,
    /// Section header and interface descriptions at the beginning of each file.
    header: Vec<u8>,
    counters: Arc<[InterfaceCounters]>,
    current: CurrentFile,
    /// Existing files of this capture, the oldest first.
    files: VecDeque<PathBuf>,
    file_number: u32,
    closed_bytes: u64,
}

/// File that is being written.
struct CurrentFile {
    file: File,
    name: String,
    /// True for a regular file, from which a partial block can be removed.
    regular: bool,
    /// Bytes in complete blocks.
    length: u64,
    started_ns: u64,
    /// Counters of each interface at the beginning of the file.
    counters_at_start: Vec<CounterSnapshot>,
}

impl Destination {
    /// Validates the destination and opens nothing. An existing file is refused unless `force` is set.
    pub(super) fn new(
        path: &Path,
        rotate: Option<u64>,
        files_max: Option<usize>,
        force: bool,
    ) -> Result<Self> {
        let destination = Self {
            path: path.to_owned(),
            rotate_bytes: rotate,
            files_max,
            force,
        };
        if let Some(bytes) = rotate.filter(|bytes| *bytes < ROTATE_MIN) {
            let limit = Bytes::new(bytes).exact();
            return Err(Refusal::usage(format!(
                "--rotate {limit}: choose 1MB or more"
            )));
        }
        if destination.is_stdout() {
            destination.check_stdout()?;
        } else if let Some(existing) = destination.existing_file() {
            let existing = existing.display();
            return Err(Refusal::usage(format!(
                "{existing} exists: choose another name, or use --force to replace it"
            )));
        }
        Ok(destination)
    }

    fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    fn check_stdout(&self) -> Result<()> {
        if self.rotate_bytes.is_some() {
            return Err(Refusal::usage("--rotate needs a file, not standard output"));
        }
        if stdout().is_terminal() {
            return Err(Refusal::usage(
                "pcapng is not for a terminal: redirect standard output, or name a file with -w",
            ));
        }
        Ok(())
    }

    /// Returns an existing regular file that the capture would overwrite and must not. Pipes and devices are not such
    /// files.
    fn existing_file(&self) -> Option<PathBuf> {
        let exists = |path: &PathBuf| !self.force && path.is_file();
        match self.rotate_bytes {
            None => Some(self.path.clone()).filter(exists),
            Some(_) => self.numbered_files().into_iter().find(exists),
        }
    }

    /// Returns existing files whose names are numbered like those of this capture.
    fn numbered_files(&self) -> Vec<PathBuf> {
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let name_of = |number: u32| {
            self.numbered_path(number)
                .file_name()
                .map(ToOwned::to_owned)
        };
        let has_numbered_name = |name: &std::ffi::OsStr| {
            let digits = name.to_str()?.rsplit('-').next()?.get(..5)?;
            let number = digits.parse().ok()?;
            (name_of(number)? == name).then_some(())
        };
        entries
            .filter(|entry| has_numbered_name(&entry.file_name()).is_some())
            .map(|entry| entry.path())
            .collect()
    }

    /// Returns the path with a number: `trace.pcapng` becomes `trace-00001.pcapng`.
    fn numbered_path(&self, number: u32) -> PathBuf {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = self.path.extension().unwrap_or_default().to_string_lossy();
        let dot = if extension.is_empty() { "" } else { "." };
        self.path
            .with_file_name(format!("{stem}-{number:05}{dot}{extension}"))
    }

    fn open(&self, number: u32) -> Result<(File, PathBuf)> {
        if self.is_stdout() {
            let file = File::from(stdout().as_fd().try_clone_to_owned()?);
            return Ok((file, PathBuf::from("standard output")));
        }
        let path = match self.rotate_bytes {
            None => self.path.clone(),
            Some(_) => self.numbered_path(number),
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok((file, path))
    }
}

impl Output {
    /// Opens the first file and writes its header.
    pub(super) fn create(
        destination: Destination,
        header: Vec<u8>,
        counters: Arc<[InterfaceCounters]>,
    ) -> Result<Self> {
        let unwritable = |error: anyhow::Error| Refusal::usage(format!("{error:#}"));
        let (file, path) = destination.open(1).map_err(unwritable)?;
        let mut output = Self {
            current: CurrentFile::new(file, &path, &counters)?,
            files: VecDeque::from([path]),
            file_number: 1,
            closed_bytes: 0,
            destination,
            header,
            counters,
        };
        output.current.append(&output.header)?;
        Ok(output)
    }

    /// Writes complete blocks to the current file, or to the next file if the current one would become too long. If
    /// writing fails, a regular file keeps its complete blocks.
    pub(super) fn write(&mut self, blocks: &[u8]) -> Result<()> {
        let new_length = self.current.length + (blocks.len() + self.trailer_len()) as u64;
        if self
            .destination
            .rotate_bytes
            .is_some_and(|max| new_length > max)
        {
            self.start_next_file()?;
        }
        self.current.append(blocks)
    }

    /// Writes the counters at the end of the last file. Returns the bytes of all files, and the names of those that
    /// still exist.
    pub(super) fn finish(&mut self) -> Result<(u64, Vec<String>)> {
        self.complete_current()?;
        let names = self.files.iter().map(|path| path.display().to_string());
        Ok((self.closed_bytes + self.current.length, names.collect()))
    }

    /// Returns the bytes of all files so far.
    pub(super) fn bytes(&self) -> u64 {
        self.closed_bytes + self.current.length
    }

    fn start_next_file(&mut self) -> Result<()> {
        self.complete_current()?;
        self.closed_bytes += self.current.length;
        self.file_number += 1;
        let (file, path) = self.destination.open(self.file_number)?;
        self.current = CurrentFile::new(file, &path, &self.counters)?;
        self.current.append(&self.header)?;
        self.files.push_back(path);
        self.remove_old_files()
    }

    fn remove_old_files(&mut self) -> Result<()> {
        let max = self.destination.files_max.unwrap_or(usize::MAX);
        while self.files.len() > max {
            if let Some(oldest) = self.files.pop_front() {
                fs::remove_file(&oldest)
                    .with_context(|| format!("cannot remove {}", oldest.display()))?;
            }
        }
        Ok(())
    }

    /// Writes the counters at the end of the current file.
    fn complete_current(&mut self) -> Result<()> {
        let mut trailer = Vec::with_capacity(self.trailer_len());
        let until_ns = clock::wall().as_nanos();
        for (interface, counters) in (0..).zip(self.counters.iter()) {
            let (now, before) = (
                counters.snapshot(),
                self.current.counters_at_start[interface as usize],
            );
            let statistics = Statistics {
                interface,
                from_ns: self.current.started_ns,
                until_ns,
                received: now.received - before.received,
                dropped: now.dropped - before.dropped,
            };
            writer::statistics(&mut trailer, &statistics);
        }
        self.current.append(&trailer)
    }

    /// Returns the length of the counters at the end of a file, in bytes.
    fn trailer_len(&self) -> usize {
        self.counters.len() * writer::STATISTICS_LEN
    }
}

impl CurrentFile {
    fn new(file: File, path: &Path, counters: &[InterfaceCounters]) -> Result<Self> {
        Ok(Self {
            regular: file.metadata()?.is_file(),
            file,
            name: path.display().to_string(),
            length: 0,
            started_ns: clock::wall().as_nanos(),
            counters_at_start: counters.iter().map(InterfaceCounters::snapshot).collect(),
        })
    }

    fn append(&mut self, blocks: &[u8]) -> Result<()> {
        if let Err(error) = self.file.write_all(blocks) {
            self.truncate_partial_block();
            let hint = if self.regular {
                "; the file is readable up to this point"
            } else {
                ""
            };
            anyhow::bail!("cannot write {}: {error}{hint}", self.name);
        }
        self.length += blocks.len() as u64;
        Ok(())
    }

    /// Removes a partial block at the end of the file.
    fn truncate_partial_block(&mut self) {
        if self.regular {
            // If this fails too, readers still accept all blocks before the partial one.
            let truncated = self.file.set_len(self.length);
            drop(truncated.and_then(|()| self.file.seek(SeekFrom::Start(self.length))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(directory: &Path, files_max: Option<usize>) -> Output {
        let path = directory.join("trace.pcapng");
        let destination = Destination::new(&path, Some(ROTATE_MIN), files_max, false).unwrap();
        let counters: Arc<[InterfaceCounters]> = [InterfaceCounters::default()].into();
        Output::create(destination, vec![7; 100], counters).unwrap()
    }

    fn sizes(directory: &Path) -> Vec<(String, u64)> {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        let size = |entry: fs::DirEntry| {
            let name = entry.file_name().to_str().unwrap().to_owned();
            (name, entry.metadata().unwrap().len())
        };
        let mut sizes: Vec<_> = entries.map(size).collect();
        sizes.sort();
        sizes
    }

    #[test]
    fn rotates_at_the_size_limit_with_complete_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = output(directory.path(), None);
        for _ in 0..5 {
            output.write(&[1; 499_000]).unwrap();
        }
        let (bytes, names) = output.finish().unwrap();
        let one = 100 + 2 * 499_000 + writer::STATISTICS_LEN as u64;
        let wanted = [
            ("trace-00001.pcapng".to_owned(), one),
            ("trace-00002.pcapng".to_owned(), one),
            ("trace-00003.pcapng".to_owned(), one - 499_000),
        ];
        assert_eq!(sizes(directory.path()), wanted);
        assert_eq!((bytes, names.len()), (3 * one - 499_000, 3));
        let second = fs::read(directory.path().join("trace-00002.pcapng")).unwrap();
        assert_eq!(second[..101], [&[7; 100][..], &[1]].concat());
    }

    #[test]
    fn keeps_only_the_last_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = output(directory.path(), Some(2));
        for _ in 0..4 {
            output.write(&[1; 900_000]).unwrap();
        }
        let names: Vec<_> = sizes(directory.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["trace-00003.pcapng", "trace-00004.pcapng"]);
    }

    #[test]
    fn refuses_existing_file_without_force() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.pcapng");
        let check = |rotate, force| Destination::new(&path, rotate, None, force).map(drop);
        fs::write(&path, "a").unwrap();
        let refusal = check(None, false).unwrap_err().to_string();
        assert!(
            refusal.contains("trace.pcapng") && refusal.contains("--force"),
            "{refusal}"
        );
        assert!(check(None, true).is_ok());
        assert!(check(Some(ROTATE_MIN), false).is_ok());
        fs::write(directory.path().join("trace-00017.pcapng"), "a").unwrap();
        assert!(check(Some(ROTATE_MIN), false).is_err());
        assert!(check(Some(ROTATE_MIN - 1), true).is_err());
        assert!(Destination::new(Path::new("/dev/null"), None, None, false).is_ok());
    }

    #[test]
    fn names_the_file_on_a_full_disk() {
        let destination = Destination::new(Path::new("/dev/full"), None, None, false).unwrap();
        let counters: Arc<[InterfaceCounters]> = [InterfaceCounters::default()].into();
        let error = Output::create(destination, vec![7; 100], counters)
            .err()
            .unwrap();
        let message = error.to_string();
        assert!(
            message.contains("/dev/full") && message.contains("No space"),
            "{message}"
        );
    }
}
