// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client wants.

use longhaul_protocol::{
    convert::{self, HOPS_MAX},
    destination::Destination,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// What a client wants, whichever listener it came through.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) destination: Destination,
    /// Relays that the relay before wants passed, nearest first.
    pub(crate) hops: Vec<SocketAddr>,
    /// Relays that may still be passed, this one included.
    pub(crate) hop_limit: u8,
    /// Address and port to leave with, if not the relay's own.
    pub(crate) source: Option<SocketAddr>,
    /// How long the answer to a relay may wait for bytes that it can go along with; zero for clients
    /// that wait for it themselves.
    pub(crate) patience: Duration,
    /// When the relay before waits no longer.
    pub(crate) deadline: Option<Instant>,
    /// What the client sent behind its request.
    pub(crate) early: Vec<u8>,
    /// The leg to a peer may be the first of several.
    pub(crate) may_stripe: bool,
    /// The client's DSCP, for legs whose profile has none.
    pub(crate) dscp: u8,
}

impl Request {
    /// From a client that knows nothing of relays.
    pub(crate) fn to(destination: Destination, early: Vec<u8>) -> Self {
        Self {
            destination,
            hops: Vec::new(),
            hop_limit: HOPS_MAX as u8,
            source: None,
            patience: Duration::ZERO,
            deadline: None,
            early,
            may_stripe: false,
            dscp: 0,
        }
    }

    /// From a client that waits for nothing but the destination's bytes.
    pub(crate) fn unanswered(self) -> Self {
        Self {
            patience: convert::PATIENCE_MAX,
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
            patience: request.patience,
            deadline: deadline(request.time),
            early,
            may_stripe: false,
            dscp: request.dscp,
        }
    }
}

/// The end of the time that the relay before has, less the way back: an eighth of it, enough for a
/// round trip of 1.25 s at 10 s.
fn deadline(time: Duration) -> Option<Instant> {
    (!time.is_zero()).then(|| Instant::now() + time / 8 * 7)
}
