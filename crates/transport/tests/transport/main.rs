// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary and its commands of this crate, with real sockets, files and processes.

mod libudt_examples;
mod udt;
