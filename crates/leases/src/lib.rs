// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work shared by several machines, stored in PostgreSQL: leases with fencing tokens.
//!
//! A [`JobStore`] is a database with jobs. Every machine that works on a job
//! [joins](JobStore::join) it by a name that all can compute, such as a digest of the work. The
//! first machine adds the first task, usually "plan this". The machine that
//! [acquires](JobStore::acquire) that task [adds](JobStore::add_tasks) the others. Each has a key,
//! so that a second planner, after the death of the first, adds no task twice. All machines acquire
//! tasks, do the work in their bodies, and [renew](JobStore::renew) leases that take long. When a
//! result is durable, they [complete](JobStore::complete) the task. [`status`](JobStore::status)
//! reports the progress of the job. At the end, one machine [deletes](JobStore::delete_job) the
//! job.
//!
//! **Leases.** A task is leased for a time, its `ttl`, with a token from one sequence, larger than
//! all before. A holder that dies sends no message. When its lease has expired, the next
//! [`acquire`](JobStore::acquire) of any machine gets the task with a larger token. So the work of
//! a dead machine waits for one `ttl` at most, and for the next call of another machine. An expired
//! lease stays valid until another machine acquires the task: its holder may still renew or
//! complete it. Renew at a third of the `ttl`. Choose a `ttl` longer than a restart of the server:
//! minutes, for tasks that take minutes.
//!
//! **Clocks.** Only the server's clock decides whether a lease has expired. A holder that cannot
//! reach the server uses its own clock, from before its request ([`Lease::until`]), and stops by
//! then.
//!
//! **Fences.** A token protects the database. Once a task has been acquired again, calls of the
//! earlier holder have no effect: [`complete`](JobStore::complete) returns false,
//! [`add_tasks`](JobStore::add_tasks) adds nothing. A token cannot protect files: a holder that was
//! stopped during a write may finish it when it is continued. So two holders of a task must write
//! the same bytes to the same places, which the caller ensures. An action that must happen once,
//! such as giving a file its name, is a task of its own [after](NewTask::after) the others, or
//! harmless when repeated.
//!
//! **Durability.** Acknowledged calls are on the server's disk. `synchronous_commit` is turned on
//! if it was off; `fsync = off` is the administrator's decision. A server that was killed continues
//! from its last state, and connections are opened again automatically. A standby that takes over
//! without the last commits loses acquisitions and issues their tokens again: use synchronous
//! replication.
//!
//! **Bounds.** Every call ends within a minute, acquiring within a minute and a half. Connecting
//! takes at most 10 s, a reply 20 s (15 s at the server). Both may be needed twice if the
//! connection was broken. An idle connection whose server is gone is closed after 25 s. Memory is
//! that of [`ACQUIRE_COUNT_MAX`] bodies, or of one addition of [`ADD_LEN_MAX`]. Only
//! [`delete_job`](JobStore::delete_job) may take five minutes, or ten if it is repeated.
//!
//! Keys, names and reasons may be any bytes. Needs PostgreSQL 12 or later. A connection pool in
//! front of it must keep one session for each connection (in PgBouncer, `pool_mode = session`).

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod address;
mod connection;
mod error;
mod job_status;
mod job_store;
mod leases;
mod schema;
mod task;
mod tls;

pub use error::{Cause, Error};
pub use job_status::{
    FAILURES_MAX, FailedTask, HOLDERS_MAX, Holder, JobStatus, Position, RESULTS_MAX, TaskResult,
    Totals,
};
pub use job_store::{JOBS_MAX, JobStore, JobSummary};
pub use task::{
    ACQUIRE_COUNT_MAX, ADD_COUNT_MAX, ADD_LEN_MAX, BODY_LEN_MAX, Job, KEY_LEN_MAX, Lease,
    NAME_LEN_MAX, NewTask, RENEW_COUNT_MAX, RESULT_LEN_MAX, Renewal, SPEC_LEN_MAX, TTL_MAX, Token,
};
