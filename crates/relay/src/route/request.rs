// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request of a client.

use longhaul_protocol::{
    convert::{self, HOPS_MAX},
    destination::Destination,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Request of a client, from any kind of listener.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) destination: Destination,
    /// Relays to pass, as named by the previous relay, nearest first.
    pub(crate) hops: Vec<SocketAddr>,
    /// Maximum number of further relays, this one included.
    pub(crate) hop_limit: u8,
    /// Source address and port of the upstream leg, if not the relay's own.
    pub(crate) source: Option<SocketAddr>,
    /// Time that the answer to the client may wait for bytes of the destination, to be sent in one
    /// segment. Zero for clients that wait for the answer.
    pub(crate) reply_delay: Duration,
    /// Time at which the previous relay gives up.
    pub(crate) deadline: Option<Instant>,
    /// Bytes that the client sent behind its request.
    pub(crate) early_bytes: Vec<u8>,
    /// Whether the leg to a peer may be the first of a stripe group.
    pub(crate) may_stripe: bool,
    /// The client's DSCP, for legs whose profile has none.
    pub(crate) dscp: u8,
}

impl Request {
    /// Returns the request of a client that is not a relay.
    pub(crate) fn to(destination: Destination, early: Vec<u8>) -> Self {
        Self {
            destination,
            hops: Vec::new(),
            hop_limit: HOPS_MAX as u8,
            source: None,
            reply_delay: Duration::ZERO,
            deadline: None,
            early_bytes: early,
            may_stripe: false,
            dscp: 0,
        }
    }

    /// Returns the request with the longest reply delay: the client waits for nothing but the
    /// destination's bytes.
    pub(crate) fn with_longest_reply_delay(self) -> Self {
        Self {
            reply_delay: convert::REPLY_DELAY_MAX,
            ..self
        }
    }
}

impl From<(convert::Request, Vec<u8>)> for Request {
    fn from((request, early): (convert::Request, Vec<u8>)) -> Self {
        Self {
            destination: request.destination,
            hops: request.hops,
            hop_limit: request.hop_limit,
            source: None,
            reply_delay: request.reply_delay,
            deadline: deadline(request.timeout),
            early_bytes: early,
            may_stripe: false,
            dscp: request.dscp,
        }
    }
}

/// Returns the deadline: seven eighths of the previous relay's time. The rest, an eighth, is for
/// the answer's way back: enough for a round trip of 1.25 s at 10 s.
fn deadline(time: Duration) -> Option<Instant> {
    (!time.is_zero()).then(|| Instant::now() + time / 8 * 7)
}
