// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of this crate's commands in the binary, with real sockets, files and processes.

mod link_capture;
mod link_ends;
mod link_namespaces;
mod link_refusals;
