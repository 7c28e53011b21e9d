// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files at both ends of a copy: trees with their metadata, blocks with their hashes, and durable
//! state. All calls block, for use from threads. No network, no clock.
//!
//! [`tree`] finds the entries to copy, and creates those that need no data. Durable state at a
//! destination is in [`part`] (files of many blocks), [`small`] (files of one block) and
//! [`manifest`] (finished files). A [`piece`] holds some blocks of a file whose other blocks are on
//! other hosts. Every path is resolved below a [`root`].

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod blocks;
pub mod entry;
mod escape;
pub mod manifest;
pub mod metadata;
pub mod part;
pub mod path;
pub mod piece;
pub mod root;
pub mod small;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod vfs;
