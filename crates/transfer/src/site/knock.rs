// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client and a site say to each other before an end of a copy speaks: one question, one answer, inside TLS, in
//! the frames of [`crate::copy::message`].

use super::token::Secret;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// What both offer as the protocol of the connection (RFC 7301); who speaks another does not get through TLS.
pub(super) const PROTOCOL: &[u8] = b"longhaul-site/1";

/// The longest question, its length before it not counted.
pub(super) const ASK_LEN_MAX: usize = 1024;

/// How long a handshake and the question may take: some round trips, on any path.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// From the client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) secret: Secret,
    /// Whose end of a copy it wants.
    pub(super) export: String,
}

/// From the site.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// From now on an end speaks.
    Welcome,
    /// No repetition mends it.
    Refused(String),
    /// Another time.
    Busy(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Welcome => f.write_str("welcome"),
            Self::Refused(why) | Self::Busy(why) => f.write_str(why),
        }
    }
}
