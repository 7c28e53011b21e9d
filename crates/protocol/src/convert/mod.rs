// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 0-RTT TCP Convert Protocol (RFC 8803), longhaul's relay-to-relay preamble. No I/O.
//!
//! The client sends one message, followed at once by its own bytes. The converter answers with one
//! message before the first relayed byte. longhaul adds private TLVs (RFC 8803 §10.2.2 keeps 192–255
//! free for this):
//!
//! * `NAME` (0xC0): the destination's host name, to be resolved at the last relay. The Connect TLV then
//!   carries the port and the unspecified address.
//! * `HOP` (0xC1), one for each relay still to pass, in order. Each relay removes itself from the list, and one answer
//!   comes back. Nested Convert messages would need no private TLV, but would hide from a relay that its next leg leads
//!   to another relay. It could then use no pooled connection and no TLS, and the client would read one answer per hop.
//! * `HOP_LIMIT` (0xC2): number of relays that the message may still pass, which ends a loop of relays. The bytes after
//!   it carry the time for which the answer may be delayed
//!   ([`Request::reply_delay`]), the time for which the requester waits ([`Request::timeout`]), and whether the client is on
//!   another host ([`Request::is_client_remote`]). The first versions of longhaul take these bytes for padding.
//! * `STRIPES` (0xC3): this connection is the first of several that carry one byte stream together
//!   ([`crate::stripe`]). Pieces with headers follow the request and the answer.
//! * `JOIN` (0xC4), alone in its message: this connection joins such a group.
//! * `CAUSE` (0xC5), after the Error TLV of a refusal: what failed at which relay.
//!
//! A converter that does not know these TLVs answers "Unsupported Message", as the RFC asks.

mod answer;
mod cause;
mod error;
mod first_message;
mod group;
mod limits;
mod message;
mod request;

pub use answer::Answer;
pub use cause::Cause;
pub use error::{ConvertError, ErrorCode};
pub use first_message::FirstMessage;
pub use group::{GroupId, Join, STRIPES_MAX, Stripes};
pub use limits::{HOPS_MAX, REPLY_DELAY_MAX};
pub use message::MESSAGE_LEN_MAX;
pub use request::Request;

/// The Convert service's TCP port.
pub const PORT: u16 = 5124;
