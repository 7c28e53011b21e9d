// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timer of a thread's time by stage. A stage change reads two clocks, which takes some 0.5 µs: once or twice
//! a block.

use longhaul_scheduling::{Stage, StageTimes};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// Interval between readings of a thread's run-queue wait, a system call each.
const CROWDED_EVERY: Duration = Duration::from_millis(100);

/// Times of one thread so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    pub(super) stages: StageTimes,
    pub(super) crowded_us: u64,
    stage: Stage,
    since: Instant,
}

impl Course {
    /// Returns the times with the current stage counted as waiting: only the thread itself can read its CPU
    /// clock.
    pub(super) fn now(&self) -> Self {
        let mut now = *self;
        now.stages[self.stage].waited_us += micros(self.since.elapsed());
        now
    }

    pub(super) fn is_in(&self, stage: Stage) -> bool {
        self.stage == stage
    }
}

/// Timer owned by the measured thread.
#[derive(Debug)]
pub(super) struct Stopwatch {
    course: Arc<Mutex<Course>>,
    /// CPU time of the thread at the start of the stage.
    ran: Duration,
    crowded: Crowded,
}

/// Times of a thread as other threads see them.
pub(super) type Seen = Weak<Mutex<Course>>;

impl Stopwatch {
    /// Starts a timer for the calling thread.
    pub(super) fn start(stage: Stage) -> Self {
        let course = Course {
            stages: StageTimes::default(),
            crowded_us: 0,
            stage,
            since: Instant::now(),
        };
        Self {
            course: Arc::new(Mutex::new(course)),
            ran: thread_time(),
            crowded: Crowded::new(),
        }
    }

    /// Switches to another stage.
    pub(super) fn begin(&mut self, stage: Stage) {
        let (now, ran) = (Instant::now(), thread_time());
        let crowded = self.crowded.look(now);
        let mut course = self.course.lock();
        let ran_us = micros(ran.saturating_sub(self.ran));
        let took_us = micros(now.duration_since(course.since));
        let before = course.stage;
        course.stages[before].ran_us += ran_us;
        course.stages[before].waited_us += took_us.saturating_sub(ran_us);
        course.crowded_us += crowded;
        (course.stage, course.since) = (stage, now);
        self.ran = ran;
    }

    pub(super) fn seen(&self) -> Seen {
        Arc::downgrade(&self.course)
    }

    /// Ends the measurement; returns all times.
    pub(super) fn stop(&mut self) -> Course {
        self.begin(Stage::Waiting);
        *self.course.lock()
    }
}

/// Run-queue wait, from `/proc/thread-self/schedstat`: time on a CPU and time waiting for one, both in
/// nanoseconds (Linux Documentation/scheduler/sched-stats.rst). Zero if the kernel lacks the file.
#[derive(Debug)]
struct Crowded {
    file: Option<File>,
    waited_ns: u64,
    looked: Instant,
}

impl Crowded {
    fn new() -> Self {
        let file = File::open("/proc/thread-self/schedstat").ok();
        Self {
            waited_ns: file.as_ref().and_then(waited_ns).unwrap_or_default(),
            file,
            looked: Instant::now(),
        }
    }

    /// Returns the wait since the last reading, in microseconds; 0 if that was a moment ago.
    fn look(&mut self, now: Instant) -> u64 {
        if now.duration_since(self.looked) < CROWDED_EVERY {
            return 0;
        }
        self.looked = now;
        let Some(waited) = self.file.as_ref().and_then(waited_ns) else {
            return 0;
        };
        let more = waited.saturating_sub(self.waited_ns);
        self.waited_ns = waited;
        more / 1000
    }
}

fn waited_ns(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = Duration::from_secs(time.tv_sec.try_into().unwrap_or_default());
    seconds + Duration::from_nanos(time.tv_nsec.try_into().unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleeping thread waits; a thread that loops until its CPU clock moves runs.
    #[test]
    fn running_and_waiting_are_told_apart_by_stage() {
        let mut watch = Stopwatch::start(Stage::Reading);
        std::thread::sleep(Duration::from_millis(20));
        watch.begin(Stage::Hashing);
        let began = thread_time();
        while thread_time() - began < Duration::from_millis(10) {}
        let stages = watch.stop().stages;
        assert!(stages[Stage::Reading].waited_us >= 15_000, "{stages:?}");
        assert!(stages[Stage::Hashing].ran_us >= 10_000, "{stages:?}");
        assert_eq!(stages[Stage::Sending].ran_us, 0);
    }

    #[test]
    fn what_is_under_way_counts_as_waited() {
        let watch = Stopwatch::start(Stage::Sending);
        std::thread::sleep(Duration::from_millis(2));
        let course = watch.course.lock().now();
        assert!(course.is_in(Stage::Sending));
        assert!(course.stages[Stage::Sending].waited_us >= 2_000);
        let seen = watch.seen();
        assert!(seen.upgrade().is_some());
        drop(watch);
        assert!(seen.upgrade().is_none());
    }
}
