// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing of requests, with checks before a library reads them.

pub(super) mod body;
pub(super) mod conditions;
pub(super) mod element;
pub(super) mod line;
pub(super) mod properties;
pub(super) mod ranges;
pub(super) mod target;
pub mod xml;
