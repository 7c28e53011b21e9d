// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of the last reload, for the admin endpoint.

use jiff::Timestamp;
use longhaul_admin::record::Reload;
use parking_lot::{Mutex, MutexGuard};

/// Result of the last attempt to apply a configuration; the first is the start.
#[derive(Debug)]
pub(crate) struct ReloadState(Mutex<Reload>);

impl ReloadState {
    /// Records the start of the relay with a valid configuration.
    pub(crate) fn new() -> Self {
        let now = Timestamp::now();
        Self(Mutex::new(Reload {
            time: now,
            successful: true,
            success_time: now,
            error: None,
        }))
    }

    /// Records the end of a reload, with the error if it failed.
    pub(crate) fn record(&self, error: Option<String>) {
        let (mut reload, now) = (self.reload(), Timestamp::now());
        reload.time = now;
        reload.successful = error.is_none();
        if error.is_none() {
            reload.success_time = now;
        }
        reload.error = error;
    }

    pub(crate) fn read(&self) -> Reload {
        self.reload().clone()
    }

    fn reload(&self) -> MutexGuard<'_, Reload> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_reload_keeps_time_of_last_success() {
        let state = ReloadState::new();
        let start = state.read();
        state.record(Some("no such file".to_owned()));
        let failed = state.read();
        assert!(!failed.successful);
        assert_eq!(failed.success_time, start.success_time);
        assert_eq!(failed.error.as_deref(), Some("no such file"));
        state.record(None);
        let taken = state.read();
        assert!(taken.successful && taken.error.is_none());
        assert_eq!(taken.success_time, taken.time);
    }
}
