// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test support: the longhaul binary, a browser, a PostgreSQL server, other processes, waits, schemas of configuration
//! files, and a record of skipped tests.
//!
//! ```
//! # use longhaul_testprograms::skip;
//! let is_mounted = std::path::Path::new("/proc/self").exists();
//! assert!(skip::require(is_mounted, "/proc"));
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod binary;
pub mod browser;
pub mod postgres;
pub mod process;
pub mod schema;
pub mod skip;
pub mod wait;

pub use binary::longhaul;
