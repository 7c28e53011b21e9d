// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions of two endpoints, as the coordinator sees them. It starts a source and a target, passes each the contact data
//! of the other, and receives their reports.

pub(super) mod endpoint_process;
pub(super) mod follow;
pub(super) mod job;
pub(crate) mod keyring;
pub(super) mod sharing;
mod site_client;
mod ssh_process;
mod ssh_tunnel;
pub(super) mod startup;
