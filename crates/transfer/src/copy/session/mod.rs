// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversations of two ends, as the process sees them that was called: it starts a source and a target, makes them known
//! to each other, and hears what becomes of it.

pub(super) mod endpoint_process;
pub(super) mod follow;
pub(super) mod job;
pub(crate) mod keyring;
pub(super) mod sharing;
mod site_client;
pub(super) mod startup;
