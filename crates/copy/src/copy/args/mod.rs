// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul copy`.

pub(super) mod command;

mod patterns;
mod preserve;
mod values;

pub use values::parse_trash;
