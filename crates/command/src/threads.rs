// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads where there may not be enough of them: one that cannot be started is an error, and no panic. And what they wait for.

use anyhow::{Context as _, Result};
use parking_lot::{Condvar, Mutex};
use std::{
    thread::{self, JoinHandle, Scope, ScopedJoinHandle},
    time::Duration,
};

const LIMITED: &str = "cannot start a thread (ulimit -u and pids.max of the cgroup limit them)";

/// Starts a thread.
pub fn begin<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new().spawn(work).context(LIMITED)
}

/// Starts a thread that ends within `scope`.
pub fn begin_within<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>> {
    let thread = thread::Builder::new().spawn_scoped(scope, work);
    thread.context(LIMITED)
}

/// Starts as many as there are CPUs; fewer if there can't be so many, but one.
pub fn begin_on_each_cpu<F: FnOnce() + Send + 'static>(work: impl Fn() -> F) -> Result<()> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    begin(work())?;
    for _ in 1..cpus {
        let _fewer_will_do = begin(work());
    }
    Ok(())
}

/// A state that comes to an end, for which nobody waits beyond it.
pub trait Ends {
    /// Whether it has come to its end.
    fn is_over(&self) -> bool;
}

/// A state that many threads share, and that each of them may wait for.
#[derive(Debug, Default)]
pub struct Monitor<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Monitor<S> {
    /// Does something with the state, and wakes whoever waits for a change.
    pub fn change<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let done = act(&mut self.state.lock());
        self.changed.notify_all();
        done
    }

    /// The same, where others wait only for what `matters`: to wake many threads again and again for nothing costs more
    /// than the work.
    pub fn change_if<T>(
        &self,
        act: impl FnOnce(&mut S) -> T,
        matters: impl FnOnce(&S) -> bool,
    ) -> T {
        let mut state = self.state.lock();
        let done = act(&mut state);
        if matters(&state) {
            self.changed.notify_all();
        }
        done
    }

    /// Does something with the state that nobody waits for.
    pub fn note<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        act(&mut self.state.lock())
    }

    /// Looks something up.
    pub fn look<T>(&self, act: impl FnOnce(&S) -> T) -> T {
        act(&self.state.lock())
    }

    /// Waits until there is something to take, and takes it.
    pub fn wait_for<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return taken;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits until something holds, but no longer than so.
    pub fn wait_some_time(&self, time: Duration, held: impl Fn(&S) -> bool) {
        let waits = |state: &mut S| !held(state);
        self.changed
            .wait_while_for(&mut self.state.lock(), waits, time);
    }
}

impl<S: Ends> Monitor<S> {
    /// Whether the state has come to its end.
    pub fn is_over(&self) -> bool {
        self.look(S::is_over)
    }

    /// Waits until there is something to take, and takes it. `None`: all is over.
    pub fn next<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
        self.wait_for(|state| match state.is_over() {
            true => Some(None),
            false => take(state).map(Some),
        })
    }

    /// Waits until something holds, or all is over.
    pub fn wait_until(&self, held: impl Fn(&S) -> bool) {
        self.wait_for(|state| (held(state) || state.is_over()).then_some(()));
    }

    /// Waits for so long, but not beyond the end.
    pub fn pause(&self, time: Duration) {
        self.wait_some_time(time, S::is_over);
    }
}
