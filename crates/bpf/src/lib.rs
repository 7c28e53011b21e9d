// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls in C, each in one header (`src/bpf/NAME_math.h`) that is compiled twice: into
//! an eBPF program for the kernel ([`object`]) and into a library that runs under simulated time
//! ([`math`]).

pub mod ack_thin;
pub mod math;
pub mod object;
