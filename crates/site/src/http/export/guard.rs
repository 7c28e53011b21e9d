// SPDX-License-Identifier: MIT OR Apache-2.0
//! The step in which a request changes something. What it was checked for when it came may not hold any more: the body
//! of a PUT takes its time. So that is checked again, and until the step is done no other process of the site takes
//! one, nor changes locks.

use crate::http::locks::Locks;
use dav_server::fs::{FsError, FsResult};
use hyper::StatusCode;
use parking_lot::Mutex;
use std::{fmt, sync::Arc};

/// A status, and words for people.
pub(crate) type Refused = (StatusCode, &'static str);

type Check = dyn Fn() -> Result<(), Refused> + Send + Sync;

/// The check of one request; without one, the steps need none.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    check: Option<(Locks, Arc<Check>)>,
    refused: Arc<Mutex<Option<Refused>>>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.check.is_some()).finish()
    }
}

impl Guard {
    pub(in crate::http) fn new(
        locks: Locks,
        check: impl Fn() -> Result<(), Refused> + Send + Sync + 'static,
    ) -> Self {
        Self {
            check: Some((locks, Arc::new(check))),
            refused: Arc::default(),
        }
    }

    /// Takes a step, if the check lets it.
    pub(crate) fn step<T>(&self, act: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let Some((locks, check)) = &self.check else {
            return act();
        };
        let done = locks.alone(|| match check() {
            Ok(()) => act(),
            Err(refused) => {
                self.refuse(refused);
                Err(FsError::Forbidden)
            }
        });
        done.unwrap_or(Err(FsError::GeneralFailure))
    }

    /// The request gets this answer, whatever the library makes of the error.
    pub(crate) fn refuse(&self, refused: Refused) {
        *self.refused.lock() = Some(refused);
    }

    pub(crate) fn refused(&self) -> Option<Refused> {
        *self.refused.lock()
    }
}
