// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the analysis against a simulated TCP with a known ground truth. The capture point sees segments only; the
//! truth is the sender's window, its state, and the queue.

mod ack_clocking;
mod any_input;
mod controls;
mod counts;
mod ecn;
mod limits;
mod phases;
mod positions;
mod reference;
mod remedies;
mod simulated_flow;
mod two_point;
