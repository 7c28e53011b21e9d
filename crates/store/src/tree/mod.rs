// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees at both ends of a copy.
//!
//! [`scan`] finds the entries to copy, selected by a [`filter`]. [`preserve`] selects their
//! metadata. [`writer`] creates entries that need no data at the destination, and [`delete`]
//! removes extra ones, which [`trash`] keeps for a time. [`same_names`] finds names that the destination takes for the same. [`origin`] records which directory is the copy of which source. [`spread`]
//! records the hosts over which a tree was spread.

pub mod abandoned_parts;
pub mod chmod;
pub mod delete;
pub mod filter;

pub mod origin;
pub mod preserve;
pub mod same_names;
pub mod scan;
pub mod spread;
pub mod trash;
pub mod writer;
