// SPDX-License-Identifier: MIT OR Apache-2.0
//! Authentication of a client at a site, before the endpoint of a copy starts: one request and one response, inside TLS,
//! in the frames of [`crate::protocol::message`].

use super::{options::Ports, token::Secret};
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr, path::PathBuf, time::Duration};

/// ALPN protocol name that both sides offer (RFC 7301). The TLS handshake fails with any other.
pub const PROTOCOL: &[u8] = b"longhaul-site/1";

/// Maximum length of a request, in bytes, without its length prefix.
pub const REQUEST_LEN_MAX: usize = 1024;

/// Time limit for the handshake and the request: a few round trips, on any path.
pub const AUTH_TIMEOUT: Duration = Duration::from_secs(20);

/// Request of the client.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthRequest {
    /// Secret of the client's token.
    pub secret: Secret,
    /// Export for which the client wants an endpoint.
    pub export: String,
}

/// Response of the site.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthResponse {
    /// Access is granted. The messages of an endpoint follow.
    Accepted,
    /// Access is denied for the reason given. A retry does not help.
    Refused(String),
    /// The site is at a limit, with the reason. The client may retry later.
    Busy(String),
}

impl fmt::Display for AuthResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("welcome"),
            Self::Refused(why) | Self::Busy(why) => f.write_str(why),
        }
    }
}

/// Scope in which an endpoint at a site may read and write. The site sends it to the endpoint that it starts, before any
/// message of the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExportScope {
    /// Name of the export: the first component of every path.
    pub export: String,
    /// Directory of the export: absolute, without symbolic links.
    pub directory: PathBuf,
    /// Directories of the site's other exports. An endpoint never moves these.
    pub other_exports: Vec<PathBuf>,
    /// Whether the client may write to the export.
    pub writable: bool,
    /// Address at which the client reached the site. Data connections are accepted at this address only.
    pub local_address: IpAddr,
    /// The site's ports for data connections; `None` allows any.
    pub ports: Option<Ports>,
}
