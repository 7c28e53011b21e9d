// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput of the last five minutes, kept for readers that connect later.

use jiff::Timestamp;
use longhaul_admin::record::{Point, Throughput};
use longhaul_admin::relay_record::Counts;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::VecDeque, time::Duration};

pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Number of points: five minutes, 5 KiB.
const POINTS_MAX: usize = 300;

/// The last points, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Point>>);

impl History {
    pub(crate) fn read(&self) -> Throughput {
        Throughput {
            time: Timestamp::now(),
            interval_s: INTERVAL.as_secs_f64(),
            points: self.points().iter().copied().collect(),
        }
    }

    pub(crate) fn add(&self, point: Point) {
        let mut points = self.points();
        if points.len() == POINTS_MAX {
            points.pop_front();
        }
        points.push_back(point);
    }

    fn points(&self) -> MutexGuard<'_, VecDeque<Point>> {
        self.0.lock()
    }
}

pub(crate) fn point(before: &Counts, now: &Counts, elapsed: Duration) -> Point {
    let per_s = |before: u64, now: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
    Point {
        bytes_up_per_s: per_s(before.bytes_up, now.bytes_up),
        bytes_down_per_s: per_s(before.bytes_down, now.bytes_down),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_oldest_point() {
        let history = History::default();
        let counts = |bytes_up| Counts {
            bytes_up,
            ..Counts::default()
        };
        for n in 0..=POINTS_MAX as u64 {
            let half = Duration::from_millis(500);
            history.add(point(&counts(100), &counts(100 + n), half));
        }
        let points = history.read().points;
        assert_eq!(points.len(), POINTS_MAX);
        assert_eq!(points[0].bytes_up_per_s, 2.0);
        assert_eq!(points[POINTS_MAX - 1].bytes_up_per_s, 600.0);
    }
}
