// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the emulated link under simulated time: the fate of each packet, and its time.

mod ack_rules;
mod corpus;
mod jitter_statistics;
mod line;
mod loss_statistics;
mod observer;
mod queue_rules;
mod rule_text;
mod trace_text;
mod train;
