// SPDX-License-Identifier: MIT OR Apache-2.0
//! A state that many threads share, and that each of them may wait for.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Debug, Default)]
pub(super) struct Watched<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Watched<S> {
    pub(super) fn new(state: S) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Does something with the state, and wakes whoever waits for a change.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let done = act(&mut self.lock());
        self.changed.notify_all();
        done
    }

    /// The same, where others wait only for what `matters`: to wake many threads again and again for nothing costs more
    /// than the work.
    pub(super) fn change_if<T>(
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
    pub(super) fn note<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        act(&mut self.lock())
    }

    /// Looks something up.
    pub(super) fn look<T>(&self, act: impl FnOnce(&S) -> T) -> T {
        act(&self.lock())
    }

    /// Waits until there is something to take, and takes it.
    pub(super) fn wait_for<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> T {
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
    pub(super) fn wait_some_time(&self, time: Duration, held: impl Fn(&S) -> bool) {
        let waits = |state: &mut S| !held(state);
        drop(self.changed.wait_timeout_while(self.lock(), time, waits));
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
