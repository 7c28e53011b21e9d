// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections between hosts: TLS 1.3 over TCP or UDT.

pub(crate) mod connection;
pub(crate) mod send_queue;
