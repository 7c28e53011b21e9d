// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a flow, against captures written by hand and the truth of a simulation.

mod simulated_tap;
mod tap_flows;
mod tap_truth;
