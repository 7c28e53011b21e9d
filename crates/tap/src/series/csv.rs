// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series as CSV (RFC 4180, but lines end in LF). No value needs quotes. Time is an integer, ns since 1970.

use super::column::{COLUMNS, Encoder, Row, direction};
use std::io::{self, BufWriter, Write};

/// Writer of a CSV file.
pub(super) struct CsvWriter<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> CsvWriter<W> {
    /// Creates the writer and writes the header line.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        write!(out, "flow,direction,time_ns")?;
        for column in &COLUMNS {
            write!(out, ",{}", column.name)?;
        }
        writeln!(out)?;
        Ok(Self { out })
    }

    fn write_row(&mut self, row: &Row) -> io::Result<()> {
        let Row { flow, from_ns, .. } = row;
        write!(self.out, "{flow},{},{from_ns}", direction(row.upload))?;
        for column in &COLUMNS {
            match (column.value)(&row.bin) {
                Some(value) => write!(self.out, ",{value}")?,
                None => self.out.write_all(b",")?,
            }
        }
        self.out.write_all(b"\n")
    }
}

impl<W: Write + Send> Encoder for CsvWriter<W> {
    fn write(&mut self, rows: &[Row]) -> io::Result<()> {
        rows.iter().try_for_each(|row| self.write_row(row))
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::rows;

    #[test]
    fn writes_one_line_per_bin_with_empty_missing_values() {
        let mut text = Vec::new();
        let mut csv = Box::new(CsvWriter::new(&mut text).unwrap());
        csv.write(&rows(3)).unwrap();
        csv.finish().unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r"
        flow,direction,time_ns,data_bytes,data_max_bytes,data_segments,retransmitted_bytes,retransmissions,timeouts,window_full,short_segments,acked_bytes,acked_max_bytes,acks,duplicate_acks,sacks,advancing_acks,ack_diff_max_bytes,rtt_min_ns,rtt_max_ns,rtt_sum_ns,rtt_samples,unacked_age_min_us,ack_path_delay_ns,in_flight_max_bytes,window_min_bytes,queue_max_bytes,drops,ce_segments,reported_marks
        0,upload,1700000000000000000,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,,,0,0,,,0,,0,0,0,0
        0,download,1700000000001000000,1448,0,1,0,0,0,0,0,1000,0,0,0,0,0,0,1000000,,0,0,,,0,1048576,0,0,0,0
        1,upload,1700000000002000000,2896,0,2,0,0,0,0,0,2000,0,0,0,0,0,0,2000000,,0,0,,,0,2097152,0,0,0,0
        ");
    }
}
