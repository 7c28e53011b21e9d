// SPDX-License-Identifier: MIT OR Apache-2.0
//! IP and TCP headers, checksums, super-packets, and the files and filters of captures.
//!
//! A view reads or writes header fields in place and allocates nothing. A value holds what the fields mean. No function
//! panics on any input from a file or a device.
//!
//! - [`ip`] and [`tcp`] read headers (RFC 791, RFC 8200, RFC 9293). [`checksum`] is the Internet checksum (RFC 1071).
//! - [`tunnel`] finds the inner IP packet of a tunnel.
//! - [`super_packet`] cuts a packet that an offload joined into the segments of the wire. [`vnet`] is the header that
//!   says how to cut it.
//! - [`capture`] reads and writes pcap and pcapng files. [`packet_filter`] reads programs of packet filters.
//!
//! ```
//! use longhaul_packet::checksum::checksum;
//!
//! // The example of RFC 1071 §3, whose sum is 0xddf2.
//! let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
//! assert_eq!(checksum(&words), !0xddf2);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod capture;
pub mod checksum;
pub mod ip;
pub mod packet_filter;
pub mod super_packet;
pub mod tcp;
pub mod tunnel;
pub mod vnet;
