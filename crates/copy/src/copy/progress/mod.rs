// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a copy over all its sessions, and its display.

pub(super) mod copy_progress;
mod display;
pub(super) mod monitor;
pub(super) mod plan;
pub(super) mod record;
pub(super) mod retry;
