// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bins of several widths at once, for both directions of a flow.
//!
//! What happens is counted once, in a bin that closes when any of the widths does; only then is it
//! merged into those. Time that runs backwards, as it does a little in captures of several queues, stays
//! in the bin that is open.

use crate::memory_budget::MemoryBudget;
use crate::time_series::{TimeSeries, bin::Bin};
use crate::{Settings, Sink};

/// Upload and download, in this order.
pub(super) type BinPair = [Bin; 2];

/// All bins of a flow.
#[derive(Debug)]
pub(super) struct Bins {
    /// When the first came into `now`.
    opened_ns: u64,
    /// The last nanosecond of `now`.
    until_ns: u64,
    current: BinPair,
    open_bins: Box<[OpenBin]>,
    time_series: [TimeSeries; 2],
}

/// The open bin of one width.
#[derive(Debug, Clone, Copy)]
struct OpenBin {
    width_ns: u64,
    from_ns: u64,
    bins: BinPair,
    /// Whether anything is in `bins`.
    used: [bool; 2],
}

/// Where bins go.
struct BinOrigin {
    index: usize,
    flow: u64,
}

impl Bins {
    /// Bins of a flow that begins at `at_ns`.
    pub(super) fn new(at_ns: u64, settings: &Settings) -> Self {
        let series = TimeSeries::new(at_ns, settings.time_series_width_ns);
        let mut bins = Self {
            opened_ns: at_ns,
            until_ns: 0,
            current: BinPair::default(),
            open_bins: (settings.bin_widths_ns.iter())
                .map(|&width_ns| OpenBin::at(at_ns, width_ns.max(1)))
                .collect(),
            time_series: [series.clone(), series],
        };
        bins.open(at_ns);
        bins
    }

    /// Whether `at_ns` is beyond the open bin.
    #[inline]
    pub(super) fn is_over(&self, at_ns: u64) -> bool {
        at_ns > self.until_ns
    }

    /// The open bin.
    #[inline]
    pub(super) fn current(&mut self) -> &mut BinPair {
        &mut self.current
    }

    /// Closes the open bin, and those of every width that are over at `at_ns`. `packets` is how many the
    /// flow has had.
    pub(super) fn close(
        &mut self,
        at_ns: u64,
        flow: u64,
        packets: u64,
        budget: &mut MemoryBudget,
        sink: &mut impl Sink,
    ) {
        self.flush_to_time_series(packets, budget);
        for (index, open_bin) in self.open_bins.iter_mut().enumerate() {
            let origin = BinOrigin { index, flow };
            if at_ns > open_bin.until_ns() {
                open_bin.emit(&self.current, &origin, sink);
                open_bin.from_ns = at_ns - at_ns % open_bin.width_ns;
            } else {
                open_bin.merge(&self.current);
            }
        }
        self.current = BinPair::default();
        self.open(at_ns);
    }

    /// The flow is over.
    pub(super) fn finish(
        &mut self,
        flow: u64,
        packets: u64,
        budget: &mut MemoryBudget,
        sink: &mut impl Sink,
    ) {
        self.flush_to_time_series(packets, budget);
        for (index, open_bin) in self.open_bins.iter_mut().enumerate() {
            open_bin.emit(&self.current, &BinOrigin { index, flow }, sink);
        }
    }

    /// What courses there were.
    pub(super) fn into_time_series(self) -> [TimeSeries; 2] {
        self.time_series
    }

    /// Brings what was counted to the courses.
    fn flush_to_time_series(&mut self, packets: u64, budget: &mut MemoryBudget) {
        self.current = self.current.map(Bin::finest);
        for (series, now) in self.time_series.iter_mut().zip(&self.current) {
            if !now.is_empty() {
                let most = budget.settings.time_series_bins(packets);
                let wanted = series.len_with(self.opened_ns, most);
                let most = budget.reserve_bins(&mut series.bins, wanted, most);
                series.add(self.opened_ns, now, most);
            }
        }
    }

    /// Memory of the open bins.
    pub(super) fn open_bins_bytes(&self) -> usize {
        size_of_val(&*self.open_bins)
    }

    /// Memory of the courses.
    pub(super) fn table_bytes(&self) -> usize {
        let bins: usize = self
            .time_series
            .iter()
            .map(|series| series.bins.capacity())
            .sum();
        bins * size_of::<Bin>()
    }

    fn open(&mut self, at_ns: u64) {
        let series = &self.time_series[0];
        let series_until = bin_end_ns(
            at_ns,
            series.from_ns,
            series.width_ns.min(self.time_series[1].width_ns),
        );
        self.opened_ns = at_ns;
        self.until_ns = (self.open_bins.iter().map(OpenBin::until_ns)).fold(series_until, u64::min);
    }
}

impl OpenBin {
    fn at(at_ns: u64, width_ns: u64) -> Self {
        Self {
            width_ns,
            from_ns: at_ns - at_ns % width_ns,
            bins: BinPair::default(),
            used: [false; 2],
        }
    }

    fn until_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.width_ns - 1)
    }

    fn merge(&mut self, now: &BinPair) {
        for (direction, now) in now.iter().enumerate() {
            if !now.is_empty() {
                self.bins[direction].merge(now);
                self.used[direction] = true;
            }
        }
    }

    /// Says what was in it, `now` included, and is empty then.
    fn emit(&mut self, now: &BinPair, origin: &BinOrigin, sink: &mut impl Sink) {
        for (direction, now) in now.iter().enumerate() {
            let is_upload = direction == 0;
            if self.used[direction] {
                let mut bin = std::mem::take(&mut self.bins[direction]);
                bin.merge(now);
                sink.bin(origin.flow, is_upload, origin.index, self.from_ns, &bin);
            } else if !now.is_empty() {
                sink.bin(origin.flow, is_upload, origin.index, self.from_ns, now);
            }
        }
        self.used = [false; 2];
    }
}

/// The last nanosecond of the bin that `at_ns` is in.
fn bin_end_ns(at_ns: u64, from_ns: u64, width_ns: u64) -> u64 {
    let into = at_ns.saturating_sub(from_ns) % width_ns;
    at_ns.saturating_add(width_ns - 1 - into)
}
