// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files between hosts: `longhaul copy` ([`copy`]), and the protocol of its processes ([`protocol`]).
//!
//! A copy starts its two endpoints as processes of the running program. That program must therefore pass its arguments
//! to this crate, as the binary `longhaul` does.
//!
//! # Tour
//!
//! | folder | subject |
//! |---|---|
//! | `protocol` | messages between longhaul processes; `protocol/golden.rs` fixes their bytes |
//! | `connection.rs` | the connections that carry them: TLS 1.3 over TCP or UDT |
//! | `copy/args`, `copy/config.rs` | the command line, and the checked configuration |
//! | `copy/run.rs` | the coordinator: starts the endpoints, follows them, starts the next session |
//! | `copy/session` | the two endpoints as the coordinator sees them: child process, ssh or site |
//! | `copy/endpoint` | the processes at both ends; `source` reads and sends, `target` writes and syncs |
//! | `copy/progress` | reports of the endpoints, displayed and recorded |
//! | `copy/workers` | `--leases`: several workers share one copy through a database |
//! | `copy/distributed` | `--distributed`: hosts without a shared file system store a share each |
//! | `copy/verify` | `copy verify`: a tree compared with its recorded hashes |
//!
//! ```no_run
//! use clap::Parser;
//! use longhaul_copy::copy;
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

mod connection;
pub mod copy;
pub mod protocol;

pub use connection::IDLE_TIMEOUT;
