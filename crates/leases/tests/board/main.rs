// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boards on a real PostgreSQL. Leases end because they were taken for no time at all, never because a
//! test has waited.

mod crashes;
mod fences;
mod ground;
mod histories;
mod jobs;
mod many_takers;
mod security;
mod speed;
