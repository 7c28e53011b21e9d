// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request says, checked before a library reads it.

pub(super) mod body;
pub(super) mod conditions;
pub(super) mod element;
pub(super) mod line;
pub(super) mod properties;
pub(super) mod ranges;
pub(super) mod target;
pub mod xml;
