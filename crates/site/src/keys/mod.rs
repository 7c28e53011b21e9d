// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a site: its key, and the tokens that it has issued.

pub(super) mod identity;
pub(super) mod state;
pub(super) mod tokens;
