// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: TCP sockets of this process and of other processes, with their state in the kernel; UDP sockets with the
//! kernel's timestamps; packet capture on an interface.

pub mod activation;
pub mod claim;
mod control;
pub mod disable_gso;
pub mod icmp_error;
pub mod limiter;
mod option;
pub mod packet_ring;
pub mod process_sockets;
pub mod send_buffer;
pub mod sock_diag;
pub mod socket;
pub mod tcp_info;
pub mod timestamps;
