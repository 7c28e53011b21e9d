// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the program with all its commands.

mod install;
mod output;
mod rates;
#[cfg(feature = "bpf")]
mod rights;
mod tutorials;
