// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated wire under simulated time: what becomes of each packet, and when.

mod ack_rules;
mod corpus;
mod jitter_statistics;
mod line;
mod loss_statistics;
mod queue_rules;
mod rule_text;
mod trace_text;
mod train;
mod witness;
