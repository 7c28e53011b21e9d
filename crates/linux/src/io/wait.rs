// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping until a descriptor is readable, another thread wakes this one, or a time is over, to the
//! microsecond.

use longhaul_units::Time;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, read, write},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

/// Switches timer slack off for the calling thread: by default the kernel may wake a sleeping thread
/// 50 µs late to save power (`prctl(2)`, PR_SET_TIMERSLACK).
pub fn disable_timer_slack() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes its argument by value.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Gives the calling thread the lowest real-time priority, above all ordinary threads (`sched(7)`,
/// SCHED_RR). Returns whether the kernel allowed it (CAP_SYS_NICE).
#[must_use]
pub fn request_realtime_priority() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: reads one sched_param; 0 means the calling thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameter) == 0
    }
}

/// Lets other threads of this core run, if there are any (sched_yield(2)).
pub fn yield_now() {
    rustix::thread::sched_yield();
}

/// Wakes a thread that waits for packets (eventfd(2)).
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker that has not been triggered.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }

    /// Ends the current or the next [`wait`](Self::wait).
    pub fn wake(&self) -> io::Result<()> {
        write(&self.0, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Sleeps until one of at most two `sources` is readable, [`Self::wake`] is called or `span` is over.
    /// Returns whether `wake` was called.
    pub fn wait<'a, S: AsFd + 'a>(
        &'a self,
        sources: impl Iterator<Item = &'a S>,
        span: Time,
    ) -> io::Result<bool> {
        let span = Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as i64,
        };
        let mut fds = [const { None }; 3];
        let event = std::iter::once(self.0.as_fd());
        let all = event.chain(sources.map(AsFd::as_fd));
        for (slot, fd) in fds.iter_mut().zip(all) {
            *slot = Some(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let mut fds = fds.map(|fd| fd.unwrap_or(PollFd::new(&self.0, PollFlags::empty())));
        match poll(&mut fds, Some(&span)) {
            Err(Errno::INTR) => return Ok(false),
            other => other?,
        };
        let woken = fds[0].revents().contains(PollFlags::IN);
        if woken {
            read(&self.0, &mut [0; 8])?;
        }
        Ok(woken)
    }
}
