// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on each client's use of the resources that all clients of a relay share, and what happens when a resource is
//! exhausted.
//!
//! A client is one address, or one /64 of IPv6 ([`accounts::ClientNetwork`]).
//!
//! | shared | bound | when it is used up |
//! |---|---|---|
//! | file descriptors | [`descriptors`]: connections, pipes and lookups that RLIMIT_NOFILE has room for | clients wait in the listen queue; [`exhaustion`] retries; [`shared_limit`] has the state |
//! | memory in socket buffers | [`memory`] | new connections wait; [`eviction`] chooses the connections that end |
//! | connections | [`descriptors`], or the limit of the configuration | [`idle_clients`] leave; other clients wait in the listen queue |
//! | name lookups | [`lookups`] | the oldest lookup of the client that has most is cancelled |
//! | bandwidth | [`rate_limits`] | reads wait |
//! | password attempts | [`penalties`] | the wait between two attempts for one user doubles |

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod accounts;
pub mod descriptors;
pub mod eviction;
pub mod exhaustion;
pub mod idle_clients;
pub mod lookups;
pub mod memory;
pub mod penalties;
pub mod rate_limits;
mod recent_logins;
pub mod shared_limit;
