// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the flow analysis against scripted captures and against the ground truth of a simulation.

mod corpus;
mod ground_truth;
mod scripted;
mod simulated_capture;
