// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker threads: each accepts on its own share of every listener, and serves connections that it
//! accepted or that another worker handed over.

pub(crate) mod connection;
mod cpu;
pub(crate) mod load_balancer;
pub(crate) mod registry;
pub(crate) mod worker;
