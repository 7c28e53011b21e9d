// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initial congestion window of single sockets, and whether their SYN offers ECN (`bpf/initial_window.bpf.c`).
//!
//! Linux has no socket options for them: they are a route's `initcwnd` and `features ecn`, or set by a BPF program when the
//! connection begins. The program is attached to this process's cgroup, but changes only sockets with a value in their
//! storage ([`set`]), and not those of other processes. The kernel detaches it when this process ends, for whatever
//! reason.

#[cfg(feature = "bpf")]
mod program;

#[cfg(not(feature = "bpf"))]
pub use crate::without_bpf::initial_window::{Error, attach, attached_to, set, set_start};
#[cfg(feature = "bpf")]
pub(crate) use program::check_permission;
#[cfg(feature = "bpf")]
pub use program::{Error, attach, attached_to, set, set_start};

use std::ops::RangeInclusive;

/// Allowed windows, in segments. The kernel's default is 10 (RFC 6928).
pub const RANGE: RangeInclusive<u32> = 1..=1024;
