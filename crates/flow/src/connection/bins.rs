// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bins of several widths at once, for both directions of a flow.
//!
//! Each event is counted once, in the current bin. When a bin of any width ends, the current bin is merged into the
//! open bins of all widths. In captures of several queues, time may step back a little; such events are counted in the
//! current bin.

use crate::memory_budget::MemoryBudget;
use crate::time_series::{TimeSeries, bin::Bin};
use crate::{Settings, Sink};

/// Upload and download, in this order.
pub(super) type BinPair = [Bin; 2];

/// All bins of a flow.
#[derive(Debug)]
pub(super) struct Bins {
    /// Time of the first event in `current`, ns.
    opened_ns: u64,
    /// Last nanosecond of `current`.
    until_ns: u64,
    current: BinPair,
    open_bins: Box<[OpenBin]>,
    time_series: [TimeSeries; 2],
}

/// Open bin of one width.
#[derive(Debug, Clone, Copy)]
struct OpenBin {
    width_ns: u64,
    from_ns: u64,
    bins: BinPair,
    /// Whether `bins` has any events.
    used: [bool; 2],
}

/// Flow, and index of the width, of a series of bins.
struct BinOrigin {
    index: usize,
    flow: u64,
}

impl Bins {
    /// Creates the bins of a flow that begins at `at_ns`.
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

    /// Returns whether `at_ns` is later than the end of the current bin.
    #[inline]
    pub(super) fn is_over(&self, at_ns: u64) -> bool {
        at_ns > self.until_ns
    }

    /// Returns the current bin.
    #[inline]
    pub(super) fn current(&mut self) -> &mut BinPair {
        &mut self.current
    }

    /// Closes the current bin, and the open bins that end before `at_ns`. `packets` is the number of the flow's packets
    /// so far.
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

    /// Emits the open bins at the end of the flow.
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

    /// Returns the time series, and leaves empty ones.
    pub(super) fn take_time_series(&mut self) -> [TimeSeries; 2] {
        self.time_series.each_mut().map(std::mem::take)
    }

    /// Adds the current bin to the time series.
    fn flush_to_time_series(&mut self, packets: u64, budget: &mut MemoryBudget) {
        self.current.iter_mut().for_each(Bin::set_finest_maxima);
        for (series, now) in self.time_series.iter_mut().zip(&self.current) {
            if !now.is_empty() {
                let most = budget.settings.time_series_bins(packets);
                let needed = series.len_with(self.opened_ns, most);
                let most = budget.reserve_bins(&mut series.bins, needed, most);
                series.add(self.opened_ns, now, most);
            }
        }
    }

    /// Returns the memory of the open bins, bytes.
    pub(super) fn open_bins_bytes(&self) -> usize {
        size_of_val(&*self.open_bins)
    }

    /// Returns the memory of the time series, bytes.
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

    /// Emits the bin merged with `now`, and empties it.
    fn emit(&mut self, now: &BinPair, origin: &BinOrigin, sink: &mut impl Sink) {
        for (direction, now) in now.iter().enumerate() {
            let is_upload = direction == 0;
            if self.used[direction] {
                let mut bin = std::mem::take(&mut self.bins[direction]);
                bin.merge(now);
                sink.receive_bin(origin.flow, is_upload, origin.index, self.from_ns, &bin);
            } else if !now.is_empty() {
                sink.receive_bin(origin.flow, is_upload, origin.index, self.from_ns, now);
            }
        }
        self.used = [false; 2];
    }
}

/// Returns the last nanosecond of the bin that contains `at_ns`.
fn bin_end_ns(at_ns: u64, from_ns: u64, width_ns: u64) -> u64 {
    let into = at_ns.saturating_sub(from_ns) % width_ns;
    at_ns.saturating_add(width_ns - 1 - into)
}
