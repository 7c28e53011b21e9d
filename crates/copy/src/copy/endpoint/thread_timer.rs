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
const RUNQUEUE_WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Times of one thread so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadTimes {
    pub(super) stages: StageTimes,
    pub(super) runqueue_wait_us: u64,
    stage: Stage,
    stage_start: Instant,
}

impl ThreadTimes {
    /// Returns the times with the current stage counted as waiting: only the thread itself can read its CPU
    /// clock.
    pub(super) fn snapshot(&self) -> Self {
        let mut snapshot = *self;
        snapshot.stages[self.stage].waited_us += micros(self.stage_start.elapsed());
        snapshot
    }

    pub(super) fn is_in(&self, stage: Stage) -> bool {
        self.stage == stage
    }
}

/// Timer owned by the measured thread.
#[derive(Debug)]
pub(super) struct ThreadTimer {
    times: Arc<Mutex<ThreadTimes>>,
    /// CPU time of the thread at the start of the stage.
    cpu_time: Duration,
    runqueue_wait: RunqueueWait,
}

/// Times of a thread as other threads see them.
pub(super) type ThreadTimesRef = Weak<Mutex<ThreadTimes>>;

impl ThreadTimer {
    /// Starts a timer for the calling thread.
    pub(super) fn start(stage: Stage) -> Self {
        let times = ThreadTimes {
            stages: StageTimes::default(),
            runqueue_wait_us: 0,
            stage,
            stage_start: Instant::now(),
        };
        Self {
            times: Arc::new(Mutex::new(times)),
            cpu_time: thread_time(),
            runqueue_wait: RunqueueWait::new(),
        }
    }

    /// Switches to another stage.
    pub(super) fn enter(&mut self, stage: Stage) {
        let (now, cpu_time) = (Instant::now(), thread_time());
        let runqueue_wait_us = self.runqueue_wait.read_delta(now);
        let mut times = self.times.lock();
        let ran_us = micros(cpu_time.saturating_sub(self.cpu_time));
        let took_us = micros(now.duration_since(times.stage_start));
        let before = times.stage;
        times.stages[before].ran_us += ran_us;
        times.stages[before].waited_us += took_us.saturating_sub(ran_us);
        times.runqueue_wait_us += runqueue_wait_us;
        (times.stage, times.stage_start) = (stage, now);
        self.cpu_time = cpu_time;
    }

    pub(super) fn times_ref(&self) -> ThreadTimesRef {
        Arc::downgrade(&self.times)
    }

    /// Ends the measurement; returns all times.
    pub(super) fn stop(&mut self) -> ThreadTimes {
        self.enter(Stage::Waiting);
        *self.times.lock()
    }
}

/// Run-queue wait, from `/proc/thread-self/schedstat`: time on a CPU and time waiting for one, both in
/// nanoseconds (Linux Documentation/scheduler/sched-stats.rst). Zero if the kernel lacks the file.
#[derive(Debug)]
struct RunqueueWait {
    file: Option<File>,
    waited_ns: u64,
    read_at: Instant,
}

impl RunqueueWait {
    fn new() -> Self {
        let file = File::open("/proc/thread-self/schedstat").ok();
        Self {
            waited_ns: file.as_ref().and_then(waited_ns).unwrap_or_default(),
            file,
            read_at: Instant::now(),
        }
    }

    /// Returns the wait since the last reading, in microseconds; 0 if that was a moment ago.
    fn read_delta(&mut self, now: Instant) -> u64 {
        if now.duration_since(self.read_at) < RUNQUEUE_WAIT_INTERVAL {
            return 0;
        }
        self.read_at = now;
        let Some(waited) = self.file.as_ref().and_then(waited_ns) else {
            return 0;
        };
        let delta_ns = waited.saturating_sub(self.waited_ns);
        self.waited_ns = waited;
        delta_ns / 1000
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
    fn measures_running_and_waiting_by_stage() {
        let mut timer = ThreadTimer::start(Stage::Reading);
        std::thread::sleep(Duration::from_millis(20));
        timer.enter(Stage::Hashing);
        let start = thread_time();
        while thread_time() - start < Duration::from_millis(10) {}
        let stages = timer.stop().stages;
        assert!(stages[Stage::Reading].waited_us >= 15_000, "{stages:?}");
        assert!(stages[Stage::Hashing].ran_us >= 10_000, "{stages:?}");
        assert_eq!(stages[Stage::Sending].ran_us, 0);
    }

    #[test]
    fn counts_current_stage_as_waited() {
        let timer = ThreadTimer::start(Stage::Sending);
        std::thread::sleep(Duration::from_millis(2));
        let times = timer.times.lock().snapshot();
        assert!(times.is_in(Stage::Sending));
        assert!(times.stages[Stage::Sending].waited_us >= 2_000);
        let times = timer.times_ref();
        assert!(times.upgrade().is_some());
        drop(timer);
        assert!(times.upgrade().is_none());
    }
}
