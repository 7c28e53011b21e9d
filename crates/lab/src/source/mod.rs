// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a scenario's text to its cells: where texts come from, what they stand on, their parameters and their keys.

mod book;
pub(crate) mod cells;
pub(crate) mod inherit;
pub(crate) mod keys;
pub(crate) mod library;
pub(crate) mod parameters;

pub(crate) use book::{Book, Cell, Choices, pairs};
pub(crate) use library::Source;
