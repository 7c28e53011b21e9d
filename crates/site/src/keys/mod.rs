// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a site keeps: the key that it is known by, and the tokens that it has given out.

pub(super) mod identity;
pub(super) mod state;
pub(super) mod tokens;
