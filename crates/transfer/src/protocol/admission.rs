// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client and a site say to each other before an end of a copy speaks: one question, one answer, inside TLS, in
//! the frames of [`crate::protocol::message`].

use super::{options::Ports, token::Secret};
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr, path::PathBuf, time::Duration};

/// What both offer as the protocol of the connection (RFC 7301); who speaks another does not get through TLS.
pub const PROTOCOL: &[u8] = b"longhaul-site/1";

/// The longest question, its length before it not counted.
pub const ASK_LEN_MAX: usize = 1024;

/// How long a handshake and the question may take: some round trips, on any path.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// From the client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Shows that it may.
    pub secret: Secret,
    /// Whose end of a copy it wants.
    pub export: String,
}

/// From the site.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
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

/// What a site tells the end that it starts, before the client says anything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Confinement {
    /// What the export is called: the first name of every path.
    pub export: String,
    /// Where it is: absolute, without symbolic links.
    pub directory: PathBuf,
    /// Where the site's other exports are: these directories stay where they are.
    pub others: Vec<PathBuf>,
    /// Whether the client may write there.
    pub writable: bool,
    /// Where the client reached the site: there data comes in, and nowhere else.
    pub at: IpAddr,
    /// The site's ports for data; none is any.
    pub ports: Option<Ports>,
}
