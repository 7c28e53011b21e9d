// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte streams between two longhauls, and `longhaul udt`, which transfers files and measures paths over one.
//!
//! A [`transport`] is a TCP socket or a UDT connection. A [`leg`] is a transport with or without [`tls`]; [`channel`] is their common
//! interface. [`blocking`] has connections for threads that wait.
//! [`identity`] creates and pins certificates for one session. [`duplex`] shares a TLS connection between two threads.
//! [`port`] binds UDP sockets for UDT and selects their congestion control. [`udt_info`] converts the statistics of a UDT connection to
//! `TCP_INFO`. [`udt_command`] is the command.
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
