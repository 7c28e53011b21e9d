// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a capture: whole blocks go in, each file is complete, and none outgrows its bound.

use super::tally::{Counted, Tally};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_linux::clock;
use longhaul_packet::capture::writer::{self, Statistics};
use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{IsTerminal, Seek, SeekFrom, Write, stdout},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Smallest bound of a file's size, in bytes: what an interface's thread writes at once is less.
pub(super) const ROTATE_MIN: u64 = 1_000_000;

/// Where a capture goes.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    /// `-` is standard output.
    path: PathBuf,
    /// Begin another file before one is larger.
    rotate: Option<u64>,
    /// How many files stay.
    files_max: Option<usize>,
    force: bool,
}

/// What is being written.
pub(super) struct Output {
    destination: Destination,
    /// Section header and interface descriptions, with which each file begins.
    header: Vec<u8>,
    tallies: Arc<[Tally]>,
    current: Current,
    /// Files of this capture that are there, the oldest first.
    kept: VecDeque<PathBuf>,
    numbered: u32,
    total: u64,
}

/// The file that is open.
struct Current {
    file: File,
    name: String,
    /// Whether what was written in part can be taken back.
    regular: bool,
    /// Bytes in whole blocks.
    length: u64,
    since_ns: u64,
    /// What had been counted before it.
    before: Vec<Counted>,
}

impl Destination {
    /// Nothing is touched yet; what is there is refused unless `force` says to replace it.
    pub(super) fn check(
        path: &Path,
        rotate: Option<u64>,
        files_max: Option<usize>,
        force: bool,
    ) -> Result<Self> {
        let destination = Self {
            path: path.to_owned(),
            rotate,
            files_max,
            force,
        };
        if rotate.is_some_and(|bytes| bytes < ROTATE_MIN) {
            return Err(Refusal::usage("--rotate: choose 1MB or more"));
        }
        if destination.is_stdout() {
            destination.check_stdout()?;
        } else if let Some(there) = destination.in_the_way() {
            let there = there.display();
            return Err(Refusal::usage(format!(
                "{there} is there: choose another name, or --force to replace it"
            )));
        }
        Ok(destination)
    }

    fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    fn check_stdout(&self) -> Result<()> {
        if self.rotate.is_some() {
            return Err(Refusal::usage("--rotate needs a file, not standard output"));
        }
        if stdout().is_terminal() {
            return Err(Refusal::usage(
                "pcapng is not for a terminal: redirect standard output, or name a file with -w",
            ));
        }
        Ok(())
    }

    /// Pipes and devices are there to be written to.
    fn in_the_way(&self) -> Option<PathBuf> {
        let taken = |path: &PathBuf| !self.force && path.is_file();
        match self.rotate {
            None => Some(self.path.clone()).filter(taken),
            Some(_) => self.numbered_files().into_iter().find(taken),
        }
    }

    /// Files whose names this capture would use sooner or later.
    fn numbered_files(&self) -> Vec<PathBuf> {
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let name_of = |number: u32| self.numbered(number).file_name().map(ToOwned::to_owned);
        let numbered = |name: &std::ffi::OsStr| {
            let digits = name.to_str()?.rsplit('-').next()?.get(..5)?;
            let number = digits.parse().ok()?;
            (name_of(number)? == name).then_some(())
        };
        entries
            .filter(|entry| numbered(&entry.file_name()).is_some())
            .map(|entry| entry.path())
            .collect()
    }

    /// `trace.pcapng` is `trace-00001.pcapng`.
    fn numbered(&self, number: u32) -> PathBuf {
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
        let path = match self.rotate {
            None => self.path.clone(),
            Some(_) => self.numbered(number),
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
        tallies: Arc<[Tally]>,
    ) -> Result<Self> {
        let unwritable = |error: anyhow::Error| Refusal::usage(format!("{error:#}"));
        let (file, path) = destination.open(1).map_err(unwritable)?;
        let mut output = Self {
            current: Current::of(file, &path, &tallies)?,
            kept: VecDeque::from([path]),
            numbered: 1,
            total: 0,
            destination,
            header,
            tallies,
        };
        output.current.append(&output.header)?;
        Ok(output)
    }

    /// Writes whole blocks with one call. If it fails, the file ends where it did before.
    pub(super) fn write(&mut self, blocks: &[u8]) -> Result<()> {
        let larger = self.current.length + (blocks.len() + self.tail_len()) as u64;
        if self.destination.rotate.is_some_and(|most| larger > most) {
            self.rotate()?;
        }
        self.current.append(blocks)
    }

    /// Ends the file with what was counted; bytes and names of what stands.
    pub(super) fn finish(&mut self) -> Result<(u64, Vec<String>)> {
        self.end_current()?;
        let names = self.kept.iter().map(|path| path.display().to_string());
        Ok((self.total + self.current.length, names.collect()))
    }

    /// Bytes of all files so far.
    pub(super) fn bytes(&self) -> u64 {
        self.total + self.current.length
    }

    fn rotate(&mut self) -> Result<()> {
        self.end_current()?;
        self.total += self.current.length;
        self.numbered += 1;
        let (file, path) = self.destination.open(self.numbered)?;
        self.current = Current::of(file, &path, &self.tallies)?;
        self.current.append(&self.header)?;
        self.kept.push_back(path);
        self.forget_old()
    }

    fn forget_old(&mut self) -> Result<()> {
        let most = self.destination.files_max.unwrap_or(usize::MAX);
        while self.kept.len() > most {
            if let Some(oldest) = self.kept.pop_front() {
                fs::remove_file(&oldest)
                    .with_context(|| format!("cannot remove {}", oldest.display()))?;
            }
        }
        Ok(())
    }

    fn end_current(&mut self) -> Result<()> {
        let mut tail = Vec::with_capacity(self.tail_len());
        let until_ns = clock::wall().as_nanos();
        for (interface, tally) in (0..).zip(self.tallies.iter()) {
            let (now, before) = (tally.now(), self.current.before[interface as usize]);
            let statistics = Statistics {
                interface,
                from_ns: self.current.since_ns,
                until_ns,
                received: now.received - before.received,
                dropped: now.dropped - before.dropped,
            };
            writer::statistics(&mut tail, &statistics);
        }
        self.current.append(&tail)
    }

    fn tail_len(&self) -> usize {
        self.tallies.len() * writer::STATISTICS_LEN
    }
}

impl Current {
    fn of(file: File, path: &Path, tallies: &[Tally]) -> Result<Self> {
        Ok(Self {
            regular: file.metadata()?.is_file(),
            file,
            name: path.display().to_string(),
            length: 0,
            since_ns: clock::wall().as_nanos(),
            before: tallies.iter().map(Tally::now).collect(),
        })
    }

    fn append(&mut self, blocks: &[u8]) -> Result<()> {
        if let Err(error) = self.file.write_all(blocks) {
            self.take_back();
            let whole = if self.regular {
                "; it is complete up to here"
            } else {
                ""
            };
            anyhow::bail!("cannot write {}: {error}{whole}", self.name);
        }
        self.length += blocks.len() as u64;
        Ok(())
    }

    /// Half a block would make the file a damaged one.
    fn take_back(&mut self) {
        if self.regular {
            // If this fails too, readers still take everything up to the half block.
            let cut = self.file.set_len(self.length);
            drop(cut.and_then(|()| self.file.seek(SeekFrom::Start(self.length))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(directory: &Path, files_max: Option<usize>) -> Output {
        let path = directory.join("trace.pcapng");
        let destination = Destination::check(&path, Some(ROTATE_MIN), files_max, false).unwrap();
        let tallies: Arc<[Tally]> = [Tally::default()].into();
        Output::create(destination, vec![7; 100], tallies).unwrap()
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
    fn no_file_outgrows_its_bound_and_each_begins_and_ends_complete() {
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
    fn only_the_last_files_stay() {
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
    fn what_is_there_is_left_alone_unless_forced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.pcapng");
        let check = |rotate, force| Destination::check(&path, rotate, None, force).map(drop);
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
        assert!(Destination::check(Path::new("/dev/null"), None, None, false).is_ok());
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let destination = Destination::check(Path::new("/dev/full"), None, None, false).unwrap();
        let tallies: Arc<[Tally]> = [Tally::default()].into();
        let error = Output::create(destination, vec![7; 100], tallies)
            .err()
            .unwrap();
        let said = error.to_string();
        assert!(
            said.contains("/dev/full") && said.contains("No space"),
            "{said}"
        );
    }
}
