// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files at either end of a copy: trees and their metadata, blocks and their hashes, what is
//! durable. Blocking, for threads; no network, no clock.
//!
//! [`tree`] finds what there is to copy and makes what needs no data. What is durable at a
//! destination, and how it becomes so, is in [`part`] (files of many blocks), [`small`] (files of
//! one) and [`manifest`] (what is complete); a [`piece`] is what one of several places keeps of a file.
//! All of it happens beneath a [`root`].

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod blocks;
pub mod entry;
mod escape;
pub mod manifest;
pub mod medium;
pub mod metadata;
pub mod part;
pub mod path;
pub mod piece;
pub mod root;
pub mod small;
#[cfg(test)]
mod tests;
pub mod tree;
