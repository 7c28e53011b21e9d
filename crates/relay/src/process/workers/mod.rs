// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that serve: each accepts on its own share of every listener, and serves what it accepted or another handed
//! over.

pub(crate) mod connection;
pub(crate) mod crew;
pub(crate) mod registry;
pub(crate) mod worker;
