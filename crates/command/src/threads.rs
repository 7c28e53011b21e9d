// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, and the state that they share and wait for. A thread that cannot be started is an error and no panic,
//! because the number of threads may be limited.

use anyhow::{Context as _, Result};
use parking_lot::{Condvar, Mutex};
use std::{
    thread::{self, JoinHandle, Scope, ScopedJoinHandle},
    time::Duration,
};

const SPAWN_ERROR: &str = "cannot start a thread (ulimit -u and pids.max of the cgroup limit them)";

/// Starts a thread that runs `work`.
///
/// # Errors
/// If the limits of the user or the cgroup permit no more threads.
pub fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new().spawn(work).context(SPAWN_ERROR)
}

/// Starts a thread that runs `work` and ends within `scope`.
///
/// # Errors
/// If the limits of the user or the cgroup permit no more threads.
pub fn spawn_scoped<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>> {
    let thread = thread::Builder::new().spawn_scoped(scope, work);
    thread.context(SPAWN_ERROR)
}

/// Starts a thread for each CPU that this process may use. Fewer are enough, but not none.
///
/// # Errors
/// If not even one thread can be started.
pub fn spawn_per_cpu<F: FnOnce() + Send + 'static>(work: impl Fn() -> F) -> Result<()> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    spawn(work())?;
    for _ in 1..cpus {
        let _fewer_are_enough = spawn(work());
    }
    Ok(())
}

/// A state of a job that ends. [`Monitor::next`], [`Monitor::wait_until`] and [`Monitor::sleep`] do not wait beyond the
/// end.
pub trait Ends {
    /// Whether the job has ended.
    fn is_over(&self) -> bool;
}

/// A state that many threads share, and whose changes each of them may wait for: a mutex with a condition variable.
#[derive(Debug, Default)]
pub struct Monitor<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Monitor<S> {
    /// Updates the state with `act`, and wakes all threads that wait for a change.
    pub fn update<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let result = act(&mut self.state.lock());
        self.changed.notify_all();
        result
    }

    /// Updates the state with `act`, and wakes waiting threads only if the new state `matters` to them. To wake many
    /// threads for nothing, again and again, costs more than the work.
    pub fn update_if<T>(
        &self,
        act: impl FnOnce(&mut S) -> T,
        matters: impl FnOnce(&S) -> bool,
    ) -> T {
        let mut state = self.state.lock();
        let result = act(&mut state);
        if matters(&state) {
            self.changed.notify_all();
        }
        result
    }

    /// Updates the state with `act` and wakes no thread, for changes that none waits for.
    pub fn update_silent<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        act(&mut self.state.lock())
    }

    /// Reads the state with `act`.
    pub fn read<T>(&self, act: impl FnOnce(&S) -> T) -> T {
        act(&self.state.lock())
    }

    /// Waits until `take` returns a value, and returns it. `take` is called again after each change.
    pub fn wait_for<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(value) = take(&mut state) {
                return value;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits until `condition` holds, at most for `time`.
    pub fn wait_timeout(&self, time: Duration, condition: impl Fn(&S) -> bool) {
        let waits = |state: &mut S| !condition(state);
        self.changed
            .wait_while_for(&mut self.state.lock(), waits, time);
    }
}

impl<S: Ends> Monitor<S> {
    /// Whether the job has ended.
    pub fn is_over(&self) -> bool {
        self.read(S::is_over)
    }

    /// Waits until `take` returns a value, and returns it. `None` if the job ends first.
    pub fn next<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
        self.wait_for(|state| {
            if state.is_over() {
                Some(None)
            } else {
                take(state).map(Some)
            }
        })
    }

    /// Waits until `condition` holds or the job ends.
    pub fn wait_until(&self, condition: impl Fn(&S) -> bool) {
        self.wait_for(|state| (condition(state) || state.is_over()).then_some(()));
    }

    /// Waits for `time`, or until the job ends.
    pub fn sleep(&self, time: Duration) {
        self.wait_timeout(time, S::is_over);
    }
}
