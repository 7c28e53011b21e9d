// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of this crate's command in the binary, with real sockets, files and processes.

mod probe_namespaces;
mod probe_refusals;
