// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs of connections: how one is opened, and what is read and written on it besides relayed bytes.

pub(crate) mod candidates;
pub(crate) mod connect;
pub(crate) mod profile;
pub(crate) mod resolver;
pub(crate) mod stream;
pub(crate) mod udt;
