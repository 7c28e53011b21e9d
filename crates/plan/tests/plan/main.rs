// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that run `longhaul plan` with real sockets, files and processes.

mod plan_namespaces;
mod plan_refusals;
