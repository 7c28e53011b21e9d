// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs of a dozen instructions: written down one by one, loaded by bpf(2) itself. It takes
//! neither a compiler nor a library, here or on the host that runs them.

pub(crate) mod instruction;
pub(crate) mod syscall;
