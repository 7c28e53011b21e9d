// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls in C, each in one header (`src/bpf/NAME_math.h`) that is compiled twice: into
//! an eBPF program for the kernel ([`object`]) and into a library that runs under simulated time
//! ([`math`]).
//!
//! - [`loader`] loads them into a kernel and unloads them; [`pins`] are the bpffs pins that keep them loaded.
//! - [`watch`] reads the connections that use them.
//! - [`socket_parameters`] sets parameters of single sockets.
//! - [`choice`] resolves a name on this machine.
//! - [`sockets`] sets options of other programs' sockets.
//! - [`ack_thin`] suppresses pure ACKs at a receiver.
//! - [`trials`] loads programs to find out whether this kernel accepts them.
//!
//! Without the feature `bpf`, the same functions return [`Error::WithoutBpf`]. The arithmetic, and the kernel's own
//! congestion controls, need no eBPF.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod ack_thin;
pub mod choice;
mod error;
#[cfg(feature = "bpf")]
mod feature_probe;
#[cfg(feature = "bpf")]
mod links;
#[cfg(feature = "bpf")]
pub mod loader;
pub mod math;
#[cfg(feature = "bpf")]
pub mod object;
pub mod pins;
mod program;
pub mod socket_parameters;
pub mod sockets;
#[cfg(feature = "bpf")]
pub mod trials;
pub mod watch;
#[cfg(not(feature = "bpf"))]
mod without_bpf;

pub use error::Error;
#[cfg(not(feature = "bpf"))]
pub use without_bpf::{loader, trials};
