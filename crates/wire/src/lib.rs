// SPDX-License-Identifier: MIT OR Apache-2.0
//! What relays and copies say to each other and to their clients, as bytes.
//!
//! A view reads or writes fields in place and allocates nothing; a value holds the meaning. No
//! input makes anything here panic.

pub mod block;
pub mod convert;
pub mod destination;
pub mod proxy_protocol;
pub mod socks5;
pub mod stripe;
