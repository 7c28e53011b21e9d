// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a site says happens, one line each on standard output.

use longhaul_command::console::escape;
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr};

/// Something that happened.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Record {
    Ready {
        listening: SocketAddr,
        #[serde(skip_serializing_if = "Option::is_none")]
        http: Option<SocketAddr>,
        #[serde(skip_serializing_if = "Option::is_none")]
        https: Option<SocketAddr>,
        /// Of its key.
        fingerprint: String,
        exports: Vec<String>,
    },
    /// A client has an end of a copy.
    Began {
        copy: u64,
        client: SocketAddr,
        token: String,
        export: String,
    },
    /// That end is gone, and so is the connection.
    Ended {
        copy: u64,
        /// `source` or `target`, if the client said so.
        role: Option<String>,
        /// What was asked for, the export first; the first of them.
        paths: Vec<String>,
        made: u64,
        removed: u64,
        failed: u64,
        /// That a source has sent, or that are durable at a target.
        bytes: u64,
        /// `over`, `refused`, `broken` or `cut off`.
        outcome: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A client that was not let in; the last of so many from its address since the last such line.
    Refused {
        client: SocketAddr,
        why: String,
        count: u64,
    },
    /// A request over HTTP that was to change something.
    Request {
        client: SocketAddr,
        token: String,
        export: String,
        method: String,
        /// As in a URL, with escapes.
        path: String,
        /// Of a COPY or a MOVE.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Names that were made, moved or removed.
        entries: u64,
        /// That were written, or were in what was removed.
        bytes: u64,
        /// The answer's; none is a client that was gone before.
        status: Option<u16>,
    },
    /// What serves HTTP has ended, and is started again.
    HttpEnded {
        listener: String,
        why: String,
    },
    /// What was in an export when it was looked through is at the other site, durably; this much was not before.
    Arrived {
        export: String,
        to: String,
        entries: u64,
        bytes: u64,
        seconds: f64,
    },
    /// It is not, or not all of it; it is tried again.
    Behind {
        export: String,
        to: String,
        why: String,
    },
    /// So many lines before this one are missing: nobody read them in time.
    Lost {
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
            Self::Began {
                copy,
                client,
                token,
                export,
            } => write!(f, "copy {copy}: {token} from {client}, export {export}"),
            Self::Ended {
                copy,
                role,
                paths,
                made,
                removed,
                failed,
                bytes,
                outcome,
                why,
            } => {
                write!(f, "copy {copy}: {outcome}")?;
                if let Some(role) = role {
                    write!(f, ", {role} {paths:?}")?;
                }
                write!(
                    f,
                    ", {made} made, {removed} removed, {failed} failed, {bytes} bytes"
                )?;
                match why {
                    Some(why) => write!(f, ": {}", escape(why)),
                    None => Ok(()),
                }
            }
            Self::Refused { client, why, count } => {
                write!(f, "{client} refused: {}", escape(why))?;
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
                to,
                entries,
                bytes,
                status,
                ..
            } => {
                write!(f, "{token} from {client}: {method} {path}")?;
                if let Some(to) = to {
                    write!(f, " to {to}")?;
                }
                match status {
                    Some(status) => write!(f, ": {status}")?,
                    None => write!(f, ": cut off")?,
                }
                write!(f, ", {entries} changed, {bytes} bytes")
            }
            Self::HttpEnded { listener, why } => {
                write!(f, "{listener} ended ({why}), and is started again")
            }
            Self::Arrived {
                export,
                to,
                entries,
                bytes,
                seconds,
            } => {
                let bytes = longhaul_units::Bytes::new(*bytes);
                write!(
                    f,
                    "{export}: all is at {to}, {entries} new, {bytes} in {seconds:.1} s"
                )
            }
            Self::Behind { export, to, why } => write!(f, "{export}: not all is at {to}: {why}"),
            Self::Lost { count } => write!(f, "{count} lines are missing: nobody read in time"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}
