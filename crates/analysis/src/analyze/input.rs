// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a capture: a file, a FIFO or standard input, plain or gzip.

use anyhow::Result;
use flate2::read::MultiGzDecoder;
use longhaul_command::exit::Refusal;
use std::{
    fs::File,
    io::{self, Cursor, Read},
    path::Path,
};

/// Where bytes come from.
pub(super) struct Input {
    bytes: Box<dyn Read + Send>,
    /// Length in bytes, where that is known: not of what is packed or comes through a pipe.
    pub(super) len: Option<u64>,
    /// Whether it can be opened again and be the same.
    pub(super) is_file: bool,
    /// What it was packed with.
    pub(super) packed: Option<&'static str>,
}

/// Standard input.
const STDIN: &str = "-";

impl Input {
    /// Opens a capture.
    ///
    /// # Errors
    /// It is not there, may not be read, or is a directory: a refusal that names it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot =
            |error: io::Error| Refusal::usage(format!("cannot read {}: {error}", path.display()));
        if path.as_os_str() == STDIN {
            return Self::of(io::stdin(), None).map_err(cannot);
        }
        let file = File::open(path).map_err(cannot)?;
        let meta = file.metadata().map_err(cannot)?;
        if meta.is_dir() {
            let path = path.display();
            return Err(Refusal::usage(format!(
                "{path} is a directory; name its files: {path}/*.pcap*"
            )));
        }
        Self::of(file, meta.is_file().then_some(meta.len())).map_err(cannot)
    }

    fn of(mut bytes: impl Read + Send + 'static, len: Option<u64>) -> io::Result<Self> {
        let mut head = [0; 2];
        let read = fill(&mut bytes, &mut head)?;
        let whole = Cursor::new(head).take(read as u64).chain(bytes);
        let packed = head == [0x1f, 0x8b];
        Ok(Self {
            bytes: match packed {
                true => Box::new(MultiGzDecoder::new(whole)),
                false => Box::new(whole),
            },
            len: len.filter(|_| !packed),
            is_file: len.is_some(),
            packed: packed.then_some("gzip"),
        })
    }

    /// Reads until `into` is full or nothing more comes, so that pipes and files are cut alike.
    ///
    /// # Errors
    /// What reading says; packed data that is damaged, too.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        fill(&mut self.bytes, into)
    }
}

fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
