// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between longhaul processes on different hosts. The modules `copy` and `site` use it.
//!
//! The coordinator sends an endpoint its instructions ([`control`]) and receives its reports ([`report`]). The two
//! endpoints of a copy exchange messages ([`message`]) and blocks ([`block`]). A client that connects to a site by its
//! [`address`] authenticates with a [`token`] first ([`auth`]).
//!
//! Messages have the types of the crates `store` and `scheduling`: entries, measurements, placements. `golden.rs` fixes
//! the bytes of each message, so a changed field of such a type fails there. Whoever changes one, or adds a variant,
//! raises the version of the protocol.

pub mod address;
pub mod auth;
pub mod block;
pub mod control;
#[cfg(test)]
mod golden;
pub mod hello;
pub mod message;
pub mod options;
pub mod report;
pub mod sections;
pub mod sources;
pub mod token;

pub use hello::PROTOCOL_VERSION;
