// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that the site makes itself: a status with words, and the page at `/`, which says what there is for who asks.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue},
};
use std::io;

/// The classes of WebDAV that the site has (RFC 4918 §18).
pub(super) const CLASSES: &str = "1, 2, 3";

pub(super) const XML: &str = "application/xml; charset=utf-8";
pub(super) const XML_HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// What a request gets.
pub(super) type Answer = Response<Body>;

/// All of an answer's contents at once, or bit by bit.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(super) fn body(bytes: impl Into<Bytes>) -> Body {
    let never = |never| match never {};
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

/// Nothing but a status.
pub(super) fn bare(status: StatusCode) -> Answer {
    let mut answer = Answer::new(body(""));
    *answer.status_mut() = status;
    answer
}

/// What WebDAV says: XML, of which this is the element.
pub(super) fn xml(status: StatusCode, element: &str) -> Answer {
    let mut answer = of_kind(XML, format!("{XML_HEAD}{element}\n"));
    *answer.status_mut() = status;
    answer
}

pub(super) fn said(status: StatusCode, text: &str) -> Answer {
    let mut answer = of_kind("text/plain; charset=utf-8", format!("{text}\n"));
    *answer.status_mut() = status;
    answer
}

/// Links to these exports, whose names have nothing in them that HTML means.
pub(super) fn index(exports: &[&str]) -> Answer {
    let links = exports
        .iter()
        .map(|name| format!("<li><a href=\"/{name}/\">{name}/</a></li>\n"));
    let links: String = links.collect();
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>longhaul site</title></head>\n\
         <body><h1>Exports</h1>\n<ul>\n{links}</ul>\n</body></html>\n"
    );
    of_kind("text/html; charset=utf-8", html)
}

/// What programs may do at `/`, which mounts look at first.
pub(super) fn options_of_index() -> Answer {
    let mut answer = bare(StatusCode::OK);
    for (name, value) in [
        (ALLOW, "OPTIONS, GET, HEAD, PROPFIND"),
        (HeaderName::from_static("dav"), CLASSES),
        (HeaderName::from_static("ms-author-via"), "DAV"),
    ] {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

pub(super) fn of_kind(kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(body(text));
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
