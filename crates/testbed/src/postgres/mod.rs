// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: a PostgreSQL server of their own, in a temporary directory, of which nothing is left, also when
//! the test is killed.
//!
//! ```no_run
//! use longhaul_testbed::postgres::{Server, Setup};
//!
//! // Most tests share a server, and have a database each.
//! let url = Server::shared().database();
//!
//! // Those that kill it, or want it elsewhere, have one of their own. `within` makes a command run in a
//! // network namespace, for instance; the address is one of that namespace.
//! # fn within(_: &mut std::process::Command) {}
//! let mut server = Setup::default()
//!     .listen("10.9.0.1:5432".parse().unwrap())
//!     .within(within)
//!     .durable()
//!     .start();
//! let url = server.database();
//! server.kill();
//! server.start_again();
//! ```
//!
//! Without PostgreSQL's programs it panics and names `scripts/setup`. Servers listen on a Unix socket that only
//! their own user (and root) can reach, and on a TCP port with a password only if told to.

mod account;
mod place;
mod server;
mod setup;

pub use server::Server;
pub use setup::Setup;
