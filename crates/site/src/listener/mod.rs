// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission of clients, for copies and for HTTP.

pub(super) mod accept;
pub(super) mod connections;
pub(super) mod refusals;
