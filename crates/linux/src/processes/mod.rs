// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: as whom, where and in which cgroup they run, what limits them and what they use, and what is done when
//! they end.

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
