// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that several machines share, kept in PostgreSQL: leases with fencing tokens.
//!
//! A [`Board`] is a database. Whoever works on a job [joins](Board::join) it by a name that all of them
//! can make (a digest of the work). The first brings the first extent, usually "plan this"; who
//! [takes](Board::take) that one [adds](Board::add) the others, each with a key, so that a second planner
//! after the first one's death adds nothing twice. Everybody takes extents, does what their bodies say,
//! [renews](Board::renew) what takes long, and says [`done`](Board::done) when the result is durable.
//! [`standing`](Board::standing) tells how far all are, and in the end somebody [forgets](Board::forget) the job.
//!
//! **Leases.** An extent is taken for a time, its `ttl`, and with a token from one sequence: larger than all before. A
//! taker that dies says nothing; when its lease is over, the next [`take`](Board::take) of
//! anybody gets the extent with a larger token. So the work of a dead machine waits up to one `ttl`
//! and as long as others take to ask again. A lease that is over and that nobody has taken stands: its holder may still
//! renew it or be done. Renew at a third of the `ttl`, and let that be longer than a
//! restart of the server: minutes, for extents that take minutes.
//!
//! **Clocks.** The server's alone decides what is over. A holder that can't reach the server counts for itself,
//! from before it asked ([`Lease::until`]), and stops by then.
//!
//! **Fences.** A token guards the database: once an extent has been taken again, nothing that the earlier holder
//! says about it is heard ([`done`](Board::done) is false, [`add`](Board::add) adds nothing). It can't guard files: a
//! holder that was stopped in the middle of a write may finish that write whenever it is continued. So
//! two holders of one extent must write the same bytes to the same places, which the caller sees
//! to, and what only one may do (giving a file its name) is an extent of its own
//! [after](NewExtent::after) the others, or harmless twice.
//!
//! **What survives.** What was acknowledged is on the server's disk (`synchronous_commit` is turned on where it was
//! off; `fsync = off` is the administrator's word against it). A server that is killed and comes
//! back goes on where it was, and boards connect again by themselves. A standby that takes over
//! without the last commits forgets takings and gives their tokens again: let it replicate synchronously.
//!
//! **Bounds.** Every call ends within a minute, taking within a minute and a half: connecting within 10 s, an answer within 20 s (15 s at the server),
//! once more where the connection had broken. A connection whose server is gone is given up after 25 s even if
//! nothing is asked. Memory is what [`TAKE_COUNT_MAX`] bodies or one addition of [`ADD_LEN_MAX`] take.
//! Only [`forget`](Board::forget) may take five minutes, or twice that.
//!
//! Keys, names, reasons: any bytes. PostgreSQL 12 or later; sessions, not a pool that gives each transaction
//! another one.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod address;
mod board;
mod connection;
mod error;
mod extent;
mod schema;
mod standing;
mod taking;
mod tls;

pub use board::{Board, JOBS_MAX, Listed};
pub use error::{Cause, Error};
pub use extent::{
    ADD_COUNT_MAX, ADD_LEN_MAX, BODY_LEN_MAX, Job, KEY_LEN_MAX, Lease, NAME_LEN_MAX, NewExtent,
    RENEW_COUNT_MAX, RESULT_LEN_MAX, Renewed, SPEC_LEN_MAX, TAKE_COUNT_MAX, TTL_MAX, Token,
};
pub use standing::{
    Amount, FAILURES_MAX, Failure, HOLDERS_MAX, Holder, Outcome, Position, RESULTS_MAX, Standing,
};
