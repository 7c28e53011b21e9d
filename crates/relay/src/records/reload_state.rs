// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of the last SIGHUP, for those who look at the relay.

use jiff::Timestamp;
use longhaul_admin::record::Reload;
use parking_lot::{Mutex, MutexGuard};

/// The last attempt to take a configuration; the first is the start.
#[derive(Debug)]
pub(crate) struct ReloadState(Mutex<Reload>);

impl ReloadState {
    /// The relay starts now, with a configuration that stands.
    pub(crate) fn new() -> Self {
        let now = Timestamp::now();
        Self(Mutex::new(Reload {
            time: now,
            successful: true,
            success_time: now,
            problem: None,
        }))
    }

    /// A configuration was taken, or was not because of `problem`.
    pub(crate) fn ended(&self, problem: Option<String>) {
        let (mut reload, now) = (self.reload(), Timestamp::now());
        reload.time = now;
        reload.successful = problem.is_none();
        if problem.is_none() {
            reload.success_time = now;
        }
        reload.problem = problem;
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
    fn a_failure_leaves_the_last_success() {
        let state = ReloadState::new();
        let start = state.read();
        state.ended(Some("no such file".to_owned()));
        let failed = state.read();
        assert!(!failed.successful);
        assert_eq!(failed.success_time, start.success_time);
        assert_eq!(failed.problem.as_deref(), Some("no such file"));
        state.ended(None);
        let taken = state.read();
        assert!(taken.successful && taken.problem.is_none());
        assert_eq!(taken.success_time, taken.time);
    }
}
