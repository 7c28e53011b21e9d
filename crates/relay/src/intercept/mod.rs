// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking connections in that were never meant for the relay: what is intercepted, the rules for
//! it, and the lease on which they hold.

pub(crate) mod keeper;
mod rules;
pub(crate) mod verify;
