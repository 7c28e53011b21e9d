// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary and its commands of this crate, with real sockets, files and processes.

mod plan_namespaces;
mod plan_refusals;
