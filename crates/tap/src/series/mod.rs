// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series files: every bin of every direction as a row, for pandas, R, DuckDB or a spreadsheet.
//!
//! `series-1ms.parquet` and `series-1ms.csv` have the same rows and columns, in the same order. A file is
//! written during the analysis and never held in memory as a whole.

pub(crate) mod column;
mod csv;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "without_parquet.rs"]
mod parquet;

pub(crate) use column::Row;

use anyhow::{Context, Result};
use column::Encoder;
use longhaul_units::Time;
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Format of a series file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text, about 60 bytes a row; times as integers.
    Csv,
    /// Typed and compressed columns, about 15 bytes a row.
    Parquet,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// Series files of an analysis.
pub(crate) struct SeriesFiles {
    widths: Vec<WidthFiles>,
}

/// Files of one bin width.
struct WidthFiles {
    files: Vec<OpenFile>,
}

struct OpenFile {
    path: PathBuf,
    encoder: Box<dyn Encoder>,
}

impl SeriesFiles {
    /// Creates `series-<width>.<format>` in `directory` for each width and format.
    ///
    /// # Errors
    /// If a file can't be created.
    pub(crate) fn create(directory: &Path, widths: &[Time], formats: &[Format]) -> Result<Self> {
        let open = |width: &Time| {
            let files = formats
                .iter()
                .map(|format| open(directory, *width, *format));
            Ok(WidthFiles {
                files: files.collect::<Result<_>>()?,
            })
        };
        Ok(Self {
            widths: widths.iter().map(open).collect::<Result<_>>()?,
        })
    }

    /// Returns a set without files for this number of widths.
    pub(crate) fn disabled(widths: usize) -> Self {
        let none = || WidthFiles { files: Vec::new() };
        Self {
            widths: std::iter::repeat_with(none).take(widths).collect(),
        }
    }

    /// Returns the names of the files, without their directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let files = self.widths.iter().flat_map(|width| &width.files);
        let name = |file: &OpenFile| Some(file.path.file_name()?.to_str()?.to_owned());
        files.filter_map(name).collect()
    }

    /// Writes rows of the width with this index.
    ///
    /// # Errors
    /// If a file can't be written: the disk is full.
    pub(crate) fn write(&mut self, width: usize, rows: &[Row]) -> Result<()> {
        self.widths[width].push(rows)
    }

    /// Writes buffered rows and closes the files.
    ///
    /// # Errors
    /// As [`SeriesFiles::write`].
    pub(crate) fn finish(self) -> Result<()> {
        self.widths.into_iter().try_for_each(WidthFiles::finish)
    }
}

impl WidthFiles {
    fn push(&mut self, rows: &[Row]) -> Result<()> {
        for file in &mut self.files {
            let written = file.encoder.write(rows);
            written.with_context(|| cannot_write(&file.path))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        for OpenFile { path, encoder } in self.files {
            encoder.finish().with_context(|| cannot_write(&path))?;
        }
        Ok(())
    }
}

fn open(directory: &Path, width: Time, format: Format) -> Result<OpenFile> {
    let path = directory.join(format!("series-{}.{}", width.exact(), format.extension()));
    let encoder = || -> io::Result<Box<dyn Encoder>> {
        let file = File::create(&path)?;
        Ok(match format {
            Format::Csv => Box::new(csv::CsvWriter::new(file)?),
            Format::Parquet => Box::new(parquet::ParquetWriter::new(file)?),
        })
    };
    let encoder = encoder().with_context(|| cannot_write(&path))?;
    Ok(OpenFile { path, encoder })
}

pub(crate) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_flow::bin::Bin;

    /// Returns rows of two directions, each with a different value in every column.
    pub(super) fn rows(count: u64) -> Vec<Row> {
        let row = |n: u64| Row {
            flow: n / 2,
            upload: n.is_multiple_of(2),
            from_ns: 1_700_000_000_000_000_000 + n * 1_000_000,
            bin: Bin {
                data_bytes: n * 1448,
                data_segments: n as u32,
                acked_bytes: n * 1000,
                rtt_min_ns: n % 3 * 1_000_000,
                window_min: (!n.is_multiple_of(5)).then_some((n as u32) << 20),
                ..Bin::default()
            },
        };
        (0..count).map(row).collect()
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn writes_all_rows_to_a_file_per_width_and_format() {
        let directory = tempfile::tempdir().unwrap();
        let widths = [Time::from_nanos(1_000_000), Time::from_nanos(1_000_000_000)];
        let formats = [Format::Csv, Format::Parquet];
        let mut files = SeriesFiles::create(directory.path(), &widths, &formats).unwrap();
        assert_eq!(
            files.names(),
            [
                "series-1ms.csv",
                "series-1ms.parquet",
                "series-1s.csv",
                "series-1s.parquet"
            ]
        );
        // More rows than a row group, in several calls.
        let all = rows(parquet::ROW_GROUP_LEN as u64 + 10);
        for some in all.chunks(parquet::ROW_GROUP_LEN - 3) {
            files.write(0, some).unwrap();
        }
        files.finish().unwrap();
        let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
        let lines = read("series-1ms.csv")
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        assert_eq!(lines, all.len() + 1, "and the names of the columns");
        assert_eq!(
            read("series-1s.csv")
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
            1
        );
        assert_eq!(parquet::tests::read_back(&read("series-1ms.parquet")), all);
        assert_eq!(parquet::tests::read_back(&read("series-1s.parquet")), []);
    }

    #[test]
    fn names_the_file_that_cannot_be_created() {
        let widths = [Time::from_nanos(1_000_000)];
        let error = SeriesFiles::create(Path::new("/nonexistent"), &widths, &[Format::Csv])
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            "cannot write /nonexistent/series-1ms.csv"
        );
    }
}
