// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit on open descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, as far as the kernel lets it, and returns what now
/// holds; `None` is no limit.
#[must_use]
pub fn raise_limit() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => before.current,
    }
}

/// The soft limit and the hard one, up to which [`raise_limit`] goes; `None` is no limit.
#[must_use]
pub fn limits() -> (Option<u64>, Option<u64>) {
    let limit = getrlimit(Resource::Nofile);
    (limit.current, limit.maximum)
}
