// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that all commands of longhaul share: exit codes, lines on standard output and standard error, the
//! log, event loops, threads and the version.
//!
//! A command returns `anyhow::Result`. For wrong input, a missing right or a missing feature of the machine, the error
//! is an [`exit::Refusal`]. `main` turns the outcome into an exit code:
//!
//! ```
//! use longhaul_command::{console, exit::{self, Refusal}, outln};
//!
//! fn run(rate: &str) -> anyhow::Result<()> {
//!     let rate: u64 = rate.parse().map_err(|_| Refusal::usage(format!("{rate} is not a rate: try 100")))?;
//!     outln!("rate {rate}");
//!     Ok(())
//! }
//!
//! assert_eq!(exit::report_outcome(&console::check_output(run("100"))), 0);
//! assert_eq!(exit::report_outcome(&console::check_output(run("fast"))), 2);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod console;
pub mod event_loop;
pub mod exit;
pub mod line_writer;
pub mod logging;
pub mod manual;
pub mod threads;

use std::sync::OnceLock;

static VERSION: OnceLock<&'static str> = OnceLock::new();

/// Returns the released version of longhaul, without the commit: `0.1.0`.
#[must_use]
pub const fn release() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns the version of this program, with the commit that it was built from: `0.1.0+1f2e3d4c5b6a`. Before a call of
/// [`set_version`], it is the same as [`release`].
#[must_use]
pub fn version() -> &'static str {
    VERSION.get().copied().unwrap_or(release())
}

/// Sets the version of this program; later calls do nothing. Only the binary knows the commit, so that a new commit
/// rebuilds no other crate.
pub fn set_version(version: &'static str) {
    let _first_call_counts = VERSION.set(version);
}
