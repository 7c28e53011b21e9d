// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--check-config`: what a configuration comes to, and what in it nobody can have meant.

pub(crate) mod addresses;
pub(crate) mod findings;
pub(crate) mod routes;
pub(crate) mod summary;
