// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --leases`: several movers share one copy, each a pair of ends on hosts of either side, and each process with
//! the same command has some. What is to be done is in a database (`work`): the data of files, in extents of some
//! GiB. A mover may die at any time; what it had others take when its lease is over.
//!
//! Movers bring data and nothing else. Whatever is more than that (links, metadata of directories, what is too much, what
//! changed or failed meanwhile) is the matter of the one conversation after them, which finds the data in its place.

pub(super) mod jobs;
mod leases;
mod mover;
mod plan;
pub(super) mod run;
mod session;
mod work;
