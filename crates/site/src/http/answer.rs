// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that the site makes itself: a status with words, and the page at `/`, which says what there is for who asks.

use dav_server::body::Body;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};

/// What a request gets.
pub(super) type Answer = Response<Body>;

pub(super) fn said(status: StatusCode, text: &str) -> Answer {
    let mut answer = of_kind("text/plain; charset=utf-8", format!("{text}\n"));
    *answer.status_mut() = status;
    answer
}

/// Whether the page at `/` is asked for.
pub(super) fn is_for_index<B>(request: &Request<B>) -> bool {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    reads && request.uri().path() == "/"
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

fn of_kind(kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Body::from(text));
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
