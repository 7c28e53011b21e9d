// SPDX-License-Identifier: MIT OR Apache-2.0
//! PostgreSQL servers for tests, in a temporary directory. All their files and processes are removed, also when
//! the test is killed.
//!
//! ```no_run
//! use longhaul_testbed::postgres::{Server, Setup};
//!
//! // Most tests share a server, with a database for each.
//! let url = Server::shared().database();
//!
//! // Tests that kill it, or need it elsewhere, have one of their own. `enter` may make a command run in a
//! // network namespace; the address is one of that namespace.
//! # fn enter(_: &mut std::process::Command) {}
//! let mut server = Setup::default()
//!     .listen("10.9.0.1:5432".parse().unwrap())
//!     .prepare_commands(enter)
//!     .durable()
//!     .start();
//! let url = server.database();
//! server.kill();
//! server.restart();
//! ```
//!
//! Without PostgreSQL's programs it panics and names `scripts/setup`. Servers listen on a Unix socket that only
//! their own user (and root) can reach. They listen on a TCP port, with a password, only if configured.

mod account;
mod server;
mod server_files;
mod setup;

pub use server::Server;
pub use setup::Setup;
