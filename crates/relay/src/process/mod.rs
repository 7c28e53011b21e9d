// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay as a process: how it starts and ends, the threads that serve, and the one that looks after them.

pub(crate) mod run;
pub(crate) mod supervisor;
pub(crate) mod workers;
