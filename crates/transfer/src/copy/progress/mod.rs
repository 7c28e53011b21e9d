// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a copy stands, over all its conversations, and what is shown of it.

mod display;
pub(super) mod hearing;
pub(super) mod patience;
pub(super) mod plan;
pub(super) mod record;
pub(super) mod standing;
