// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests on a real PostgreSQL. Leases expire because their time is zero, never because a test
//! waits.

mod concurrency;
mod crashes;
mod fencing;
mod histories;
mod jobs;
mod security;
mod speed;
mod test_database;
