// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series as Parquet. Rows become columns as they come, and these a row group when there are enough.
//! `time_ns` is a timestamp in UTC; numbers are signed, so that differences of columns are what one expects.

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

/// Rows of a row group, and so of what waits to be written: 15 MB.
pub(super) const GROUP: usize = 1 << 16;

/// A Parquet file that is being written.
pub(super) struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    waiting: Waiting,
}

/// Columns of a row group to come.
#[derive(Default)]
struct Waiting {
    flows: Values,
    uploads: Vec<bool>,
    times: Values,
    columns: [Values; COLUMNS.len()],
}

/// A column of integers. Where some are missing, `present` has 1 for each row that has one and 0 for others.
#[derive(Default)]
struct Values {
    values: Vec<i64>,
    present: Vec<i16>,
}

impl<W: Write + Send> Parquet<W> {
    /// Writes the first bytes; the footer comes with [`Encoder::finish`].
    pub(super) fn new(out: W) -> io::Result<Self> {
        let schema = parse_message_type(&schema()).map_err(failed)?;
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties()));
        Ok(Self {
            file: file.map_err(failed)?,
            waiting: Waiting::default(),
        })
    }

    fn row_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        let waiting = &mut self.waiting;
        integers(&mut group, &mut waiting.flows)?;
        directions(&mut group, &mut waiting.uploads)?;
        integers(&mut group, &mut waiting.times)?;
        for values in &mut waiting.columns {
            integers(&mut group, values)?;
        }
        group.close()?;
        Ok(())
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.uploads.len()
    }

    /// Column by column: each looks at one place of every row.
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

impl<W: Write + Send> Encoder for Parquet<W> {
    fn write(&mut self, mut rows: &[Row]) -> io::Result<()> {
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(GROUP - self.waiting.len()));
            self.waiting.push(now);
            rows = later;
            if self.waiting.len() == GROUP {
                self.row_group().map_err(failed)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.waiting.len() > 0 {
            self.row_group().map_err(failed)?;
        }
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

/// Columns of which nearly every value is another: as differences they take little, and no time to look
/// them up. The others are mostly zero, or have few values, and take next to nothing as a dictionary,
/// which is the default.
const DIFFERENCES: [&str; 6] = [
    "flow",
    "time_ns",
    "rtt_min_ns",
    "rtt_max_ns",
    "rtt_sum_ns",
    "ack_way_ns",
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
    DIFFERENCES.iter().fold(builder, differences).build()
}

/// The next column of `group`, of which nothing is left; absent values are nulls.
fn integers<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &mut Values,
) -> Result<(), ParquetError> {
    let Values { values, present } = column;
    let present_if_any = (!present.is_empty()).then_some(&present[..]);
    with_column(group, |column| match column {
        ColumnWriter::Int64ColumnWriter(writer) => writer.write_batch(values, present_if_any, None),
        _ => Err(ParquetError::General("not a column of integers".to_owned())),
    })?;
    values.clear();
    present.clear();
    Ok(())
}

fn directions<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    uploads: &mut Vec<bool>,
) -> Result<(), ParquetError> {
    let [download, upload] = [false, true].map(|upload| ByteArray::from(direction(upload)));
    let word = |is_upload: bool| match is_upload {
        true => upload.clone(),
        false => download.clone(),
    };
    let values: Vec<ByteArray> = uploads.drain(..).map(word).collect();
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
    use longhaul_flow::series::Bin;
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
