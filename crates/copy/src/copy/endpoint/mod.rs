// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoint of a copy: a process that gets its task from the coordinator, connects to the other endpoint and
//! does its part.

mod access_scope;
#[cfg(test)]
mod hostile;
mod limits;
mod listing;
pub(crate) mod location;
mod metrics;
pub(super) mod process;
mod rendezvous;
pub(super) mod reports;
mod shared_fs_probe;
mod source;
mod target;
