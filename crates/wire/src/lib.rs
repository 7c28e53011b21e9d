// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes on the wire: header views, checksums, super-packets and relay handshakes.
//!
//! A view reads or writes fields in place and allocates nothing; a value holds the meaning. No
//! input makes anything here panic.

pub mod block;
pub mod capture;
pub mod checksum;
pub mod convert;
pub mod destination;
pub mod ip;
pub mod packet_filter;
pub mod proxy_protocol;
pub mod socks5;
pub mod stripe;
pub mod super_packet;
pub mod tcp;
pub mod vnet;
