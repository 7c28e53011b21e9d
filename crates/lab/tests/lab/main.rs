// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integration tests of `longhaul lab` with real sockets, files and processes.

mod corpus;
mod lab_batch;
mod lab_commands;
mod lab_flows;
mod lab_relays;
mod lab_sandbox;
mod lab_simulated;
