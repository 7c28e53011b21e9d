// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a worker's CPU limits its connections.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::warn;

/// Interval of the looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks in a row at which a worker must be busy before that is logged.
const BUSY_LOOKS: u32 = 5;

/// Time between two lines of one worker.
const SILENCE: Duration = Duration::from_secs(600);

/// Logs when the calling thread, that of worker `index`, has used its whole CPU for some seconds. Has no end.
pub(super) async fn watch(index: usize) {
    let mut load = Load::new(Instant::now(), thread_cpu_time());
    loop {
        sleep(INTERVAL).await;
        if load.is_to_be_logged(Instant::now(), thread_cpu_time()) {
            warn!(
                "worker {index} has used a whole CPU for {BUSY_LOOKS} s, which limits its connections: add CPUs \
                 (limits.workers), or relays; the costs of TLS, of copying (profile mode) and of rates are its own"
            );
        }
    }
}

/// CPU time that the calling thread has used.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Load of one thread.
#[derive(Debug)]
struct Load {
    at: Instant,
    used: Duration,
    busy_looks: u32,
    logged_at: Option<Instant>,
}

impl Load {
    fn new(at: Instant, used: Duration) -> Self {
        Self {
            at,
            used,
            busy_looks: 0,
            logged_at: None,
        }
    }

    /// Records a look, and returns whether the load is to be logged.
    fn is_to_be_logged(&mut self, now: Instant, used: Duration) -> bool {
        let (elapsed, spent) = (now - self.at, used.saturating_sub(self.used));
        (self.at, self.used) = (now, used);
        let is_busy = spent.as_secs_f64() >= 0.95 * elapsed.as_secs_f64();
        self.busy_looks = if is_busy { self.busy_looks + 1 } else { 0 };
        let is_silent = self.logged_at.is_some_and(|at| now < at + SILENCE);
        let is_due = self.busy_looks >= BUSY_LOOKS && !is_silent;
        if is_due {
            self.logged_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_thread_that_is_busy_for_some_seconds_is_logged_once() {
        let start = Instant::now();
        let mut load = Load::new(start, Duration::ZERO);
        let looks = (1..=8).map(|n| load.is_to_be_logged(start + n * S, n * S));
        let looks: Vec<_> = looks.collect();
        assert_eq!(
            looks,
            [false, false, false, false, true, false, false, false]
        );
    }

    #[test]
    fn a_look_with_less_load_begins_anew() {
        let start = Instant::now();
        let mut load = Load::new(start, Duration::ZERO);
        let mut used = Duration::ZERO;
        for n in 1..20 {
            used += if n % 5 == 0 { S / 2 } else { S };
            assert!(!load.is_to_be_logged(start + n * S, used), "{n}");
        }
    }
}
