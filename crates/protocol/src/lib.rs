// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols that relays speak with each other and with their clients, as bytes: RFC 8803 ([`convert`]), SOCKS5
//! ([`socks5`]) and its ancestors ([`socks4`]), the head of an HTTP request ([`proxy_headers`], [`request_line`]) and
//! what comes behind it ([`chunks`], [`byte_range`]), the PROXY protocol ([`proxy_protocol`]), pieces of a
//! stream over several connections ([`stripe`]). [`failure`] has the reason why a connection was not made, and the word
//! for it in each protocol; [`networks`] what rules compare a [`destination`] with.
//!
//! A view reads or writes fields in place and allocates nothing; a value holds the meaning. No input makes anything
//! here panic.
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
pub mod networks;
pub mod proxy_headers;
pub mod proxy_protocol;
pub mod request_line;
pub mod socks4;
pub mod socks5;
pub mod stripe;
