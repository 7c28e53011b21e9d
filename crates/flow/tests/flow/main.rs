// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a flow, against captures written by hand and the truth of a simulation.

mod ground_truth;
mod scripted;
mod simulated_tap;
