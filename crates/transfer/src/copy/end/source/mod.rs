// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source endpoint. It announces what it finds, and sends what the target lacks.

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
