// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bins of several widths at once, for both directions of a flow.
//!
//! What happens is counted once, in a bin that closes when any of the widths does; only then is it
//! merged into those. Time that runs backwards, as it does a little in captures of several queues, stays
//! in the bin that is open.

use super::course::Course;
use super::series::Bin;
use super::{Settings, Sink, bounds::Bounds};

/// Upload and download, in this order.
pub(super) type Both = [Bin; 2];

/// All bins of a flow.
#[derive(Debug)]
pub(super) struct Bins {
    /// When the first came into `now`.
    opened_ns: u64,
    /// The last nanosecond of `now`.
    until_ns: u64,
    now: Both,
    wide: Box<[Wide]>,
    courses: [Course; 2],
}

/// The open bin of one width.
#[derive(Debug, Clone, Copy)]
struct Wide {
    width_ns: u64,
    from_ns: u64,
    bins: Both,
}

impl Bins {
    /// Bins of a flow that begins at `at_ns`.
    pub(super) fn new(at_ns: u64, settings: &Settings) -> Self {
        let course = Course::new(at_ns, settings.course_width_ns);
        let mut bins = Self {
            opened_ns: at_ns,
            until_ns: 0,
            now: Both::default(),
            wide: (settings.bin_widths_ns.iter())
                .map(|&width_ns| Wide::at(at_ns, width_ns.max(1)))
                .collect(),
            courses: [course.clone(), course],
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
    pub(super) fn now(&mut self) -> &mut Both {
        &mut self.now
    }

    /// Closes the open bin, and those of every width that are over at `at_ns`. `packets` is how many the
    /// flow has had.
    pub(super) fn close(
        &mut self,
        at_ns: u64,
        flow: u64,
        packets: u64,
        bounds: &mut Bounds,
        sink: &mut impl Sink,
    ) {
        self.settle(packets, bounds);
        for (index, wide) in self.wide.iter_mut().enumerate() {
            if at_ns > wide.until_ns() {
                wide.emit(index, flow, sink);
                *wide = Wide::at(at_ns, wide.width_ns);
            }
        }
        self.open(at_ns);
    }

    /// The flow is over.
    pub(super) fn finish(
        mut self,
        flow: u64,
        packets: u64,
        bounds: &mut Bounds,
        sink: &mut impl Sink,
    ) -> [Course; 2] {
        self.settle(packets, bounds);
        for (index, wide) in self.wide.iter().enumerate() {
            wide.emit(index, flow, sink);
        }
        self.courses
    }

    /// Brings what was counted to where it belongs.
    fn settle(&mut self, packets: u64, bounds: &mut Bounds) {
        for (way, now) in self
            .now
            .iter()
            .enumerate()
            .filter(|(_, bin)| !bin.is_empty())
        {
            let now = now.finest();
            let course = &mut self.courses[way];
            let most = bounds.settings.course_bins(packets);
            let wanted = course.length_with(self.opened_ns, most);
            let most = bounds.length_of(&mut course.bins, wanted, most);
            course.add(self.opened_ns, &now, most);
            for wide in &mut self.wide {
                wide.bins[way].merge(&now);
            }
        }
        self.now = Both::default();
    }

    /// Memory of the courses.
    pub(super) fn table_bytes(&self) -> usize {
        let bins: usize = self
            .courses
            .iter()
            .map(|course| course.bins.capacity())
            .sum();
        bins * size_of::<Bin>()
    }

    fn open(&mut self, at_ns: u64) {
        let course = &self.courses[0];
        let course_until = last_of(
            at_ns,
            course.from_ns,
            course.width_ns.min(self.courses[1].width_ns),
        );
        self.opened_ns = at_ns;
        self.until_ns = (self.wide.iter().map(Wide::until_ns)).fold(course_until, u64::min);
    }
}

impl Wide {
    fn at(at_ns: u64, width_ns: u64) -> Self {
        Self {
            width_ns,
            from_ns: at_ns - at_ns % width_ns,
            bins: Both::default(),
        }
    }

    fn until_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.width_ns - 1)
    }

    fn emit(&self, width: usize, flow: u64, sink: &mut impl Sink) {
        for (bin, upload) in self.bins.iter().zip([true, false]) {
            if !bin.is_empty() {
                sink.bin(flow, upload, width, self.from_ns, bin);
            }
        }
    }
}

/// The last nanosecond of the bin that `at_ns` is in.
fn last_of(at_ns: u64, from_ns: u64, width_ns: u64) -> u64 {
    let into = at_ns.saturating_sub(from_ns) % width_ns;
    at_ns.saturating_add(width_ns - 1 - into)
}
