// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs: name resolution, connecting, socket profiles, what limits and stalls them, and legs as async streams.

pub(crate) mod candidates;
pub(crate) mod connect;
mod name_server_connections;
mod name_servers;
pub(crate) mod profile;
pub(crate) mod resolver;
pub(crate) mod stall;
pub(crate) mod stream;
pub(crate) mod udt;
pub(crate) mod window;
