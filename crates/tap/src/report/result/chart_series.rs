// SPDX-License-Identifier: MIT OR Apache-2.0
//! `time_series.jsonl`: the data of the charts, one direction a line. The page embeds the same data.

use super::packet_windows::PackedWindow;
use crate::series::column::{COLUMNS, Column, direction};
use longhaul_flow::{bin::Bin, time_series::TimeSeries};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time series of a direction as columns: bins of equal width, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChartSeries {
    /// The flow's number in `result.json`.
    pub(crate) flow: u64,
    /// `upload` or `download`.
    pub(crate) direction: String,
    /// Start of the first bin, ns since 1970.
    pub(crate) from_ns: u64,
    /// Width of a bin, ns.
    pub(crate) width_ns: u64,
    /// Number of bins.
    pub(crate) bins: usize,
    /// Width of the finest bins, ns; the columns `data_max_bytes` and `acked_max_bytes` refer to these.
    pub(crate) finest_ns: u64,
    /// Columns, named as in the series files; a column that is all zero is left out.
    pub(crate) columns: BTreeMap<String, Vec<Option<i64>>>,
    /// Packet windows with single segments, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) packet_windows: Vec<PackedWindow>,
}

impl ChartSeries {
    /// Creates the columns of a direction with at most `bins_max` bins (1 or more); neighbouring bins are merged.
    pub(crate) fn new(
        flow: u64,
        upload: bool,
        time_series: &TimeSeries,
        finest_ns: u64,
        bins_max: usize,
    ) -> Self {
        let merged_count = time_series
            .bins
            .len()
            .div_ceil(bins_max)
            .max(1)
            .next_power_of_two();
        let bins: Vec<Bin> = time_series
            .bins
            .chunks(merged_count)
            .map(merge_bins)
            .collect();
        Self {
            flow,
            direction: direction(upload).to_owned(),
            from_ns: time_series.from_ns,
            width_ns: time_series.width_ns * merged_count as u64,
            bins: bins.len(),
            finest_ns: finest_ns.min(time_series.width_ns),
            columns: COLUMNS
                .iter()
                .filter_map(|column| nonzero_column(column, &bins))
                .collect(),
            packet_windows: Vec::new(),
        }
    }

    /// Returns the values of a column; empty if it is all zero.
    pub(crate) fn column(&self, name: &str) -> &[Option<i64>] {
        self.columns.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the greatest value of a column, or 0.
    pub(crate) fn max(&self, name: &str) -> i64 {
        self.column(name)
            .iter()
            .flatten()
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// Returns whether any bin has a value other than zero in this column.
    pub(crate) fn has_values(&self, name: &str) -> bool {
        !self.column(name).is_empty()
    }
}

fn merge_bins(bins: &[Bin]) -> Bin {
    let mut sum = Bin::default();
    for bin in bins {
        sum.merge(bin);
    }
    sum
}

fn nonzero_column(column: &Column, bins: &[Bin]) -> Option<(String, Vec<Option<i64>>)> {
    let values: Vec<Option<i64>> = bins.iter().map(column.value).collect();
    let is_nonzero = values.iter().flatten().any(|value| *value != 0);
    is_nonzero.then(|| (column.name.to_owned(), values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_series(bins: usize) -> TimeSeries {
        let bin = |n: usize| Bin {
            data_bytes: n as u64,
            in_flight_max: n as u64,
            window_min: n.is_multiple_of(2).then_some(100),
            ..Bin::default()
        };
        TimeSeries {
            width_ns: 1_000_000,
            from_ns: 5_000_000,
            bins: (0..bins).map(bin).collect(),
        }
    }

    #[test]
    fn omits_columns_of_zeros() {
        let series = ChartSeries::new(3, true, &time_series(4), 1_000, 4096);
        let names: Vec<&str> = series.columns.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["data_bytes", "in_flight_max_bytes", "window_min_bytes"]
        );
        assert_eq!(
            series.column("window_min_bytes"),
            [Some(100), None, Some(100), None]
        );
        assert_eq!((series.bins, series.width_ns), (4, 1_000_000));
    }

    #[test]
    fn merges_bins_above_the_limit() {
        let series = ChartSeries::new(3, true, &time_series(9), 1_000, 4);
        assert_eq!((series.bins, series.width_ns), (3, 4_000_000));
        assert_eq!(series.column("data_bytes"), [Some(6), Some(22), Some(8)]);
        assert_eq!(
            series.column("in_flight_max_bytes"),
            [Some(3), Some(7), Some(8)]
        );
    }

    #[test]
    fn round_trips_as_json() {
        let series = ChartSeries::new(3, false, &time_series(4), 1_000, 4096);
        let line = serde_json::to_string(&series).unwrap();
        assert_eq!(serde_json::from_str::<ChartSeries>(&line).unwrap(), series);
    }
}
