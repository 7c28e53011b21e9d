// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the analysis of a capture says, held against a simulated TCP whose truth is known: the tap
//! sees segments only, the truth is the sender's window, its state, and the queue.

mod any;
mod both_ends;
mod counts;
mod limits;
mod phases;
mod reference;
mod releases;
mod truth;
