// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bins of one direction without gaps, also those in which nothing happened.

use longhaul_tap::Row;
use std::ops::Range;

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
    pub(super) width_ns: u64,
    pub(super) bins: Vec<FineBin>,
}

impl FineBins {
    /// Bins of the direction `(flow, upload)`; `None` without data, or if it lasts too long.
    pub(super) fn of(rows: &[Row], of: (u64, bool), width_ns: u64) -> Option<Self> {
        let own = || rows.iter().filter(|row| (row.flow, row.upload) == of);
        let from_ns = own().find(|row| row.bin.data_bytes > 0)?.from_ns;
        let to_ns = own().map(|row| row.from_ns).max()?;
        let last = usize::try_from((to_ns - from_ns) / width_ns).ok()?;
        let mut bins = vec![FineBin::default(); last.checked_add(1).filter(|n| *n <= BINS_MAX)?];
        for row in own().filter(|row| row.from_ns >= from_ns) {
            let bin = &mut bins[((row.from_ns - from_ns) / width_ns) as usize];
            bin.data_bytes += row.bin.data_bytes;
            bin.acked_bytes += row.bin.acked_bytes;
            bin.acks = bin.acks.saturating_add(row.bin.acks);
        }
        Some(Self {
            from_ns,
            width_ns,
            bins,
        })
    }

    /// Bins of a span of time, ns since 1970.
    pub(super) fn between(&self, time_ns: Range<u64>) -> &[FineBin] {
        let index = |at_ns: u64| {
            let bins = at_ns.saturating_sub(self.from_ns) / self.width_ns;
            (bins as usize).min(self.bins.len())
        };
        let from = index(time_ns.start);
        &self.bins[from..index(time_ns.end).max(from)]
    }

    /// Width of a bin in seconds.
    pub(super) fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_flow::bin::Bin;

    fn row(flow: u64, ms: u64, data_bytes: u64) -> Row {
        let bin = Bin {
            data_bytes,
            acks: 1,
            ..Bin::default()
        };
        Row {
            flow,
            upload: true,
            from_ns: ms * 1_000_000,
            bin,
        }
    }

    #[test]
    fn bins_begin_with_data_and_include_empty_ones() {
        let rows = [row(1, 4, 0), row(1, 6, 10), row(2, 7, 99), row(1, 8, 20)];
        let fine = FineBins::of(&rows, (1, true), 1_000_000).unwrap();
        let data: Vec<u64> = fine.bins.iter().map(|bin| bin.data_bytes).collect();
        assert_eq!((fine.from_ns, data), (6_000_000, vec![10, 0, 20]));
        assert_eq!(FineBins::of(&rows, (1, false), 1_000_000), None);
    }

    #[test]
    fn span_is_clamped_to_the_bins() {
        let rows = [row(1, 6, 10), row(1, 9, 20)];
        let fine = FineBins::of(&rows, (1, true), 1_000_000).unwrap();
        assert_eq!(fine.between(0..8_000_000).len(), 2);
        assert_eq!(fine.between(8_000_000..u64::MAX).len(), 2);
        assert_eq!(fine.between(10_000_000..11_000_000).len(), 0);
    }

    #[test]
    fn too_long_direction_has_no_bins() {
        let rows = [row(1, 0, 10), row(1, BINS_MAX as u64, 20)];
        assert_eq!(FineBins::of(&rows, (1, true), 1_000_000), None);
    }
}
