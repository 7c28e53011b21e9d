// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series as Parquet. Rows are collected as columns and written as a row group when there are enough.
//! `time_ns` is a timestamp in UTC. Numbers are signed, so that differences of columns can be negative.

use super::column::{COLUMNS, Column, Encoder, Row, direction};
use parquet::{
    basic::{Compression, Encoding},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use std::{
    io::{self, Write},
    sync::Arc,
};

/// Number of rows in a row group. This bounds the rows in memory, too: 15 MB.
pub(super) const ROW_GROUP_LEN: usize = 1 << 16;

/// Writer of a Parquet file.
pub(super) struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    pending: PendingRows,
}

/// Columns of the row group that is being collected.
#[derive(Default)]
struct PendingRows {
    flows: IntegerColumn,
    uploads: Vec<bool>,
    times: IntegerColumn,
    columns: [IntegerColumn; COLUMNS.len()],
}

/// Column of integers. In an optional column, `present` has 1 for each row that has a value and 0 for others.
#[derive(Default)]
struct IntegerColumn {
    values: Vec<i64>,
    present: Vec<i16>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Creates the writer and writes the first bytes; [`Encoder::finish`] writes the footer.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let schema = parse_message_type(&schema()).map_err(io_error)?;
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties()));
        Ok(Self {
            file: file.map_err(io_error)?,
            pending: PendingRows::default(),
        })
    }

    fn write_row_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        let pending = &mut self.pending;
        write_integers(&mut group, &mut pending.flows)?;
        write_directions(&mut group, &mut pending.uploads)?;
        write_integers(&mut group, &mut pending.times)?;
        for values in &mut pending.columns {
            write_integers(&mut group, values)?;
        }
        group.close()?;
        Ok(())
    }
}

impl PendingRows {
    fn len(&self) -> usize {
        self.uploads.len()
    }

    /// Appends rows, column by column.
    fn push(&mut self, rows: &[Row]) {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let flows = rows.iter().map(|row| signed(row.flow));
        self.flows.values.extend(flows);
        self.uploads.extend(rows.iter().map(|row| row.upload));
        let times = rows.iter().map(|row| signed(row.from_ns));
        self.times.values.extend(times);
        for (column, into) in COLUMNS.iter().zip(&mut self.columns) {
            let values = rows.iter().map(|row| (column.value)(&row.bin));
            if column.optional {
                into.present
                    .extend(values.clone().map(|value| i16::from(value.is_some())));
            }
            into.values.extend(values.flatten());
        }
    }
}

impl<W: Write + Send> Encoder for ParquetWriter<W> {
    fn write(&mut self, mut rows: &[Row]) -> io::Result<()> {
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(ROW_GROUP_LEN - self.pending.len()));
            self.pending.push(now);
            rows = later;
            if self.pending.len() == ROW_GROUP_LEN {
                self.write_row_group().map_err(io_error)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.pending.len() > 0 {
            self.write_row_group().map_err(io_error)?;
        }
        self.file.close().map(drop).map_err(io_error)
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

/// Columns in which nearly every value is different. Delta encoding makes them small and saves the time for
/// dictionary lookups. The other columns are mostly zero or have few values. They need very little space as a
/// dictionary, which is the default.
const DELTA_ENCODED: [&str; 6] = [
    "flow",
    "time_ns",
    "rtt_min_ns",
    "rtt_max_ns",
    "rtt_sum_ns",
    "ack_path_delay_ns",
];

fn properties() -> WriterProperties {
    let builder = WriterProperties::builder()
        .set_created_by(format!("longhaul {}", longhaul_command::release()))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    let differences = |builder: WriterPropertiesBuilder, name: &&str| {
        let column = || ColumnPath::from(*name);
        builder
            .set_column_dictionary_enabled(column(), false)
            .set_column_encoding(column(), Encoding::DELTA_BINARY_PACKED)
    };
    DELTA_ENCODED.iter().fold(builder, differences).build()
}

/// Writes the next column of `group` and empties it; absent values are nulls.
fn write_integers<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &mut IntegerColumn,
) -> Result<(), ParquetError> {
    let IntegerColumn { values, present } = column;
    let present_if_any = (!present.is_empty()).then_some(&present[..]);
    write_next_column(group, |column| match column {
        ColumnWriter::Int64ColumnWriter(writer) => writer.write_batch(values, present_if_any, None),
        _ => Err(ParquetError::General("not a column of integers".to_owned())),
    })?;
    values.clear();
    present.clear();
    Ok(())
}

fn write_directions<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    uploads: &mut Vec<bool>,
) -> Result<(), ParquetError> {
    let [download, upload] = [false, true].map(|upload| ByteArray::from(direction(upload)));
    let word = |is_upload: bool| {
        if is_upload {
            upload.clone()
        } else {
            download.clone()
        }
    };
    let values: Vec<ByteArray> = uploads.drain(..).map(word).collect();
    write_next_column(group, |column| match column {
        ColumnWriter::ByteArrayColumnWriter(writer) => writer.write_batch(&values, None, None),
        _ => Err(ParquetError::General("not a column of texts".to_owned())),
    })
}

fn write_next_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    write: impl FnOnce(&mut ColumnWriter<'_>) -> Result<usize, ParquetError>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    write(column.untyped())?;
    column.close()
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => io::Error::other(source),
        error => io::Error::other(error),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bytes::Bytes;
    use longhaul_flow::bin::Bin;
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::{Field, Row as Record},
    };

    /// Reads the rows of a file with the Parquet crate's own reader.
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
            window_min: number("window_min_bytes").map(|bytes| bytes as u32),
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
