// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary as a whole: its relay, its log, its installation, its output, its units of rates, the rights that it
//! needs.

#[cfg(all(feature = "copy", feature = "lab", feature = "plan", feature = "tap"))]
mod all_commands;
mod log;
mod relay;
