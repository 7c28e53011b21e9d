// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading of scenarios: their sources, bases, parameters, keys and cells.

mod book;
pub(crate) mod cells;
pub(crate) mod inherit;
pub(crate) mod keys;
pub(crate) mod library;
pub(crate) mod parameters;

pub(crate) use book::{Book, Cell, Choices, pairs};
pub(crate) use library::Source;
