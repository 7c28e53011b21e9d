// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a copy stands, over all its conversations, and what is shown of it.

pub(super) mod copy_progress;
mod display;
pub(super) mod monitor;
pub(super) mod plan;
pub(super) mod record;
pub(super) mod retry;
