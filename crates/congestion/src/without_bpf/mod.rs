// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of this crate that need eBPF, for a build without the feature `bpf`: each returns [`Error::WithoutBpf`].
//!
//! Types of what only eBPF can make have no values: their methods compile, and are never called.

pub(crate) mod ack_thin;
pub(crate) mod initial_window;
pub mod loader;
pub(crate) mod profile;
pub mod trials;
pub(crate) mod watch;
pub(crate) mod window_cap;

#[cfg(doc)]
use crate::Error;
