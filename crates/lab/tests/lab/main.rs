// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary and its commands of this crate, with real sockets, files and processes.

mod corpus;
mod lab_batch;
mod lab_commands;
mod lab_flows;
mod lab_relays;
mod lab_sandbox;
mod lab_simulated;
