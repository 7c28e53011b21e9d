// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary as a whole: its installation, its log, its output, its units of rates, the rights that it needs.

mod install;
mod log;
mod output;
mod rates;
#[cfg(feature = "bpf")]
mod rights;
