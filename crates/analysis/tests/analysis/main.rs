// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary and its commands of this crate, with real sockets, files and processes.

mod tap_analyze;
mod tap_capture;
mod tap_capture_namespaces;
mod tap_capture_refusals;
mod tap_golden;
mod tap_live_namespaces;
mod tap_peers;
mod tap_process;
