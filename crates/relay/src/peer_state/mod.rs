// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a peer at this moment, which outlives a reload: whether it is up, where it was reached, what it
//! refused, how its ready connections do.

pub(crate) mod health;
pub(crate) mod place;
pub(crate) mod state;
