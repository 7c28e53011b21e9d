// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns of a series: `flow`, `direction`, `time_ns`, and those of a [`Bin`], which the report's
//! page has too. Names end in units; a value that a bin does not have is empty.

use model::tap::series::Bin;

/// One quantity of a bin.
pub(crate) struct Column {
    /// As in the files' headings and in the page's data.
    pub(crate) name: &'static str,
    /// Its value, if the bin has one.
    pub(crate) value: fn(&Bin) -> Option<u64>,
    /// Whether there are bins without.
    pub(crate) optional: bool,
}

const fn always(name: &'static str, value: fn(&Bin) -> Option<u64>) -> Column {
    Column {
        name,
        value,
        optional: false,
    }
}

const fn sometimes(name: &'static str, value: fn(&Bin) -> Option<u64>) -> Column {
    Column {
        name,
        value,
        optional: true,
    }
}

/// What a bin has, in the order of the files. A round trip of 0 means no sample.
pub(crate) const COLUMNS: [Column; 21] = [
    always("data_bytes", |bin| Some(bin.data_bytes)),
    always("data_segments", |bin| Some(bin.data_segments.into())),
    always("retransmitted_bytes", |bin| Some(bin.retransmitted_bytes)),
    always("retransmissions", |bin| Some(bin.retransmissions.into())),
    always("timeouts", |bin| Some(bin.timeouts.into())),
    always("window_full", |bin| Some(bin.window_full.into())),
    always("short_segments", |bin| Some(bin.short_segments.into())),
    always("acked_bytes", |bin| Some(bin.acked_bytes)),
    always("acks", |bin| Some(bin.acks.into())),
    always("duplicate_acks", |bin| Some(bin.duplicate_acks.into())),
    always("sacks", |bin| Some(bin.sacks.into())),
    always("moving_acks", |bin| Some(bin.moving_acks.into())),
    always("ack_diff_max_bytes", |bin| Some(bin.ack_diff_max.into())),
    sometimes("rtt_min_ns", |bin| sample(bin.rtt_min_ns)),
    sometimes("rtt_max_ns", |bin| sample(bin.rtt_max_ns)),
    always("rtt_sum_ns", |bin| Some(bin.rtt_sum_ns)),
    always("rtt_samples", |bin| Some(bin.rtt_samples.into())),
    always("in_flight_max_bytes", |bin| Some(bin.in_flight_max)),
    sometimes("window_min_bytes", |bin| bin.window_min),
    always("queue_max_bytes", |bin| Some(bin.queue_max.into())),
    always("drops", |bin| Some(bin.drops.into())),
];

fn sample(rtt_ns: u64) -> Option<u64> {
    Some(rtt_ns).filter(|rtt| *rtt > 0)
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
            let values: Vec<u64> = COLUMNS.iter().filter_map(|c| (c.value)(&bin)).collect();
            let set: Vec<u64> = values.into_iter().filter(|value| *value > 0).collect();
            assert_eq!(set, [1 + place as u64], "{field}");
        }
        assert_eq!(fields.len(), COLUMNS.len());
    }
}
