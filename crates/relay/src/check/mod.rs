// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implementation of `--check-config`: a summary of the configuration, and warnings about likely
//! mistakes.

pub(crate) mod addresses;
pub(crate) mod findings;
pub(crate) mod routes;
pub(crate) mod summary;
mod windows;
