// SPDX-License-Identifier: MIT OR Apache-2.0
//! Target of a request: a path in its export and, for COPY and MOVE, a destination (RFC 4918 §9.8.3).
//!
//! The parsed values are written back to the request in one canonical form, so that dav-server can't parse them
//! differently.

use crate::http::export::meta::rel_path;
use hyper::{
    HeaderMap, Request, StatusCode, Uri,
    header::{HOST, HeaderName, HeaderValue},
    http::uri::{Authority, PathAndQuery},
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

/// Status and text of a refusal.
pub(crate) type Rejection = (StatusCode, &'static str);

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
}

impl Target {
    /// Parses a request for `export`.
    ///
    /// # Errors
    /// The request is invalid, leads out of the export, or would change the export itself or one of its parents.
    pub(crate) fn of<B>(request: &mut Request<B>, export: &str) -> Result<Self, Rejection> {
        let path = path_in(request.uri().path(), export)?;
        let shows = request.method().as_str() == "PROPFIND";
        normalize_depth(request.headers_mut(), shows)?;
        let overwrites = normalize_overwrite(request.headers_mut())?;
        let method = request.method().as_str();
        if path.is_none() {
            protect_root(method)?;
        }
        let destination = match method {
            "COPY" | "MOVE" => Some(destination(request, export, path.as_ref())?),
            _ => None,
        };
        let target = Self {
            path,
            is_directory: request.uri().path().ends_with('/'),
            destination,
            overwrites,
        };
        target.normalize(request, export)?;
        Ok(target)
    }

    /// Returns the destination as the path of a URL.
    pub(crate) fn destination_url(&self, export: &str) -> Option<String> {
        let destination = self.destination.as_ref()?;
        Some(url_path(export, Some(destination)))
    }

    /// Writes the target into the request in canonical form.
    fn normalize<B>(&self, request: &mut Request<B>, export: &str) -> Result<(), Rejection> {
        if let Some(destination) = &self.destination {
            set_destination(request.headers_mut(), export, destination);
        }
        let path = url_path(export, self.path.as_ref());
        let path = if self.is_directory && !path.ends_with('/') {
            path + "/"
        } else {
            path
        };
        let made = PathAndQuery::try_from(path).map(Uri::from);
        *request.uri_mut() = made.map_err(|_| bad_request("the path is invalid"))?;
        Ok(())
    }
}

/// Sets the destination of a COPY or a MOVE.
pub(crate) fn set_destination(headers: &mut HeaderMap, export: &str, destination: &RelPath) {
    let path = url_path(export, Some(destination));
    // An escaped path is ASCII without control characters.
    if let Ok(value) = HeaderValue::try_from(path) {
        headers.insert(DESTINATION, value);
    }
}

/// Forbids to replace a file that is at the destination when the request is executed.
pub(crate) fn forbid_overwrite(headers: &mut HeaderMap) {
    headers.insert(OVERWRITE, HeaderValue::from_static("F"));
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

fn bad_request(why: &'static str) -> Rejection {
    (StatusCode::BAD_REQUEST, why)
}

/// Refuses to create, move or remove an export itself, which only the operator does.
fn protect_root(method: &str) -> Result<(), Rejection> {
    match method {
        "DELETE" | "MOVE" => Err((
            StatusCode::FORBIDDEN,
            "an export itself can't be moved or removed",
        )),
        "MKCOL" | "PUT" => Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "an export itself exists already",
        )),
        _ => Ok(()),
    }
}

/// Returns the path below an export, unescaped. Refuses "." and "..".
fn path_in(path: &str, export: &str) -> Result<Option<RelPath>, Rejection> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    if names.next() != Some(export) {
        return Err(bad_request("want a path in the export"));
    }
    let names: Vec<Vec<u8>> = names
        .map(|name| percent_decode_str(name).collect())
        .collect();
    if names.iter().any(|name| name.contains(&b'/')) {
        return Err(bad_request("want names without \"/\""));
    }
    rel_path(&names.join(&b'/')).map_err(|bad_path| match bad_path.reason {
        Reason::LongName | Reason::TooLong => (StatusCode::URI_TOO_LONG, "the path is too long"),
        Reason::Dots => bad_request("want a path without \".\" and \"..\""),
        _ => bad_request("want a path that a file can have"),
    })
}

/// Returns the destination of a COPY or a MOVE. It must be in the same export, and neither the source nor its parent
/// or child.
fn destination<B>(
    request: &Request<B>,
    export: &str,
    source: Option<&RelPath>,
) -> Result<RelPath, Rejection> {
    let text =
        single_value(request.headers(), &DESTINATION)?.ok_or(bad_request("want a Destination"))?;
    let uri = read_destination(text)?;
    if uri.authority().is_some() && !is_same_host(&uri, request) {
        return Err((
            StatusCode::BAD_GATEWAY,
            "the destination is on another host",
        ));
    }
    let mut names = uri.path().split('/').filter(|name| !name.is_empty());
    match names.next() {
        None => {
            return Err((
                StatusCode::FORBIDDEN,
                "the destination is above all exports",
            ));
        }
        Some(name) if name != export => {
            return Err((
                StatusCode::BAD_GATEWAY,
                "the destination is in another export",
            ));
        }
        Some(_) => {}
    }
    let ancestor = (
        StatusCode::FORBIDDEN,
        "the destination is the source or one of its parents",
    );
    let destination = path_in(uri.path(), export)?.ok_or(ancestor)?;
    if destination.is_internal() {
        let own = "names that begin with .longhaul- are the site's own";
        return Err((StatusCode::FORBIDDEN, own));
    }
    let Some(source) = source else {
        return Err((StatusCode::FORBIDDEN, "the destination is in the source"));
    };
    if destination == *source || source.strip_prefix(&destination).is_some() {
        return Err(ancestor);
    }
    match destination.strip_prefix(source) {
        Some(_) => Err((StatusCode::FORBIDDEN, "the destination is in the source")),
        None => Ok(destination),
    }
}

/// Parses an HTTP URL or a path. A query or a fragment most likely is a name whose '?' or '#' was not escaped.
fn read_destination(text: &str) -> Result<Uri, Rejection> {
    if text.contains(['?', '#']) {
        return Err(bad_request("want a Destination without '?' and '#'"));
    }
    // RFC 3986 §4.2: two slashes precede a host.
    if text.starts_with("//") {
        return Err((
            StatusCode::BAD_GATEWAY,
            "the destination is on another host",
        ));
    }
    let uri: Uri = text
        .parse()
        .map_err(|_| bad_request("the Destination is not a URL"))?;
    match uri.scheme_str() {
        None if text.starts_with('/') => Ok(uri),
        Some("http" | "https") => Ok(uri),
        _ => Err(bad_request(
            "want a Destination that is a URL of HTTP or a path",
        )),
    }
}

/// Returns whether the destination is on the host that the request was sent to.
fn is_same_host<B>(destination: &Uri, request: &Request<B>) -> bool {
    let port = match destination.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let request_authority = request.uri().authority().cloned().or_else(|| {
        let host = single_value(request.headers(), &HOST).ok().flatten()?;
        host.parse::<Authority>().ok()
    });
    let normalized = |authority: &Authority| {
        let host = authority.host().to_ascii_lowercase();
        (host, authority.port_u16().unwrap_or(port))
    };
    destination.authority().map(normalized) == request_authority.as_ref().map(normalized)
}

/// Normalizes Depth (RFC 4918 §10.2). A read without Depth gets 1: the default of §9.1, infinity, has no bound.
pub(crate) fn normalize_depth(headers: &mut HeaderMap, shows: bool) -> Result<(), Rejection> {
    let spelled = match single_value(headers, &DEPTH)? {
        None if shows => "1",
        None => return Ok(()),
        Some("0") => "0",
        Some("1") => "1",
        Some(text) if text.eq_ignore_ascii_case("infinity") => "infinity",
        Some(_) => return Err(bad_request("want a Depth of 0, 1 or infinity")),
    };
    headers.insert(DEPTH, HeaderValue::from_static(spelled));
    Ok(())
}

/// Normalizes Overwrite (§10.6), and returns its value.
fn normalize_overwrite(headers: &mut HeaderMap) -> Result<bool, Rejection> {
    let overwrites = match single_value(headers, &OVERWRITE)? {
        None | Some("T" | "t") => true,
        Some("F" | "f") => false,
        Some(_) => return Err(bad_request("want an Overwrite of T or F")),
    };
    if !overwrites {
        forbid_overwrite(headers);
    }
    Ok(overwrites)
}

/// Returns the only value of a field.
pub(super) fn single_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h str>, Rejection> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::to_str).transpose();
    match (value, values.next()) {
        (Ok(value), None) => Ok(value),
        _ => Err(bad_request("want a header once, in ASCII")),
    }
}
