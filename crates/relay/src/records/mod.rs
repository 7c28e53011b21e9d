// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a relay counts and writes down.

pub(crate) mod counters;
pub(crate) mod journal;
pub(crate) mod survey;
pub(crate) mod times;
