// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may come in, and how many: for copies and for HTTP alike.

pub(super) mod accept;
pub(super) mod connections;
pub(super) mod refusals;
