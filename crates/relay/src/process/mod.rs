// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay as a process: start and shutdown, the serving threads, and the supervisor.

pub(crate) mod run;
pub(crate) mod supervisor;
pub(crate) mod workers;
