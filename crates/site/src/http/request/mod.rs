// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing of requests: lines, targets, conditional headers, ranges, and XML bodies.

pub(super) mod conditions;
pub(super) mod line;
pub(super) mod properties;
pub(super) mod ranges;
pub(super) mod target;
pub mod xml;
