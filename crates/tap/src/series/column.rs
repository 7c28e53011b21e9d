// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows and columns of a series file: `flow`, `direction`, `time_ns`, then the columns of a [`Bin`]. The HTML report
//! has the columns of a [`Bin`], too. Names end in units; a value that a bin does not have is empty.

use longhaul_flow::bin::Bin;
use std::io;

/// One bin of one direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    /// The flow's number in `result.json`.
    pub(crate) flow: u64,
    /// True for data from the client, false for data from the server.
    pub(crate) upload: bool,
    /// Start of the bin, ns since 1970.
    pub(crate) from_ns: u64,
    /// The figures of the bin.
    pub(crate) bin: Bin,
}

/// Encoder of rows into a file of one format.
pub(super) trait Encoder: Send {
    /// Appends rows.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write(&mut self, rows: &[Row]) -> io::Result<()>;

    /// Writes the remaining rows and the end of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// One column: a quantity of a bin.
pub(crate) struct Column {
    /// Name, as in the header line of the files and in the page's data.
    pub(crate) name: &'static str,
    /// Returns the value, if the bin has one.
    pub(crate) value: fn(&Bin) -> Option<i64>,
    /// True if some bins have no value.
    #[cfg_attr(
        not(feature = "parquet"),
        allow(dead_code, reason = "CSV needs no types")
    )]
    pub(crate) optional: bool,
}

const fn required_column(name: &'static str, value: fn(&Bin) -> Option<i64>) -> Column {
    Column {
        name,
        value,
        optional: false,
    }
}

const fn optional_column(name: &'static str, value: fn(&Bin) -> Option<i64>) -> Column {
    Column {
        name,
        value,
        optional: true,
    }
}

/// Columns of a bin, in the order of the files. A round trip of 0 means no sample.
pub(crate) const COLUMNS: [Column; 27] = [
    required_column("data_bytes", |bin| clamped_i64(bin.data_bytes)),
    required_column("data_max_bytes", |bin| clamped_i64(bin.data_bytes_max)),
    required_column("data_segments", |bin| clamped_i64(bin.data_segments)),
    required_column("retransmitted_bytes", |bin| {
        clamped_i64(bin.retransmitted_bytes)
    }),
    required_column("retransmissions", |bin| clamped_i64(bin.retransmissions)),
    required_column("timeouts", |bin| clamped_i64(bin.timeouts)),
    required_column("window_full", |bin| clamped_i64(bin.window_full)),
    required_column("short_segments", |bin| clamped_i64(bin.short_segments)),
    required_column("acked_bytes", |bin| clamped_i64(bin.acked_bytes)),
    required_column("acked_max_bytes", |bin| clamped_i64(bin.acked_bytes_max)),
    required_column("acks", |bin| clamped_i64(bin.acks)),
    required_column("duplicate_acks", |bin| clamped_i64(bin.duplicate_acks)),
    required_column("sacks", |bin| clamped_i64(bin.sacks)),
    required_column("advancing_acks", |bin| clamped_i64(bin.advancing_acks)),
    required_column("ack_diff_max_bytes", |bin| clamped_i64(bin.ack_diff_max)),
    optional_column("rtt_min_ns", |bin| nonzero(bin.rtt_min_ns)),
    optional_column("rtt_max_ns", |bin| nonzero(bin.rtt_max_ns)),
    required_column("rtt_sum_ns", |bin| clamped_i64(bin.rtt_sum_ns)),
    required_column("rtt_samples", |bin| clamped_i64(bin.rtt_samples)),
    optional_column("unacked_age_min_us", |bin| {
        nonzero(bin.unacked_age_min_us.into())
    }),
    optional_column("ack_path_delay_ns", |bin| bin.ack_path_delay_ns),
    required_column("in_flight_max_bytes", |bin| clamped_i64(bin.in_flight_max)),
    optional_column("window_min_bytes", |bin| {
        bin.window_min.and_then(clamped_i64)
    }),
    required_column("queue_max_bytes", |bin| clamped_i64(bin.queue_max)),
    required_column("drops", |bin| clamped_i64(bin.drops)),
    required_column("ce_segments", |bin| clamped_i64(bin.ce_segments)),
    required_column("reported_marks", |bin| clamped_i64(bin.reported_marks)),
];

/// Converts to a signed integer. A value above 2⁶³ − 1 becomes 2⁶³ − 1.
fn clamped_i64(value: impl Into<u64>) -> Option<i64> {
    Some(i64::try_from(value.into()).unwrap_or(i64::MAX))
}

fn nonzero(rtt_ns: u64) -> Option<i64> {
    clamped_i64(rtt_ns).filter(|rtt| *rtt > 0)
}

/// Returns the direction's name: `upload` is data from the client, `download` data from the server.
pub(crate) const fn direction(upload: bool) -> &'static str {
    if upload { "upload" } else { "download" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets one field of a bin after the other: exactly one column changes, so none is left out or duplicated.
    #[test]
    fn maps_each_bin_field_to_one_column() {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(Bin::default()) else {
            panic!("a bin is an object");
        };
        for (index, field) in fields.keys().enumerate() {
            let mut changed = fields.clone();
            changed[field] = (1 + index).into();
            let bin: Bin = serde_json::from_value(changed.into()).unwrap();
            let values: Vec<i64> = COLUMNS.iter().filter_map(|c| (c.value)(&bin)).collect();
            let set: Vec<i64> = values.into_iter().filter(|value| *value > 0).collect();
            assert_eq!(set, [1 + index as i64], "{field}");
        }
        assert_eq!(fields.len(), COLUMNS.len());
    }
}
