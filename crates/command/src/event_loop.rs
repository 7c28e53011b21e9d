// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event loops that commands wait in: tokio's, of one thread each.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Mutex, PoisonError},
};
use tokio::runtime::{Builder, Runtime};

/// One that runs on the calling thread.
///
/// # Errors
/// Descriptors that are missing.
pub fn of_this_thread() -> io::Result<Runtime> {
    build(&mut Builder::new_current_thread())
}

/// One with settings of its own.
///
/// # Errors
/// Descriptors that are missing.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    /// Whether tokio has its own two descriptors for signals. It takes them once, and panics where it gets none.
    static HAS_SIGNALS: Mutex<bool> = Mutex::new(false);
    let mut has_signals = HAS_SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*has_signals {
        drop(UnixStream::pair()?);
    }
    let built = builder.enable_all().build()?;
    *has_signals = true;
    Ok(built)
}
