// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pieces of work and the right to do them, with the bounds of what is kept about them.

use crate::error::Error;
use std::{fmt, time::Duration, time::Instant};

/// Bytes of a job's name, at most.
pub const NAME_LEN_MAX: usize = 1024;
/// Bytes of a job's spec, at most.
pub const SPEC_LEN_MAX: usize = 64 << 10;
/// Bytes of an extent's key, of the names of its groups and of a holder's name, at most.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// Bytes of an extent's body, at most: what one taken extent costs in memory.
pub const BODY_LEN_MAX: usize = 4 << 20;
/// Bytes of a result or of a reason, at most.
pub const RESULT_LEN_MAX: usize = 64 << 10;
/// Extents that one [`Board::add`](crate::Board::add) may bring.
pub const ADD_COUNT_MAX: usize = 10_000;
/// Bytes of bodies and keys that one [`Board::add`](crate::Board::add) may bring; twice that is held in
/// memory while they are sent.
pub const ADD_LEN_MAX: usize = 64 << 20;
/// Extents that one [`Board::take`](crate::Board::take) may take.
pub const TAKE_COUNT_MAX: u32 = 64;
/// Tokens that one [`Board::renew`](crate::Board::renew) may name.
pub const RENEW_COUNT_MAX: usize = 10_000;
/// The longest lease, and the longest pause after giving back.
pub const TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// A job, as [`Board::join`](crate::Board::join) found or made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job(pub(crate) i64);

/// The proof of one taking. Whoever takes later has a larger one, whatever the job or extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(crate) i64);

impl Token {
    /// The number, from 1, for records and for fences elsewhere.
    pub fn number(self) -> u64 {
        self.0.cast_unsigned()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// An extent to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewExtent {
    /// Names it within its job; adding another with the same key does nothing. Any bytes, at most
    /// [`KEY_LEN_MAX`].
    pub key: Vec<u8>,
    /// What there is to do, in the caller's form, at most [`BODY_LEN_MAX`].
    pub body: Vec<u8>,
    /// How much work it is, in bytes, below 2⁶³.
    pub bytes: u64,
    /// A group that it is part of.
    pub group: Option<Vec<u8>>,
    /// It may be taken only when every extent of this group is done. A group without extents *is* done: put its
    /// extents into the same call as those that wait for it, or an extent into it that lasts until
    /// all are added, as the one that plans does.
    pub after: Option<Vec<u8>>,
}

impl NewExtent {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let len = |group: &Option<Vec<u8>>| group.as_ref().map_or(0, Vec::len);
        bounded("an extent's key", self.key.len(), KEY_LEN_MAX)?;
        bounded("an extent's body", self.body.len(), BODY_LEN_MAX)?;
        bounded("a group's name", len(&self.group), KEY_LEN_MAX)?;
        bounded("a group's name", len(&self.after), KEY_LEN_MAX)?;
        match i64::try_from(self.bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::TooLarge {
                what: "an extent, in bytes,",
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

/// The right to work on an extent for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What to show with every word about this extent.
    pub token: Token,
    /// Until when its holder may act without having renewed: from before the request went out, so never later
    /// than the server counts. A clock that stands while the machine sleeps (as Linux's monotonic one
    /// does) says too late; the token holds even then.
    pub until: Instant,
    /// How often it has been taken, this time included; from 1. More than one says that somebody died or
    /// gave up over it.
    pub tries: u32,
    /// As it was added.
    pub key: Vec<u8>,
    /// As it was added.
    pub body: Vec<u8>,
    /// As it was added.
    pub bytes: u64,
}

/// What renewing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Until when the holder of `tokens` may act, as in [`Lease::until`].
    pub until: Instant,
    /// Those that still stand, in ascending order. Work on all others must end: somebody else may have it.
    pub tokens: Vec<Token>,
}

pub(crate) fn bounded(what: &'static str, len: usize, max: usize) -> Result<(), Error> {
    if len <= max {
        return Ok(());
    }
    let (len, max) = (len as u64, max as u64);
    Err(Error::TooLarge { what, len, max })
}

/// Microseconds, as the server is told.
pub(crate) fn micros(what: &'static str, time: Duration) -> Result<i64, Error> {
    if time <= TTL_MAX {
        return Ok(i64::try_from(time.as_micros()).expect("a week fits"));
    }
    let (len, max) = (time.as_secs(), TTL_MAX.as_secs());
    Err(Error::TooLarge { what, len, max })
}
