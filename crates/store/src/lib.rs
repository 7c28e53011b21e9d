// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files at either end of a copy: trees and their metadata, blocks and their hashes, what is
//! durable. Blocking, for threads; no network, no clock.
//!
//! [`scan`] finds what there is to copy and [`place`] makes what needs no data. What is durable at a
//! destination, and how it becomes so, is in [`part`] (files of many blocks), [`small`] (files of
//! one) and [`manifest`] (what is complete); [`origin`] says whose copy a directory is; a [`piece`] is
//! what one of several places keeps of a file, and [`spread`] which places there are. All of it happens beneath a [`root`].

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod acl;
pub mod blocks;
pub mod chmod;
pub mod delete;
pub mod direct;
pub mod entry;
mod escape;
pub mod filter;
mod handle;
mod holes;
pub mod journal;
mod label;
pub mod manifest;
pub mod medium;
pub mod metadata;
pub mod origin;
pub mod part;
pub mod path;
pub mod piece;
pub mod place;
#[cfg(test)]
mod power_loss;
pub mod preserve;
pub mod root;
pub mod scan;
pub mod small;
pub mod spread;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tree_tests;
