// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 0-RTT TCP Convert Protocol (RFC 8803), longhaul's relay-to-relay preamble. No I/O.
//!
//! The client sends one message. Its own bytes follow at once. The converter answers with one message before the first
//! relayed byte. longhaul adds private TLVs (RFC 8803 §10.2.2 keeps 192–255 free for this):
//!
//! * `NAME` (0xC0): the destination's host name, which the last relay resolves. The Connect TLV then carries the port
//!   and the unspecified address.
//! * `HOP` (0xC1): a relay that the message has still to pass. There is one TLV for each, in order. Each relay removes
//!   the next hop's TLV before it forwards the message. One answer comes back through all of them.
//! * `HOP_LIMIT` (0xC2): number of relays that the message may still pass, which ends a loop of relays. The bytes after
//!   it carry [`Request::reply_delay`], [`Request::timeout`], [`Request::is_client_remote`] and [`Request::dscp`]. The
//!   first versions of longhaul ignore them as padding.
//! * `STRIPES` (0xC3): this connection is the first of several that carry one byte stream together
//!   ([`crate::stripe`]). Pieces with headers follow the request and the answer.
//! * `JOIN` (0xC4): this connection joins such a group. It is the only TLV of its message.
//! * `CAUSE` (0xC5), after the Error TLV of a refusal: what failed, and at which relay.
//!
//! A converter that does not know these TLVs answers "Unsupported Message", as the RFC requires.
//!
//! Why `HOP`, and not a Convert message inside another one? That would need no private TLV. But a relay would not see
//! that its next leg leads to another relay. So it could use no pooled connection and no TLS there, and the client
//! would read one answer per hop.

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
