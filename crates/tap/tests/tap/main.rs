// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul tap` on captures and real traffic. Its results are compared with captures written by hand, with
//! other programs and with the ground truth of a simulation.

mod corpus;
mod tap_analyze;
mod tap_capture;
mod tap_capture_namespaces;
mod tap_capture_refusals;
mod tap_golden;
mod tap_live_namespaces;
mod tap_peers;
mod tap_process;
mod tap_tunnels;
mod tap_udp;
mod tap_verdicts;
