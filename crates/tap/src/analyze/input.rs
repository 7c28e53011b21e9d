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

/// Opened capture, as a stream of uncompressed bytes.
pub(super) struct Input {
    bytes: Box<dyn Read + Send>,
    /// Length in bytes; absent for compressed files and for pipes.
    pub(super) len: Option<u64>,
    /// True for a regular file: it can be opened again and has the same content.
    pub(super) is_file: bool,
    /// Compression of the file, if any.
    pub(super) compression: Option<&'static str>,
}

/// Path that means standard input.
const STDIN: &str = "-";

impl Input {
    /// Opens a capture.
    ///
    /// # Errors
    /// The file does not exist, may not be read, or is a directory: a refusal that names it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot =
            |error: io::Error| Refusal::usage(format!("cannot read {}: {error}", path.display()));
        if path.as_os_str() == STDIN {
            return Self::new(io::stdin(), None).map_err(cannot);
        }
        let file = File::open(path).map_err(cannot)?;
        let meta = file.metadata().map_err(cannot)?;
        if meta.is_dir() {
            let path = path.display();
            return Err(Refusal::usage(format!(
                "{path} is a directory; name its files: {path}/*.pcap*"
            )));
        }
        Self::new(file, meta.is_file().then_some(meta.len())).map_err(cannot)
    }

    fn new(mut bytes: impl Read + Send + 'static, len: Option<u64>) -> io::Result<Self> {
        let mut head = [0; 2];
        let (read, error) = fill(&mut bytes, &mut head);
        error.map_or(Ok(()), Err)?;
        let all_bytes = Cursor::new(head).take(read as u64).chain(bytes);
        let is_gzip = head == [0x1f, 0x8b];
        Ok(Self {
            bytes: if is_gzip {
                Box::new(MultiGzDecoder::new(all_bytes))
            } else {
                Box::new(all_bytes)
            },
            len: len.filter(|_| !is_gzip),
            is_file: len.is_some(),
            compression: is_gzip.then_some("gzip"),
        })
    }

    /// Reads until `into` is full or the input ends, so that pipes and files are split alike. Returns the number of bytes
    /// read, and the error that ended the input early: it cannot be read, or its compressed data is damaged or cut short.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> (usize, Option<io::Error>) {
        fill(&mut self.bytes, into)
    }
}

fn fill(from: &mut impl Read, into: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}
