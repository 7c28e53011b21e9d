// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bins of several widths at once, for both directions of a flow.
//!
//! What happens is counted once, in a bin that closes when any of the widths does; only then is it
//! merged into those. Time that runs backwards, as it does a little in captures of several queues, stays
//! in the bin that is open.

use crate::bounds::Bounds;
use crate::course::{Course, series::Bin};
use crate::{Settings, Sink};

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
    /// Whether anything is in `bins`.
    used: [bool; 2],
}

/// Where bins go.
struct Series {
    index: usize,
    flow: u64,
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
            let series = Series { index, flow };
            if at_ns > wide.until_ns() {
                wide.emit_with(&self.now, &series, sink);
                wide.from_ns = at_ns - at_ns % wide.width_ns;
            } else {
                wide.merge(&self.now);
            }
        }
        self.now = Both::default();
        self.open(at_ns);
    }

    /// The flow is over.
    pub(super) fn finish(
        &mut self,
        flow: u64,
        packets: u64,
        bounds: &mut Bounds,
        sink: &mut impl Sink,
    ) {
        self.settle(packets, bounds);
        for (index, wide) in self.wide.iter_mut().enumerate() {
            wide.emit_with(&self.now, &Series { index, flow }, sink);
        }
    }

    /// What courses there were.
    pub(super) fn into_courses(self) -> [Course; 2] {
        self.courses
    }

    /// Brings what was counted to the courses.
    fn settle(&mut self, packets: u64, bounds: &mut Bounds) {
        self.now = self.now.map(Bin::finest);
        for (course, now) in self.courses.iter_mut().zip(&self.now) {
            if !now.is_empty() {
                let most = bounds.settings.course_bins(packets);
                let wanted = course.length_with(self.opened_ns, most);
                let most = bounds.length_of(&mut course.bins, wanted, most);
                course.add(self.opened_ns, now, most);
            }
        }
    }

    /// Memory of the open bins.
    pub(super) fn wide_bytes(&self) -> usize {
        size_of_val(&*self.wide)
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
            used: [false; 2],
        }
    }

    fn until_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.width_ns - 1)
    }

    fn merge(&mut self, now: &Both) {
        for (way, now) in now.iter().enumerate() {
            if !now.is_empty() {
                self.bins[way].merge(now);
                self.used[way] = true;
            }
        }
    }

    /// Says what was in it, `now` included, and is empty then.
    fn emit_with(&mut self, now: &Both, series: &Series, sink: &mut impl Sink) {
        for (way, now) in now.iter().enumerate() {
            let is_upload = way == 0;
            if self.used[way] {
                let mut bin = std::mem::take(&mut self.bins[way]);
                bin.merge(now);
                sink.bin(series.flow, is_upload, series.index, self.from_ns, &bin);
            } else if !now.is_empty() {
                sink.bin(series.flow, is_upload, series.index, self.from_ns, now);
            }
        }
        self.used = [false; 2];
    }
}

/// The last nanosecond of the bin that `at_ns` is in.
fn last_of(at_ns: u64, from_ns: u64, width_ns: u64) -> u64 {
    let into = at_ns.saturating_sub(from_ns) % width_ns;
    at_ns.saturating_add(width_ns - 1 - into)
}
