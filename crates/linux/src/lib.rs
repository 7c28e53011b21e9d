// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operating system: namespaces, TUN, sockets, splice, clock.
//!
//! All `unsafe` code of longhaul is here, behind safe functions, except the calls of `congestion` into its own C. This
//! crate makes no decisions: other crates decide, and it acts.
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
pub mod programs;
pub mod random;
mod sockets;

pub use io::{pipe_pool, private_file, splice, transfer_buffer, wait};
pub use network::{
    ack_pacing, diversion, ethtool, interface, interface_list, netfilter, netns, queueing, routes,
    sysctl, tun,
};
pub use processes::{
    account, cgroup, cleanup_process, contained, descriptors, file_size, memory, mtu_probing,
    process, process_usage, sandbox, supervise, transient_cgroup,
};
pub use sockets::{
    activation, claim, disable_gso, icmp_error, limiter, packet_ring, process_sockets, send_buffer,
    sock_diag, socket, tcp_info, timestamps,
};
