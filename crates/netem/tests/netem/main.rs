// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the emulated link under simulated time: the outcome of each packet, and its time.

mod ack_rules;
mod aqm_schedules;
mod corpus;
mod jitter_statistics;
mod line;
mod loss_statistics;
mod observer;
mod queue_disciplines;
mod setting_text;
mod trace_text;
mod train;
