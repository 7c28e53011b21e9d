// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests on a real PostgreSQL. Leases expire because their time is zero, never because a test
//! waits.

mod crashes;
mod fences;
mod ground;
mod histories;
mod jobs;
mod many_takers;
mod security;
mod speed;
