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

/// What a mutex holds, whatever befell a thread that had it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A state that comes to an end, for which nobody waits beyond it.
pub(crate) trait Ends {
    fn is_over(&self) -> bool;
}

/// A state that many threads share, and that each of them may wait for.
#[derive(Debug, Default)]
pub(crate) struct Monitor<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Monitor<S> {
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
        lock(&self.state)
    }
}

impl<S: Ends> Monitor<S> {
    pub(crate) fn is_over(&self) -> bool {
        self.look(S::is_over)
    }

    /// Waits until there is something to take, and takes it. `None`: all is over.
    pub(crate) fn next<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
        self.wait_for(|state| match state.is_over() {
            true => Some(None),
            false => take(state).map(Some),
        })
    }

    /// Waits until something holds, or all is over.
    pub(crate) fn wait_until(&self, held: impl Fn(&S) -> bool) {
        self.wait_for(|state| (held(state) || state.is_over()).then_some(()));
    }

    /// Waits for so long, but not beyond the end.
    pub(crate) fn pause(&self, time: Duration) {
        self.wait_some_time(time, S::is_over);
    }
}
