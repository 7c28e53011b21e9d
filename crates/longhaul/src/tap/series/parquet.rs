// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series as Parquet: a row group for each lot of rows. `time_ns` is a timestamp in UTC; numbers are
//! signed, so that differences of columns are what one expects.

use super::{
    Encoder, Row,
    column::{COLUMNS, Column, direction},
};
use parquet::{
    basic::{Compression, Encoding},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use std::{
    io::{self, Write},
    sync::Arc,
};

/// A Parquet file that is being written.
pub(super) struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
}

impl<W: Write + Send> Parquet<W> {
    /// Writes the first bytes; the footer comes with [`Encoder::finish`].
    pub(super) fn new(out: W) -> io::Result<Self> {
        let schema = parse_message_type(&schema()).map_err(failed)?;
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties()));
        Ok(Self {
            file: file.map_err(failed)?,
        })
    }

    fn row_group(&mut self, rows: &[Row]) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        integers(&mut group, rows, |row| i64::try_from(row.flow).ok())?;
        directions(&mut group, rows)?;
        integers(&mut group, rows, |row| {
            Some(row.from_ns.min(i64::MAX as u64) as i64)
        })?;
        for column in &COLUMNS {
            integers(&mut group, rows, |row| (column.value)(&row.bin))?;
        }
        group.close()?;
        Ok(())
    }
}

impl<W: Write + Send> Encoder for Parquet<W> {
    fn write(&mut self, rows: &[Row]) -> io::Result<()> {
        self.row_group(rows).map_err(failed)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.file.close().map(drop).map_err(failed)
    }
}

fn schema() -> String {
    let field = |column: &Column| {
        let presence = if column.optional {
            "optional"
        } else {
            "required"
        };
        format!("{presence} int64 {};", column.name)
    };
    format!(
        "message series {{ required int64 flow; required binary direction (STRING); \
         required int64 time_ns (TIMESTAMP(NANOS, true)); {} }}",
        COLUMNS.iter().map(field).collect::<String>()
    )
}

/// Times grow by little: their differences take a byte or less. Columns that are mostly zero
/// take next to nothing as a dictionary, which is the default.
fn properties() -> WriterProperties {
    let time = || ColumnPath::from("time_ns");
    WriterProperties::builder()
        .set_created_by(concat!("longhaul ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_column_dictionary_enabled(time(), false)
        .set_column_encoding(time(), Encoding::DELTA_BINARY_PACKED)
        .build()
}

/// The next column of `group`; absent values are nulls.
fn integers<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<i64>,
) -> Result<(), ParquetError> {
    let present: Vec<i16> = rows.iter().map(|row| value(row).is_some().into()).collect();
    let values: Vec<i64> = rows.iter().filter_map(&value).collect();
    with_column(group, |column| match column {
        ColumnWriter::Int64ColumnWriter(writer) => {
            writer.write_batch(&values, Some(&present), None)
        }
        _ => Err(ParquetError::General("not a column of integers".to_owned())),
    })
}

fn directions<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Row],
) -> Result<(), ParquetError> {
    let [download, upload] = [false, true].map(|upload| ByteArray::from(direction(upload)));
    let word = |row: &Row| {
        if row.upload {
            upload.clone()
        } else {
            download.clone()
        }
    };
    let values: Vec<ByteArray> = rows.iter().map(word).collect();
    with_column(group, |column| match column {
        ColumnWriter::ByteArrayColumnWriter(writer) => writer.write_batch(&values, None, None),
        _ => Err(ParquetError::General("not a column of texts".to_owned())),
    })
}

fn with_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    write: impl FnOnce(&mut ColumnWriter<'_>) -> Result<usize, ParquetError>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    write(column.untyped())?;
    column.close()
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => io::Error::other(source),
        error => io::Error::other(error),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bytes::Bytes;
    use model::tap::series::Bin;
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::{Field, Row as Record},
    };

    /// The rows of a file, by the crate's own reader.
    pub(crate) fn read_back(file: &[u8]) -> Vec<Row> {
        let reader = SerializedFileReader::new(Bytes::copy_from_slice(file)).unwrap();
        let records = reader.get_row_iter(None).unwrap();
        records.map(|record| row(&record.unwrap())).collect()
    }

    fn row(record: &Record) -> Row {
        let field = |wanted: &str| {
            let mut fields = record.get_column_iter();
            fields.find(|(name, _)| *name == wanted).unwrap().1.clone()
        };
        let number = |name: &str| match field(name) {
            Field::Long(value) => Some(value as u64),
            Field::Null => None,
            other => panic!("{name} is {other:?}"),
        };
        let count = |name: &str| number(name).unwrap();
        let narrow = |name: &str| count(name) as u32;
        let bin = Bin {
            data_bytes: count("data_bytes"),
            data_segments: narrow("data_segments"),
            acked_bytes: count("acked_bytes"),
            rtt_min_ns: number("rtt_min_ns").unwrap_or(0),
            window_min: number("window_min_bytes"),
            ..Bin::default()
        };
        Row {
            flow: count("flow"),
            upload: field("direction") == Field::Str("upload".to_owned()),
            from_ns: count("time_ns"),
            bin,
        }
    }
}
