// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files between hosts: `longhaul copy` ([`copy`]), and what its ends say to each other ([`protocol`]).
//!
//! A copy starts its two ends as processes of the running program, so that program must give the arguments that it is
//! started with to this crate, as the binary `longhaul` does.
//!
//! ```no_run
//! use clap::Parser;
//! use longhaul_transfer::copy;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     copy: copy::Args,
//! }
//!
//! let cli = Cli::parse_from(["copy", "/srv/data", "far.example:/srv/"]);
//! copy::run(&cli.copy).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod copy;
pub mod protocol;
mod transport;

pub use transport::connection::SILENCE;
