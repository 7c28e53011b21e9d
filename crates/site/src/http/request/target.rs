// SPDX-License-Identifier: MIT OR Apache-2.0
//! Target of a request: a path in its export and, for COPY and MOVE, a destination (RFC 4918 §9.8.3).

use crate::http::response::{Outcome, Rejection};
use hyper::{
    HeaderMap, Uri,
    header::{HOST, HeaderName, HeaderValue},
    http::{request::Parts, uri::Authority},
};
use longhaul_store::path::{Reason, RelPath};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

const DESTINATION: HeaderName = HeaderName::from_static("destination");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");
const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Characters to escape in a URL's path: all but the unreserved ones (RFC 3986 §2.3) and the slash.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

pub(crate) const INTERNAL_NAME: Rejection =
    Rejection(403, "names that begin with .longhaul- are the site's own");

/// Depth of a request (RFC 4918 §10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Zero,
    One,
    Infinity,
}

/// Paths of a request, relative to its export. `None` is the export itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: Option<RelPath>,
    /// Whether the path ends with a slash.
    pub(crate) is_directory: bool,
    /// Destination of a COPY or a MOVE.
    pub(crate) destination: Option<RelPath>,
    /// Whether a file at the destination may be replaced.
    pub(crate) overwrites: bool,
    pub(crate) depth: Option<Depth>,
}

impl Target {
    /// Parses a request for `export`.
    ///
    /// # Errors
    /// The request is invalid, leads out of the export, or would change the export itself or one of its parents.
    pub(crate) fn of(head: &Parts, export: &str) -> Outcome<Self> {
        let path = path_in(head.uri.path(), export)?;
        if path.is_none() {
            protect_root(head.method.as_str())?;
        }
        let destination = match head.method.as_str() {
            "COPY" | "MOVE" => Some(destination(head, export, path.as_ref())?),
            _ => None,
        };
        Ok(Self {
            path,
            is_directory: head.uri.path().ends_with('/'),
            destination,
            overwrites: overwrites(&head.headers)?,
            depth: depth(&head.headers)?,
        })
    }
}

/// Returns the escaped path of a URL.
pub(crate) fn url_path(export: &str, path: Option<&RelPath>) -> String {
    let below = path.map_or(&b""[..], RelPath::as_bytes);
    format!("/{export}/{}", escape_path(below))
}

/// Escapes a path for a URL.
pub(crate) fn escape_path(path: &[u8]) -> String {
    percent_encode(path, &ESCAPED).to_string()
}

/// Resolves a URL or its path in an export. The inner `None` is the export itself.
pub(crate) fn resolve_url(url: &str, export: &str) -> Option<Option<RelPath>> {
    path_in(url.parse::<Uri>().ok()?.path(), export).ok()
}

/// Refuses to create, move or remove an export itself, which only the operator does.
fn protect_root(method: &str) -> Outcome<()> {
    match method {
        "DELETE" | "MOVE" => Err(Rejection(403, "an export itself can't be moved or removed")),
        "MKCOL" | "PUT" => Err(Rejection(405, "an export itself exists already")),
        _ => Ok(()),
    }
}

/// Returns the path below an export, unescaped. Refuses "." and "..".
fn path_in(path: &str, export: &str) -> Outcome<Option<RelPath>> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    if names.next() != Some(export) {
        return Err(Rejection(400, "want a path in the export"));
    }
    let names: Vec<Vec<u8>> = names
        .map(|name| percent_decode_str(name).collect())
        .collect();
    if names.iter().any(|name| name.contains(&b'/')) {
        return Err(Rejection(400, "want names without \"/\""));
    }
    if names.is_empty() {
        return Ok(None);
    }
    let parsed = RelPath::parse(&names.join(&b'/')).map(Some);
    parsed.map_err(|bad_path| match bad_path.reason {
        Reason::LongName | Reason::TooLong => Rejection(414, "the path is too long"),
        Reason::Dots => Rejection(400, "want a path without \".\" and \"..\""),
        _ => Rejection(400, "want a path that a file can have"),
    })
}

/// Returns the destination of a COPY or a MOVE. It must be in the same export, and not the source.
fn destination(head: &Parts, export: &str, source: Option<&RelPath>) -> Outcome<RelPath> {
    const SOURCE: Rejection = Rejection(403, "the destination is the source, or contains it");
    let text = single_value(&head.headers, &DESTINATION)?;
    let uri = read_destination(text.ok_or(Rejection(400, "want a Destination"))?)?;
    if uri.authority().is_some() && !is_same_host(&uri, head) {
        return Err(Rejection(502, "the destination is on another host"));
    }
    match uri.path().split('/').find(|name| !name.is_empty()) {
        None => return Err(Rejection(403, "the destination is above all exports")),
        Some(name) if name != export => {
            return Err(Rejection(502, "the destination is in another export"));
        }
        Some(_) => {}
    }
    let destination = path_in(uri.path(), export)?.ok_or(SOURCE)?;
    match source {
        _ if destination.is_internal() => Err(INTERNAL_NAME),
        None => Err(Rejection(403, "the destination is in the source")),
        Some(source) if destination == *source => Err(SOURCE),
        Some(_) => Ok(destination),
    }
}

/// Parses an HTTP URL or a path. A query or a fragment most likely is a name whose '?' or '#' was not escaped.
fn read_destination(text: &str) -> Outcome<Uri> {
    if text.contains(['?', '#']) {
        return Err(Rejection(400, "want a Destination without '?' and '#'"));
    }
    // RFC 3986 §4.2: two slashes precede a host.
    if text.starts_with("//") {
        return Err(Rejection(502, "the destination is on another host"));
    }
    let uri: Uri = text
        .parse()
        .map_err(|_| Rejection(400, "the Destination is not a URL"))?;
    match uri.scheme_str() {
        None if text.starts_with('/') => Ok(uri),
        Some("http" | "https") => Ok(uri),
        _ => Err(Rejection(
            400,
            "want a Destination that is a URL of HTTP or a path",
        )),
    }
}

/// Returns whether the destination is on the host that the request was sent to.
fn is_same_host(destination: &Uri, head: &Parts) -> bool {
    let port = match destination.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let request_authority = head.uri.authority().cloned().or_else(|| {
        let host = single_value(&head.headers, &HOST).ok().flatten()?;
        host.parse::<Authority>().ok()
    });
    let normalized = |authority: &Authority| {
        let host = authority.host().to_ascii_lowercase();
        (host, authority.port_u16().unwrap_or(port))
    };
    destination.authority().map(normalized) == request_authority.as_ref().map(normalized)
}

/// Parses Depth.
pub(crate) fn depth(headers: &HeaderMap) -> Outcome<Option<Depth>> {
    Ok(match single_value(headers, &DEPTH)? {
        None => None,
        Some("0") => Some(Depth::Zero),
        Some("1") => Some(Depth::One),
        Some(text) if text.eq_ignore_ascii_case("infinity") => Some(Depth::Infinity),
        Some(_) => return Err(Rejection(400, "want a Depth of 0, 1 or infinity")),
    })
}

/// Parses Overwrite (§10.6).
fn overwrites(headers: &HeaderMap) -> Outcome<bool> {
    match single_value(headers, &OVERWRITE)? {
        None | Some("T" | "t") => Ok(true),
        Some("F" | "f") => Ok(false),
        Some(_) => Err(Rejection(400, "want an Overwrite of T or F")),
    }
}

/// Returns the only value of a field.
pub(crate) fn single_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Outcome<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::to_str).transpose();
    match (value, values.next()) {
        (Ok(value), None) => Ok(value),
        _ => Err(Rejection(400, "want a header once, in ASCII")),
    }
}
