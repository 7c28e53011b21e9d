// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 0-RTT TCP Convert Protocol (RFC 8803), longhaul's relay-to-relay preamble. No I/O.
//!
//! The client sends one message and its own bytes right behind it; the converter answers with one
//! message before the first relayed byte. longhaul adds private TLVs (RFC 8803 §10.2.2 keeps 192–255
//! free for this):
//!
//! * `NAME` (0xC0): the destination's host name, to be resolved at the last relay. The Connect TLV then
//!   carries the port and the unspecified address.
//! * `HOP` (0xC1), one for each relay still to pass, in order. Nested Convert messages would need no
//!   private TLV, but would hide from a relay that its next leg leads to another relay: it could
//!   take no ready connection from its pool, encrypt nothing, and the client would read one answer
//!   a hop. With the list, each relay strips itself off and one answer comes back.
//! * `HOP_LIMIT` (0xC2): relays that the message may still pass, so that relays which point at each
//!   other end the chase; and, where the first versions had padding and look at nothing, how long the
//!   answer may wait ([`Request::patience`]), how long the asker waits ([`Request::time`]), and
//!   whether its client is elsewhere ([`Request::from_elsewhere`]).
//! * `STRIPES` (0xC3): this connection is the first of several that carry one byte stream together
//!   ([`crate::stripe`]): behind the request and behind the answer come pieces with headers.
//! * `JOIN` (0xC4), alone in its message: this connection is a further one of such a group.
//! * `CAUSE` (0xC5), behind the error of a refusal: what failed at which relay.
//!
//! A converter that does not know them answers "Unsupported Message", as the RFC asks.

mod answer;
mod cause;
mod error;
mod group;
mod limits;
mod message;
mod opening;
mod request;

pub use answer::Answer;
pub use cause::Cause;
pub use error::{ConvertError, ErrorCode};
pub use group::{GroupId, Join, STRIPES_MAX, Stripes};
pub use limits::{HOPS_MAX, PATIENCE_MAX};
pub use message::MESSAGE_LEN_MAX;
pub use opening::Opening;
pub use request::Request;

/// The Convert service's TCP port.
pub const PORT: u16 = 5124;
