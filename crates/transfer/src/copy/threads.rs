// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads where there may not be enough of them: one that cannot be started is an error, and no panic.

use anyhow::{Context as _, Result};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};

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
