// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series as Parquet, for a build without the feature `parquet`: no file can be created.

use super::column::{Encoder, Row};
use std::{fs::File, io};

/// Writer of a Parquet file, which has no values.
pub(super) enum ParquetWriter {}

impl ParquetWriter {
    /// Returns an error: `Args::config` of `longhaul tap analyze` has refused the flag.
    pub(super) fn new(_out: File) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Encoder for ParquetWriter {
    fn write(&mut self, _rows: &[Row]) -> io::Result<()> {
        match *self {}
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        match *self {}
    }
}
