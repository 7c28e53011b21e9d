// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operating system: namespaces, TUN, sockets, splice, clock.
//!
//! All `unsafe` of longhaul is here, behind safe functions, but for the calls of `congestion` into its own C. Nothing here decides anything: other
//! crates decide, this one acts.
//!
//! ```
//! use longhaul_linux::clock;
//!
//! let before = clock::now();
//! assert!(clock::now() >= before);
//! ```
#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![allow(unsafe_code)]

pub mod clock;
mod io;
mod network;
mod processes;
mod sockets;

pub use io::{conduit, pipe_pool, private_file, splice, wait};
pub use network::{
    ack_pacing, diversion, ethtool, interface, interface_list, netfilter, netns, sysctl, tun,
};
pub use processes::{
    account, attended, cgroup, contained, descriptors, executor, file_size, memory, mtu_probing,
    process, process_usage, sandbox, transient_cgroup,
};
pub use sockets::{
    activation, claim, packet_ring, process_sockets, single_segments, sock_diag, socket, tcp_info,
    timestamps,
};
