// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls in C, each in one header (`src/bpf/NAME_math.h`) that is compiled twice: into
//! an eBPF program for the kernel ([`object`]) and into a library that runs under simulated time
//! ([`math`]).
//!
//! [`loader`] brings them to a kernel and takes them away, [`pins`] is where they stay meanwhile,
//! [`watch`] sees the connections that use them, [`own_parameters`] are those of one socket, [`choice`] says what a name means here.
//! [`sockets`] gives the sockets of any program what they know nothing of.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod ack_thin;
pub mod choice;
mod error;
mod feature_probe;
mod links;
pub mod loader;
pub mod math;
pub mod object;
pub mod pins;
pub mod socket_parameters;
pub mod sockets;
pub mod trials;
pub mod watch;

pub use error::Error;
