// SPDX-License-Identifier: MIT OR Apache-2.0
//! PostgreSQL servers for tests, each in a temporary directory. All their files and processes are removed, also when
//! the test is killed.
//!
//! ```no_run
//! use longhaul_testprograms::postgres::{Server, Setup};
//!
//! // Most tests share one server. Each has its own database.
//! let url = Server::shared().create_database();
//!
//! // A test that kills the server, or needs it in another network namespace, starts its own. `enter` makes a command
//! // run in that namespace. The address is one of that namespace.
//! # fn enter(_: &mut std::process::Command) {}
//! let mut server = Setup::default()
//!     .listen("10.9.0.1:5432".parse().unwrap())
//!     .prepare_commands(enter)
//!     .durable()
//!     .start();
//! let url = server.create_database();
//! server.kill();
//! server.restart();
//! ```
//!
//! Starting a server panics if PostgreSQL is not installed, and the message names `scripts/setup`. A server listens on
//! a Unix socket that only its own user and root can reach. It listens on a TCP port, with a password, only if
//! configured.

mod account;
mod server;
mod server_files;
mod setup;

pub use server::Server;
pub use setup::Setup;
