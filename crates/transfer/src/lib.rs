// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files between hosts: `longhaul copy` ([`copy`]), and the protocol of its processes ([`protocol`]).
//!
//! A copy starts its two endpoints as processes of the running program. That program must therefore pass its arguments
//! to this crate, as the binary `longhaul` does.
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

pub use transport::connection::SILENCE_TIMEOUT;
