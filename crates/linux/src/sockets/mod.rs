// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: of TCP, of this process and of others, and what the kernel says of them; UDP with the kernel's times;
//! packets as an interface sees them.

pub mod activation;
pub mod claim;
pub mod disable_gso;
mod option;
pub mod packet_ring;
pub mod process_sockets;
pub mod sock_diag;
pub mod socket;
pub mod tcp_info;
pub mod timestamps;
