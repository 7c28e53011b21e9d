// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks and leases, with the limits of what is stored about them.

use crate::error::Error;
use std::{fmt, time::Duration, time::Instant};

/// Maximum bytes in a job's name.
pub const NAME_LEN_MAX: usize = 1024;
/// Maximum bytes in a job's spec.
pub const SPEC_LEN_MAX: usize = 64 << 10;
/// Maximum bytes in a task's key, in a group's name and in a holder's name.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// Maximum bytes in a task's body: the memory that an acquired task needs.
pub const BODY_LEN_MAX: usize = 4 << 20;
/// Maximum bytes in a result or a reason.
pub const RESULT_LEN_MAX: usize = 64 << 10;
/// Maximum number of tasks in a call of [`JobStore::add_tasks`](crate::JobStore::add_tasks).
pub const ADD_COUNT_MAX: usize = 10_000;
/// Maximum bytes of bodies and keys in a call of
/// [`JobStore::add_tasks`](crate::JobStore::add_tasks). Twice as much memory is needed while they
/// are sent.
pub const ADD_LEN_MAX: usize = 64 << 20;
/// Maximum number of tasks that a call of [`JobStore::acquire`](crate::JobStore::acquire) acquires.
pub const ACQUIRE_COUNT_MAX: u32 = 64;
/// Maximum number of tokens in a call of [`JobStore::renew`](crate::JobStore::renew).
pub const RENEW_COUNT_MAX: usize = 10_000;
/// Longest lease, and longest pause after a release.
pub const TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Handle of a job, from [`JobStore::join`](crate::JobStore::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job(pub(crate) i64);

/// Fencing token of one acquisition. A later acquisition, of any task in any job, has a larger
/// token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(crate) i64);

impl Token {
    /// Number of the token, from 1, for logs and for fences elsewhere.
    pub fn number(self) -> u64 {
        self.0.cast_unsigned()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Task to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTask {
    /// Name of the task within its job. Adding a second task with the same key has no effect. Any
    /// bytes, at most [`KEY_LEN_MAX`].
    pub key: Vec<u8>,
    /// Description of the work, in the caller's format, at most [`BODY_LEN_MAX`].
    pub body: Vec<u8>,
    /// Amount of work, in bytes, below 2⁶³.
    pub bytes: u64,
    /// Group that the task belongs to.
    pub group: Option<Vec<u8>>,
    /// Group whose tasks must all be done before this task can be acquired. A group without tasks
    /// counts as done. So add its tasks in the same call as the tasks that wait for it. Or put a
    /// task into it that stays unfinished until all are added, such as the planning task.
    pub after: Option<Vec<u8>>,
}

impl NewTask {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let len = |group: &Option<Vec<u8>>| group.as_ref().map_or(0, Vec::len);
        check_bound("the length of a task's key", self.key.len(), KEY_LEN_MAX)?;
        check_bound("the length of a task's body", self.body.len(), BODY_LEN_MAX)?;
        check_bound(
            "the length of a group's name",
            len(&self.group),
            KEY_LEN_MAX,
        )?;
        check_bound(
            "the length of a group's name",
            len(&self.after),
            KEY_LEN_MAX,
        )?;
        match i64::try_from(self.bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::TooLarge {
                quantity: "the size of a task, in bytes,",
                len: self.bytes,
                max: i64::MAX.cast_unsigned(),
            }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        let group = self.group.as_ref().map_or(0, Vec::len);
        self.key.len() + self.body.len() + group + self.after.as_ref().map_or(0, Vec::len)
    }
}

/// Right to work on a task for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Token for all calls about this task.
    pub token: Token,
    /// Time until which the holder may work without renewing. Counted from before the request was
    /// sent, so it is never later than the expiry on the server. A clock that stops while the
    /// machine sleeps, like Linux's monotonic clock, gives a time that is too late. The token
    /// protects the database even then.
    pub until: Instant,
    /// Number of acquisitions, this one included; from 1. A number above 1 means that an earlier
    /// holder died or gave up.
    pub tries: u32,
    /// Key, as added.
    pub key: Vec<u8>,
    /// Body, as added.
    pub body: Vec<u8>,
    /// Bytes, as added.
    pub bytes: u64,
}

/// Result of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Time until which the holder of `tokens` may work, as in [`Lease::until`].
    pub until: Instant,
    /// Tokens that are still valid, in ascending order. Work on the tasks of all other tokens must
    /// stop: another holder may have the task.
    pub tokens: Vec<Token>,
}

pub(crate) fn check_bound(quantity: &'static str, len: usize, max: usize) -> Result<(), Error> {
    if len <= max {
        return Ok(());
    }
    let (len, max) = (len as u64, max as u64);
    Err(Error::TooLarge { quantity, len, max })
}

/// Converts a time to microseconds for the server.
pub(crate) fn to_micros(quantity: &'static str, time: Duration) -> Result<i64, Error> {
    if time <= TTL_MAX {
        return Ok(i64::try_from(time.as_micros()).expect("a week fits"));
    }
    let (len, max) = (time.as_secs(), TTL_MAX.as_secs());
    Err(Error::TooLarge { quantity, len, max })
}
