// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program of a congestion control, as the kernel reports it.

/// A program of a congestion control.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Program {
    /// The first 15 characters of its name.
    pub name: String,
    /// Instructions that the verifier processed; more than the program has, if it checked several paths.
    pub verified: u32,
    /// Instructions after the kernel's rewriting, before compilation.
    pub instructions: usize,
    /// Bytes of machine code.
    pub machine_code_bytes: usize,
}
