// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a request through the HTTP proxy. It goes where its URI says, carries no field that is meant for the proxy
//! and keeps all others. The proxy recognizes it when it returns.
//!
//! The input is `METHOD URI`, then `name: value` on separate lines. hyper parses heads; the test covers the relay's
//! changes.

use hyper::{
    HeaderMap, Method, Request, Uri, Version,
    header::{self, HeaderName},
    http::request::Parts,
};
use longhaul_protocol::destination::Destination;
use longhaul_protocol::proxy_headers::{destination, forward_request, has_passed};

const PSEUDONYM: &str = "longhaul-0123";

pub(crate) fn check(input: &[u8]) {
    let Some(mut head) = std::str::from_utf8(input).ok().and_then(request) else {
        return;
    };
    let Ok(destination) = destination(&head.method, &head.uri) else {
        return;
    };
    check_round_trip(&destination);
    if head.method == Method::CONNECT {
        return;
    }
    let before = head.clone();
    forward_request(&mut head, PSEUDONYM);
    check_origin(&before.uri, &head);
    assert!(has_passed(&head.headers, PSEUDONYM));
    assert_eq!(
        forwarded_fields(&before.headers, &before.headers),
        forwarded_fields(&before.headers, &head.headers)
    );
    assert!(head.headers.keys().all(|name| {
        is_set_by_proxy(&before.headers, &head.headers, name)
            || !is_for_proxy(&before.headers, name)
    }));
}

/// Whether the relay sets this field for the next hop: Via, and of the client's fields only that trailers are
/// accepted (RFC 9110 §6.5.1) and which protocols are offered (§7.8), each named by Connection.
fn is_set_by_proxy(request_fields: &HeaderMap, headers: &HeaderMap, name: &HeaderName) -> bool {
    let one = |name: &HeaderName| headers.get_all(name).iter().count() == 1;
    match name {
        name if name == header::VIA => true,
        name if name == header::TE => one(name) && headers[name] == "trailers",
        name if name == header::UPGRADE => {
            one(name) && is_named(request_fields, name) && is_named(headers, name)
        }
        name if name == header::CONNECTION => {
            headers.contains_key(header::TE) || headers.contains_key(header::UPGRADE)
        }
        _ => false,
    }
}

fn request(text: &str) -> Option<Parts> {
    let mut lines = text.lines();
    let (method, uri) = lines.next()?.split_once(' ')?;
    let fields = lines.filter_map(|line| line.split_once(':'));
    let named = Request::builder().method(method).uri(uri);
    let whole = fields.fold(named, |request, (name, value)| {
        request.header(name, value.trim())
    });
    Some(whole.body(()).ok()?.into_parts().0)
}

fn check_round_trip(destination: &Destination) {
    assert_ne!(destination.port(), 0);
    assert_eq!(destination.to_string().parse(), Ok(destination.clone()));
}

fn check_origin(request_fields: &Uri, head: &Parts) {
    assert!(head.uri.authority().is_none() && head.uri.scheme().is_none());
    assert_eq!(head.version, Version::HTTP_11);
    let authority = request_fields.authority().unwrap().as_str();
    let host = authority.rsplit('@').next().unwrap();
    assert_eq!(head.headers[header::HOST], host);
    assert_eq!(head.headers.get_all(header::HOST).iter().count(), 1);
}

/// Whether a field is for the proxy alone (RFC 9110 §7.6.1).
fn is_for_proxy(request_fields: &HeaderMap, name: &HeaderName) -> bool {
    const ALWAYS: [&str; 9] = [
        "connection",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    ALWAYS.contains(&name.as_str()) || is_named(request_fields, name)
}

/// Whether Connection names the field. Fields that frame and address the message stay.
fn is_named(request_fields: &HeaderMap, name: &HeaderName) -> bool {
    let fields = request_fields.get_all(header::CONNECTION).iter();
    let mut names = fields
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let frames = [header::CONTENT_LENGTH, header::HOST].contains(name);
    !frames && names.any(|other| other.trim().eq_ignore_ascii_case(name.as_str()))
}

/// Returns the fields that pass unchanged, with all their values.
fn forwarded_fields(request_fields: &HeaderMap, headers: &HeaderMap) -> Vec<(HeaderName, Vec<u8>)> {
    let passes = |name: &HeaderName| {
        // Max-Forwards counts down (RFC 9110 §7.6.2).
        ![header::VIA, header::HOST, header::MAX_FORWARDS].contains(name)
            && !is_for_proxy(request_fields, name)
    };
    let mut forwarded_fields: Vec<_> = headers
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.as_bytes().to_vec()))
        .collect();
    forwarded_fields.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    forwarded_fields
}
