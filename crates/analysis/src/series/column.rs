// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of a series, and its columns: `flow`, `direction`, `time_ns`, and those of a [`Bin`], which the report's
//! page has too. Names end in units; a value that a bin does not have is empty.

use longhaul_flow::series::Bin;
use std::io;

/// One bin of one direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The flow's number in `result.json`.
    pub flow: u64,
    /// Data from the client.
    pub upload: bool,
    /// Where the bin begins, ns since 1970.
    pub from_ns: u64,
    /// The figures of the bin.
    pub bin: Bin,
}

/// What turns rows into a file of one format.
pub(super) trait Encoder: Send {
    /// Some rows more.
    fn write(&mut self, rows: &[Row]) -> io::Result<()>;

    /// What is left to write when there are no more.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// One quantity of a bin.
pub(crate) struct Column {
    /// As in the files' headings and in the page's data.
    pub(crate) name: &'static str,
    /// Its value, if the bin has one.
    pub(crate) value: fn(&Bin) -> Option<i64>,
    /// Whether there are bins without.
    pub(crate) optional: bool,
}

const fn always(name: &'static str, value: fn(&Bin) -> Option<i64>) -> Column {
    Column {
        name,
        value,
        optional: false,
    }
}

const fn sometimes(name: &'static str, value: fn(&Bin) -> Option<i64>) -> Column {
    Column {
        name,
        value,
        optional: true,
    }
}

/// What a bin has, in the order of the files. A round trip of 0 means no sample.
pub(crate) const COLUMNS: [Column; 25] = [
    always("data_bytes", |bin| signed(bin.data_bytes)),
    always("data_max_bytes", |bin| signed(bin.data_bytes_max)),
    always("data_segments", |bin| signed(bin.data_segments)),
    always("retransmitted_bytes", |bin| signed(bin.retransmitted_bytes)),
    always("retransmissions", |bin| signed(bin.retransmissions)),
    always("timeouts", |bin| signed(bin.timeouts)),
    always("window_full", |bin| signed(bin.window_full)),
    always("short_segments", |bin| signed(bin.short_segments)),
    always("acked_bytes", |bin| signed(bin.acked_bytes)),
    always("acked_max_bytes", |bin| signed(bin.acked_bytes_max)),
    always("acks", |bin| signed(bin.acks)),
    always("duplicate_acks", |bin| signed(bin.duplicate_acks)),
    always("sacks", |bin| signed(bin.sacks)),
    always("moving_acks", |bin| signed(bin.moving_acks)),
    always("ack_diff_max_bytes", |bin| signed(bin.ack_diff_max)),
    sometimes("rtt_min_ns", |bin| sample(bin.rtt_min_ns)),
    sometimes("rtt_max_ns", |bin| sample(bin.rtt_max_ns)),
    always("rtt_sum_ns", |bin| signed(bin.rtt_sum_ns)),
    always("rtt_samples", |bin| signed(bin.rtt_samples)),
    sometimes("unacked_age_min_us", |bin| {
        sample(bin.unacked_age_min_us.into())
    }),
    sometimes("ack_way_ns", |bin| bin.ack_way_ns),
    always("in_flight_max_bytes", |bin| signed(bin.in_flight_max)),
    sometimes("window_min_bytes", |bin| bin.window_min.and_then(signed)),
    always("queue_max_bytes", |bin| signed(bin.queue_max)),
    always("drops", |bin| signed(bin.drops)),
];

/// Beyond 2⁶³ it makes no difference how much.
fn signed(value: impl Into<u64>) -> Option<i64> {
    Some(i64::try_from(value.into()).unwrap_or(i64::MAX))
}

fn sample(rtt_ns: u64) -> Option<i64> {
    signed(rtt_ns).filter(|rtt| *rtt > 0)
}

/// `upload` is data from the client, `download` data from the server.
pub(crate) const fn direction(upload: bool) -> &'static str {
    if upload { "upload" } else { "download" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of all columns changes with each field of a bin: none is left out or taken twice.
    #[test]
    fn every_field_of_a_bin_is_one_column() {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(Bin::default()) else {
            panic!("a bin is an object");
        };
        for (place, field) in fields.keys().enumerate() {
            let mut changed = fields.clone();
            changed[field] = (1 + place).into();
            let bin: Bin = serde_json::from_value(changed.into()).unwrap();
            let values: Vec<i64> = COLUMNS.iter().filter_map(|c| (c.value)(&bin)).collect();
            let set: Vec<i64> = values.into_iter().filter(|value| *value > 0).collect();
            assert_eq!(set, [1 + place as i64], "{field}");
        }
        assert_eq!(fields.len(), COLUMNS.len());
    }
}
