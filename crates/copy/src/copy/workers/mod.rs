// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --leases`: several workers share one copy. Each worker runs a pair of endpoints on a host of each side.
//! Several processes with the same command may run workers. A database holds the work (`work`): the data of files, in
//! extents of some GiB. A worker may die at any time: others take its extents after its leases expire.
//!
//! Workers copy only file data. A single session after them does the rest: links, metadata of directories, deletions, and
//! files that changed or failed meanwhile. That session finds the data at the target.

mod completeness;
mod jobs;
mod leases;
mod plan;
mod run;
mod session;
mod work;
mod worker;

pub(super) use jobs::manage_jobs;
pub(super) use run::copy_shared;
