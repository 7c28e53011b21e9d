// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end that reads: it announces what it finds, and sends what the target says it lacks.

pub(super) mod conversation;
mod extents;
mod file;
mod hashes;
mod limit;
mod retry;
pub(super) mod scan;
pub(super) mod share;
mod state;
mod stream;
mod streams;
mod tuning;
