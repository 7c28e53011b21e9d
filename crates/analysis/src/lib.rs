// SPDX-License-Identifier: MIT OR Apache-2.0
//! What captured flows did, and what limited them.
//!
//! [`flow::Flows`] is shown one segment after the other and tells a [`flow::Sink`] of bins, and of each
//! flow when it is over. It never reads a clock or a file, and takes no memory for a packet once it is warm.

pub mod flow;
