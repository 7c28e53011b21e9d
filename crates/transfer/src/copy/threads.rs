// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads where there may not be enough of them: one that cannot be started is an error, and no panic. And what they wait for.

use anyhow::{Context as _, Result};
use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle, Scope, ScopedJoinHandle},
    time::Duration,
};

const LIMITED: &str = "cannot start a thread (ulimit -u and pids.max of the cgroup limit them)";

/// Starts a thread.
pub(crate) fn begin<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new().spawn(work).context(LIMITED)
}

/// Starts a thread that ends within `scope`.
pub(crate) fn begin_within<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>> {
    let thread = thread::Builder::new().spawn_scoped(scope, work);
    thread.context(LIMITED)
}

/// Starts as many as there are CPUs; fewer if there can't be so many, but one.
pub(crate) fn begin_on_each_cpu<F: FnOnce() + Send + 'static>(work: impl Fn() -> F) -> Result<()> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    begin(work())?;
    for _ in 1..cpus {
        let _fewer_will_do = begin(work());
    }
    Ok(())
}

/// A state that many threads share, and that each of them may wait for.
#[derive(Debug, Default)]
pub(crate) struct Monitor<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Monitor<S> {
    pub(crate) fn new(state: S) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Does something with the state, and wakes whoever waits for a change.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let done = act(&mut self.lock());
        self.changed.notify_all();
        done
    }

    /// The same, where others wait only for what `matters`: to wake many threads again and again for nothing costs more
    /// than the work.
    pub(crate) fn change_if<T>(
        &self,
        act: impl FnOnce(&mut S) -> T,
        matters: impl FnOnce(&S) -> bool,
    ) -> T {
        let mut state = self.lock();
        let done = act(&mut state);
        if matters(&state) {
            self.changed.notify_all();
        }
        done
    }

    /// Does something with the state that nobody waits for.
    pub(crate) fn note<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        act(&mut self.lock())
    }

    /// Looks something up.
    pub(crate) fn look<T>(&self, act: impl FnOnce(&S) -> T) -> T {
        act(&self.lock())
    }

    /// Waits until there is something to take, and takes it.
    pub(crate) fn wait_for<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return taken;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until something holds, but no longer than so.
    pub(crate) fn wait_some_time(&self, time: Duration, held: impl Fn(&S) -> bool) {
        let waits = |state: &mut S| !held(state);
        drop(self.changed.wait_timeout_while(self.lock(), time, waits));
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
