// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a site's events, one line each.

use longhaul_command::console::escape;
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr};

/// Event of a site.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Record {
    Ready {
        listening: SocketAddr,
        #[serde(skip_serializing_if = "Option::is_none")]
        http: Option<SocketAddr>,
        #[serde(skip_serializing_if = "Option::is_none")]
        https: Option<SocketAddr>,
        /// Fingerprint of the site's key.
        fingerprint: String,
        exports: Vec<String>,
    },
    /// A client got an endpoint of a copy.
    CopyStarted {
        copy: u64,
        client: SocketAddr,
        token: String,
        export: String,
    },
    /// The endpoint ended, and with it the connection.
    CopyEnded {
        copy: u64,
        /// `source` or `target`, if the client sent it.
        role: Option<String>,
        /// Requested paths, the export first. A long list is truncated.
        paths: Vec<String>,
        copied: u64,
        removed: u64,
        failed: u64,
        /// Bytes sent by a source, or durable at a target.
        bytes: u64,
        /// `completed`, `refused`, `failed` or `interrupted`.
        outcome: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A client was refused. `count` is the number of refusals of its host since the last such record.
    Refused {
        client: SocketAddr,
        reason: String,
        count: u64,
    },
    /// An HTTP request that can change something.
    Request {
        client: SocketAddr,
        token: String,
        export: String,
        method: String,
        /// Path of the URL, escaped.
        path: String,
        /// Destination of a COPY or a MOVE.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
        /// Names created, moved or removed.
        entries: u64,
        /// Bytes written, and bytes of removed files.
        bytes: u64,
        /// Status of the response; `None` if the client disconnected before.
        status: Option<u16>,
    },
    /// The process that serves HTTP ended, and is restarted.
    HttpExited {
        listener: String,
        reason: String,
    },
    /// An export is in sync: everything that a scan found is durable at the other site. The counts are those of this copy.
    Synced {
        export: String,
        target: String,
        entries: u64,
        bytes: u64,
        seconds: f64,
    },
    /// The other site lacks some of it; the copy is tried again.
    Lagging {
        export: String,
        target: String,
        reason: String,
    },
    /// Records were lost before this one, because the reader was too slow.
    RecordsLost {
        count: u64,
    },
    Stopping,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready {
                listening,
                http,
                https,
                fingerprint,
                exports,
            } => {
                write!(f, "ready on {listening}")?;
                for (scheme, at) in [("http", http), ("https", https)] {
                    if let Some(at) = at {
                        write!(f, ", {scheme}://{at}/")?;
                    }
                }
                write!(f, ", key {fingerprint}, exports {}", exports.join(", "))
            }
            Self::CopyStarted {
                copy,
                client,
                token,
                export,
            } => write!(f, "copy {copy}: {token} from {client}, export {export}"),
            Self::CopyEnded {
                copy,
                role,
                paths,
                copied,
                removed,
                failed,
                bytes,
                outcome,
                reason,
            } => {
                write!(f, "copy {copy}: {outcome}")?;
                if let Some(role) = role {
                    write!(f, ", {role} {paths:?}")?;
                }
                write!(
                    f,
                    ", {copied} copied, {removed} removed, {failed} failed, {bytes} bytes"
                )?;
                match reason {
                    Some(reason) => write!(f, ": {}", escape(reason)),
                    None => Ok(()),
                }
            }
            Self::Refused {
                client,
                reason,
                count,
            } => {
                write!(f, "{client} refused: {}", escape(reason))?;
                match count {
                    1 => Ok(()),
                    _ => write!(f, " ({count} times)"),
                }
            }
            Self::Request {
                client,
                token,
                method,
                path,
                destination,
                entries,
                bytes,
                status,
                ..
            } => {
                write!(f, "{token} from {client}: {method} {path}")?;
                if let Some(destination) = destination {
                    write!(f, " to {destination}")?;
                }
                match status {
                    Some(status) => write!(f, ": {status}")?,
                    None => write!(f, ": connection closed")?,
                }
                write!(f, ", {entries} changed, {bytes} bytes")
            }
            Self::HttpExited { listener, reason } => {
                write!(f, "{listener} exited ({reason}), and is restarted")
            }
            Self::Synced {
                export,
                target,
                entries,
                bytes,
                seconds,
            } => {
                let bytes = longhaul_units::Bytes::new(*bytes);
                write!(
                    f,
                    "{export}: synced to {target}, {entries} changed, {bytes} in {seconds:.1} s"
                )
            }
            Self::Lagging {
                export,
                target,
                reason,
            } => write!(f, "{export}: not synced to {target}: {reason}"),
            Self::RecordsLost { count } => {
                write!(f, "{count} records were lost: the reader was too slow")
            }
            Self::Stopping => f.write_str("stopping"),
        }
    }
}
