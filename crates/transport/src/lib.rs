// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte streams between two longhauls, and `longhaul udt`, which sends files and memory over one.
//!
//! A [`carrier`] is a TCP socket or a connection of UDT, [`tls`] protects one, and a [`leg`] is one
//! with TLS or without; [`channel`] is what they have in common.
//! [`blocking`] has connections that threads wait in.
//! [`identity`] makes and pins certificates for one conversation, [`duplex`] lets two threads share a TLS connection.
//! [`port`] binds a UDP port for UDT and picks its congestion control, [`terms`] tells the state of a UDT connection in
//! the words of `TCP_INFO`, [`udt_command`] is the command.
//!
//! ```
//! use longhaul_transport::port::any_address_for;
//!
//! let to = "[2001:db8::1]:9000".parse().unwrap();
//! assert_eq!(any_address_for(to), "[::]:0".parse().unwrap());
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod blocking;
pub mod channel;
pub mod duplex;
pub mod identity;
pub mod leg;
pub mod port;
pub mod tls;
pub mod transport;
pub mod udt_command;
pub mod udt_info;
