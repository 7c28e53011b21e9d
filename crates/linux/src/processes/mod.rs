// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: their users, namespaces and cgroups, their limits and resource usage, and the cleanup when they end.

pub mod account;
pub mod cgroup;
pub mod cleanup_process;
pub mod contained;
pub mod memory;
pub mod mtu_probing;
pub mod process;
pub mod process_usage;
pub mod sandbox;
pub mod supervise;
pub mod transient_cgroup;

pub use process::{descriptors, file_size};
