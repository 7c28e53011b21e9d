// SPDX-License-Identifier: MIT OR Apache-2.0
//! Responses that the site makes itself: a status with a text, XML, and the index page at `/`.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue},
};
use std::io;

/// WebDAV compliance classes of the site (RFC 4918 §18).
pub(super) const DAV_CLASSES: &str = "1, 2, 3";

pub(super) const XML_TYPE: &str = "application/xml; charset=utf-8";
pub(super) const XML_DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Response to a request.
pub(super) type HttpResponse = Response<Body>;

/// Body of a response, whole or streamed.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(super) fn full_body(bytes: impl Into<Bytes>) -> Body {
    let never = |never| match never {};
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

/// Returns a response with a status only.
pub(super) fn empty_response(status: StatusCode) -> HttpResponse {
    let mut response = HttpResponse::new(full_body(""));
    *response.status_mut() = status;
    response
}

/// Returns an XML response with this element.
pub(super) fn xml_response(status: StatusCode, element: &str) -> HttpResponse {
    let mut response = typed_response(XML_TYPE, format!("{XML_DECLARATION}{element}\n"));
    *response.status_mut() = status;
    response
}

pub(super) fn text_response(status: StatusCode, text: &str) -> HttpResponse {
    let mut response = typed_response("text/plain; charset=utf-8", format!("{text}\n"));
    *response.status_mut() = status;
    response
}

/// Returns a page with links to the exports. Their names contain no HTML characters.
pub(super) fn index_page(exports: &[&str]) -> HttpResponse {
    let links = exports
        .iter()
        .map(|name| format!("<li><a href=\"/{name}/\">{name}/</a></li>\n"));
    let links: String = links.collect();
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>longhaul site</title></head>\n\
         <body><h1>Exports</h1>\n<ul>\n{links}</ul>\n</body></html>\n"
    );
    typed_response("text/html; charset=utf-8", html)
}

/// Returns the response to OPTIONS on `/`, which WebDAV clients request before they mount it.
pub(super) fn index_options() -> HttpResponse {
    let mut response = empty_response(StatusCode::OK);
    for (name, value) in [
        (ALLOW, "OPTIONS, GET, HEAD, PROPFIND"),
        (HeaderName::from_static("dav"), DAV_CLASSES),
        (HeaderName::from_static("ms-author-via"), "DAV"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

pub(super) fn typed_response(kind: &'static str, text: String) -> HttpResponse {
    let mut response = Response::new(full_body(text));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
