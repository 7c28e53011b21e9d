// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests against scripted captures.

mod acks;
mod any_segments;
mod bins;
mod capture_faults;
mod capture_gaps;
mod copies;
mod data;
mod ecn;
mod flows;
mod handshake_termination;
mod limits;
mod retransmissions;
mod round_trips;
mod script;
mod simulated;
