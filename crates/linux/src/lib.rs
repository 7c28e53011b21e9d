// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operating system: namespaces, TUN, sockets, splice, clock.
//!
//! All `unsafe` of longhaul is here, behind safe functions. Nothing here decides anything: other
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

pub mod account;
pub mod ack_pacing;
pub mod activation;
pub mod attended;
pub mod cgroup;
pub mod clock;
pub mod conduit;
pub mod descriptors;
pub mod ethtool;
pub mod executor;
pub mod file_size;
pub mod interface;
pub mod interface_list;
pub mod limiter;
pub mod memory;
pub mod netfilter;
pub mod netns;
pub mod packet_ring;
pub mod pipe_pool;
pub mod private_file;
pub mod process;
pub mod process_sockets;
pub mod process_usage;
pub mod sandbox;
pub mod single_segments;
pub mod sock_diag;
pub mod socket;
pub mod splice;
pub mod sysctl;
pub mod tcp_info;
pub mod timestamps;
pub mod transient_cgroup;
pub mod tun;
pub mod wait;
