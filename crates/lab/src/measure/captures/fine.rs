// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bins of one direction without gaps, also those in which nothing happened.

use anyhow::{Context, Result};
use std::{io::BufRead, ops::Range};

/// Width of the bins: the default of `longhaul tap analyze`.
pub(super) const WIDTH_NS: u64 = 1_000_000;
/// The same in seconds.
pub(super) const WIDTH_S: f64 = 1e-3;
/// Most bins of one direction: 17 minutes of milliseconds, 24 MB.
const BINS_MAX: usize = 1 << 20;

/// Counters of one bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FineBin {
    pub(super) data_bytes: u64,
    pub(super) acked_bytes: u64,
    pub(super) acks: u32,
}

/// Bins of equal width from the first data on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FineBins {
    /// Start of the first bin, ns since 1970.
    pub(super) from_ns: u64,
    pub(super) bins: Vec<FineBin>,
}

impl FineBins {
    /// Reads the bins of a flow's direction from a series that `longhaul tap analyze --csv` wrote. `None` without data,
    /// or if it lasts too long.
    ///
    /// # Errors
    /// The series cannot be read, or has other columns.
    pub(super) fn read(series: impl BufRead, flow: u64, upload: bool) -> Result<Option<Self>> {
        let mut lines = series.lines();
        let names = lines.next().transpose()?.unwrap_or_default();
        let mut fine = Self::default();
        let own = format!("{flow},{},", if upload { "upload" } else { "download" });
        for line in lines {
            let line = line?;
            if !line.starts_with(&own) {
                continue;
            }
            let number = |name: &str| {
                let mut columns = names.split(',').zip(line.split(','));
                let text = columns.find(|(column, _)| *column == name);
                text.and_then(|(_, text)| text.parse::<u64>().ok())
                    .with_context(|| format!("{line:?} has no {name}"))
            };
            let (from_ns, data_bytes) = (number("time_ns")?, number("data_bytes")?);
            if fine.bins.is_empty() && data_bytes == 0 {
                continue;
            } else if fine.bins.is_empty() {
                fine.from_ns = from_ns;
            }
            let index = ((from_ns - fine.from_ns) / WIDTH_NS) as usize;
            if index >= BINS_MAX {
                return Ok(None);
            }
            let len = fine.bins.len().max(index + 1);
            fine.bins.resize(len, FineBin::default());
            let bin = &mut fine.bins[index];
            bin.data_bytes += data_bytes;
            bin.acked_bytes += number("acked_bytes")?;
            bin.acks = bin.acks.saturating_add(number("acks")?.try_into()?);
        }
        Ok((!fine.bins.is_empty()).then_some(fine))
    }

    /// Bins of a span of time, ns since 1970.
    pub(super) fn between(&self, time_ns: Range<u64>) -> &[FineBin] {
        let index = |at_ns: u64| {
            let bins = at_ns.saturating_sub(self.from_ns) / WIDTH_NS;
            (bins as usize).min(self.bins.len())
        };
        let from = index(time_ns.start);
        &self.bins[from..index(time_ns.end).max(from)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins of the direction from the client of flow 1.
    fn fine(rows: &[&str]) -> Option<FineBins> {
        let header = "flow,direction,time_ns,data_bytes,acks,acked_bytes";
        let text = [&[header], rows].concat().join("\n");
        FineBins::read(text.as_bytes(), 1, true).unwrap()
    }

    #[test]
    fn bins_begin_with_data_and_include_empty_ones() {
        assert_eq!(fine(&["1,upload,4000000,0,1,7"]), None);
        let fine = fine(&[
            "1,upload,4000000,0,1,7",
            "1,upload,6000000,10,1,7",
            "2,upload,7000000,99,1,7",
            "1,download,7000000,99,1,7",
            "1,upload,8000000,20,3,5",
        ]);
        let fine = fine.unwrap();
        let data: Vec<u64> = fine.bins.iter().map(|bin| bin.data_bytes).collect();
        assert_eq!((fine.from_ns, data), (6_000_000, vec![10, 0, 20]));
        assert_eq!((fine.bins[2].acks, fine.bins[2].acked_bytes), (3, 5));
    }

    #[test]
    fn series_with_other_columns_is_refused() {
        let series = &b"flow,direction,at\n1,upload,2\n"[..];
        assert!(FineBins::read(series, 1, true).is_err());
    }

    #[test]
    fn span_is_clamped_to_the_bins() {
        let fine = fine(&["1,upload,6000000,10,1,7", "1,upload,9000000,20,1,7"]).unwrap();
        assert_eq!(fine.between(0..8_000_000).len(), 2);
        assert_eq!(fine.between(8_000_000..u64::MAX).len(), 2);
        assert_eq!(fine.between(10_000_000..11_000_000).len(), 0);
    }

    #[test]
    fn too_long_direction_has_no_bins() {
        let last = format!("1,upload,{},20,1,7", BINS_MAX * 1_000_000);
        assert_eq!(fine(&["1,upload,0,10,1,7", &last]), None);
    }
}
