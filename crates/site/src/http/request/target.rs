// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request is about: a path in its export and, of a COPY or a MOVE, a destination there (RFC 4918 §9.8.3).
//!
//! What is read here is written back into the request in one spelling, so that no other reading of it counts.

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

/// What a URL's path needs no escape for (RFC 3986 §2.3), and what divides names.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Why a request is refused: a status, and words for people.
pub(crate) type Rejection = (StatusCode, &'static str);

/// The paths of a request, relative to its export. None is the export itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: Option<RelPath>,
    /// The path ends with a slash.
    pub(crate) is_directory: bool,
    /// Of a COPY or a MOVE.
    pub(crate) destination: Option<RelPath>,
    /// What is at the destination may be replaced.
    pub(crate) overwrites: bool,
}

impl Target {
    /// Reads a request for `export`.
    ///
    /// # Errors
    /// It makes no sense, leads out of the export, or would change what it must not: the export itself, or what it is
    /// below.
    pub(crate) fn of<B>(request: &mut Request<B>, export: &str) -> Result<Self, Rejection> {
        let path = path_in(request.uri().path(), export)?;
        let shows = request.method().as_str() == "PROPFIND";
        spell_depth(request.headers_mut(), shows)?;
        let overwrites = spell_overwrite(request.headers_mut())?;
        let method = request.method().as_str();
        if path.is_none() {
            spare_root(method)?;
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
        target.spell(request, export)?;
        Ok(target)
    }

    /// The destination as a path of a URL.
    pub(crate) fn destination_url(&self, export: &str) -> Option<String> {
        let destination = self.destination.as_ref()?;
        Some(url_path(export, Some(destination)))
    }

    /// Writes it into the request.
    fn spell<B>(&self, request: &mut Request<B>, export: &str) -> Result<(), Rejection> {
        if let Some(destination) = &self.destination {
            head_to(request.headers_mut(), export, destination);
        }
        let path = url_path(export, self.path.as_ref());
        let path = match self.is_directory && !path.ends_with('/') {
            true => path + "/",
            false => path,
        };
        let made = PathAndQuery::try_from(path).map(Uri::from);
        *request.uri_mut() = made.map_err(|_| bad("the path makes no sense"))?;
        Ok(())
    }
}

/// Has a COPY or a MOVE go to this path.
pub(crate) fn head_to(headers: &mut HeaderMap, export: &str, destination: &RelPath) {
    let path = url_path(export, Some(destination));
    // Escaped, it is ASCII without control characters.
    if let Ok(value) = HeaderValue::try_from(path) {
        headers.insert(DESTINATION, value);
    }
}

/// Nothing is replaced: what is at the destination when the request is carried out stays.
pub(crate) fn keep_what_is_there(headers: &mut HeaderMap) {
    headers.insert(OVERWRITE, HeaderValue::from_static("F"));
}

/// A path of a URL, escaped.
pub(crate) fn url_path(export: &str, path: Option<&RelPath>) -> String {
    let below = path.map_or(&b""[..], RelPath::as_bytes);
    format!("/{export}/{}", escaped(below))
}

/// Bytes of a path as a URL has them.
pub(crate) fn escaped(path: &[u8]) -> String {
    percent_encode(path, &ESCAPED).to_string()
}

/// What a URL, or the path of one, names in an export; the export itself has no path.
pub(crate) fn named(url: &str, export: &str) -> Option<Option<RelPath>> {
    path_in(url.parse::<Uri>().ok()?.path(), export).ok()
}

fn bad(why: &'static str) -> Rejection {
    (StatusCode::BAD_REQUEST, why)
}

/// The export itself is made, moved and removed by whoever runs the site.
fn spare_root(method: &str) -> Result<(), Rejection> {
    match method {
        "DELETE" | "MOVE" => Err((StatusCode::FORBIDDEN, "an export itself stays where it is")),
        "MKCOL" | "PUT" => Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "an export itself is there already",
        )),
        _ => Ok(()),
    }
}

/// The path below an export: names without escapes, "." and "..".
fn path_in(path: &str, export: &str) -> Result<Option<RelPath>, Rejection> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    if names.next() != Some(export) {
        return Err(bad("want a path in the export"));
    }
    let names: Vec<Vec<u8>> = names
        .map(|name| percent_decode_str(name).collect())
        .collect();
    if names.iter().any(|name| name.contains(&b'/')) {
        return Err(bad("want names without \"/\""));
    }
    rel_path(&names.join(&b'/')).map_err(|bad_path| match bad_path.reason {
        Reason::LongName | Reason::TooLong => (StatusCode::URI_TOO_LONG, "the path is too long"),
        Reason::Dots => bad("want a path without \".\" and \"..\""),
        _ => bad("want a path that a file can have"),
    })
}

/// Where a COPY or a MOVE goes: in the same export, neither onto itself, nor above or below the source.
fn destination<B>(
    request: &Request<B>,
    export: &str,
    source: Option<&RelPath>,
) -> Result<RelPath, Rejection> {
    let text = one(request.headers(), &DESTINATION)?.ok_or(bad("want a Destination"))?;
    let uri = read_destination(text)?;
    if uri.authority().is_some() && !is_here(&uri, request) {
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
        "the destination is what the source is in, or the source itself",
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

/// A URL of HTTP, or a path. A query or a fragment is likely a name whose '?' or '#' was not escaped.
fn read_destination(text: &str) -> Result<Uri, Rejection> {
    if text.contains(['?', '#']) {
        return Err(bad("want a Destination without '?' and '#'"));
    }
    // RFC 3986 §4.2: behind two slashes there is a host.
    if text.starts_with("//") {
        return Err((
            StatusCode::BAD_GATEWAY,
            "the destination is on another host",
        ));
    }
    let uri: Uri = text.parse().map_err(|_| bad("the Destination is no URL"))?;
    match uri.scheme_str() {
        None if text.starts_with('/') => Ok(uri),
        Some("http" | "https") => Ok(uri),
        _ => Err(bad("want a Destination that is a URL of HTTP or a path")),
    }
}

/// Whether the destination is on the host that the request was sent to.
fn is_here<B>(destination: &Uri, request: &Request<B>) -> bool {
    let port = match destination.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let asked = request.uri().authority().cloned().or_else(|| {
        let host = one(request.headers(), &HOST).ok().flatten()?;
        host.parse::<Authority>().ok()
    });
    let known = |authority: &Authority| {
        let host = authority.host().to_ascii_lowercase();
        (host, authority.port_u16().unwrap_or(port))
    };
    destination.authority().map(known) == asked.as_ref().map(known)
}

/// Writes Depth as RFC 4918 §10.2 does. A request that only shows something and has none is for a directory and what is in it:
/// all that is below it, as §9.1 has it, may be any amount.
pub(crate) fn spell_depth(headers: &mut HeaderMap, shows: bool) -> Result<(), Rejection> {
    let spelled = match one(headers, &DEPTH)? {
        None if shows => "1",
        None => return Ok(()),
        Some("0") => "0",
        Some("1") => "1",
        Some(text) if text.eq_ignore_ascii_case("infinity") => "infinity",
        Some(_) => return Err(bad("want a Depth of 0, 1 or infinity")),
    };
    headers.insert(DEPTH, HeaderValue::from_static(spelled));
    Ok(())
}

/// The same of Overwrite (§10.6), and what it says.
fn spell_overwrite(headers: &mut HeaderMap) -> Result<bool, Rejection> {
    let overwrites = match one(headers, &OVERWRITE)? {
        None | Some("T" | "t") => true,
        Some("F" | "f") => false,
        Some(_) => return Err(bad("want an Overwrite of T or F")),
    };
    if !overwrites {
        keep_what_is_there(headers);
    }
    Ok(overwrites)
}

/// A field's only value.
pub(super) fn one<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h str>, Rejection> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::to_str).transpose();
    match (value, values.next()) {
        (Ok(value), None) => Ok(value),
        _ => Err(bad("want a header once, in ASCII")),
    }
}
