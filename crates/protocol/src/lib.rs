// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols that relays speak with each other and with their clients, as bytes.
//!
//! - With other relays: RFC 8803 ([`convert`]), and stripes, one byte stream over several connections ([`stripe`]).
//! - With clients: SOCKS5 ([`socks5`]), SOCKS4 ([`socks4`]) and the PROXY protocol ([`proxy_protocol`]).
//! - With FTP servers: commands, replies and listings ([`ftp`]).
//! - HTTP: the head of a request ([`proxy_headers`], [`request_line`], [`framing_fields`]), the begin of a response
//!   ([`icy`]), and bodies ([`chunks`], [`byte_range`]).
//!
//! [`failure`] has the reasons for a failed connection, and the code of each reason in each
//! protocol. [`networks`] has the patterns that rules compare with a [`destination`].
//!
//! No input causes a panic.
//!
//! ```
//! use longhaul_protocol::destination::Destination;
//!
//! let to: Destination = "example.org:80".parse().unwrap();
//! assert_eq!(to.to_string(), "example.org:80");
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod byte_range;
pub mod chunks;
pub mod convert;
pub mod destination;
pub mod failure;
pub mod framing_fields;
pub mod ftp;
pub mod icy;
pub mod networks;
pub mod proxy_headers;
pub mod proxy_protocol;
pub mod request_line;
pub mod socks4;
pub mod socks5;
pub mod stripe;
