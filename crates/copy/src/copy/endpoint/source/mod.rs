// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source endpoint. It announces what it finds, and sends what the target lacks.

mod extents;
mod file;
mod hashes;
pub(super) mod portion;
mod rate_limit;
mod retry;
pub(super) mod scan;
pub(super) mod session;
mod state;
mod stream;
mod stream_monitor;
mod tuning;
