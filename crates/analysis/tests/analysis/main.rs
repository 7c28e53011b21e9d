// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap` on captures and real traffic, and what is said of a flow: against captures written by hand, other
//! programs and the truth of a simulation.

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
