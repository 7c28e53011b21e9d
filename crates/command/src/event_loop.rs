// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event loops that commands wait in: tokio runtimes of one thread each.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Mutex, PoisonError},
};
use tokio::runtime::{Builder, Runtime};

/// Builds an event loop that runs on the calling thread.
///
/// # Errors
/// If the process has too few file descriptors left.
pub fn current_thread() -> io::Result<Runtime> {
    build(&mut Builder::new_current_thread())
}

/// Builds an event loop with the settings of `builder`.
///
/// # Errors
/// If the process has too few file descriptors left.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    /// Whether tokio has its two file descriptors for signals. Tokio opens them once, and panics if it cannot.
    static HAS_SIGNALS: Mutex<bool> = Mutex::new(false);
    let mut has_signals = HAS_SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*has_signals {
        drop(UnixStream::pair()?);
    }
    let built = builder.enable_all().build()?;
    *has_signals = true;
    Ok(built)
}
