// SPDX-License-Identifier: MIT OR Apache-2.0
//! IP and TCP headers, checksums, super-packets, and the files and filters of captures.
//!
//! A view reads or writes fields in place and allocates nothing; a value holds the meaning. No input
//! makes anything here panic.
//!
//! - [`ip`] and [`tcp`] are the headers (RFC 791, RFC 8200, RFC 9293), [`checksum`] is RFC 1071.
//! - [`tunnel`] finds the IP packet inside of another one.
//! - [`super_packet`] cuts what an offload joined into the segments that a wire has; [`vnet`] is the
//!   header that says how they were joined.
//! - [`capture`] reads and writes pcap and pcapng, [`packet_filter`] compiles filters for the kernel.
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
