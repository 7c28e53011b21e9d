// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guard around the step in which a request changes something. The checks made when the request arrived may no longer
//! hold, since the body of a PUT takes time. The guard repeats them, and until the step is done no other process of
//! the site changes files or locks.

use crate::http::locks::LockStore;
use dav_server::fs::{FsError, FsResult};
use hyper::StatusCode;
use parking_lot::Mutex;
use std::{fmt, sync::Arc};

/// Status and text of a response.
pub(crate) type Rejection = (StatusCode, &'static str);

type Check = dyn Fn() -> Result<(), Rejection> + Send + Sync;

/// Check of one request. Without one, every step is allowed.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    check: Option<(LockStore, Arc<Check>)>,
    rejection: Arc<Mutex<Option<Rejection>>>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.check.is_some()).finish()
    }
}

impl Guard {
    pub(in crate::http) fn new(
        locks: LockStore,
        check: impl Fn() -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        Self {
            check: Some((locks, Arc::new(check))),
            rejection: Arc::default(),
        }
    }

    /// Runs a step, if the check allows it.
    pub(crate) fn step<T>(&self, operation: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let Some((locks, check)) = &self.check else {
            return operation();
        };
        let done = locks.exclusively(|| match check() {
            Ok(()) => operation(),
            Err(rejection) => {
                self.reject(rejection);
                Err(FsError::Forbidden)
            }
        });
        done.unwrap_or(Err(FsError::GeneralFailure))
    }

    /// Sets the response to the request, whatever dav-server makes of the error.
    pub(crate) fn reject(&self, rejection: Rejection) {
        *self.rejection.lock() = Some(rejection);
    }

    pub(crate) fn rejection(&self) -> Option<Rejection> {
        *self.rejection.lock()
    }
}
