// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the analysis of a capture says, held against a simulated TCP whose truth is known: the tap
//! sees segments only, the truth is the sender's window, its state, and the queue.

mod ack_clocking;
mod any_input;
mod counts;
mod limits;
mod phases;
mod reference;
mod simulated_flow;
mod two_point;
