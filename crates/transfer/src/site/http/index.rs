// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page at `/`: what there is for who asks.

use super::Answer;
use dav_server::body::Body;
use hyper::{
    Method, Request, Response,
    header::{CONTENT_TYPE, HeaderValue},
};

/// Whether it is asked for.
pub(super) fn is_asked<B>(request: &Request<B>) -> bool {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    reads && request.uri().path() == "/"
}

/// Links to these exports, whose names have nothing in them that HTML means.
pub(super) fn page(exports: &[&str]) -> Answer {
    let links = exports
        .iter()
        .map(|name| format!("<li><a href=\"/{name}/\">{name}/</a></li>\n"));
    let links: String = links.collect();
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>longhaul site</title></head>\n\
         <body><h1>Exports</h1>\n<ul>\n{links}</ul>\n</body></html>\n"
    );
    let mut answer = Response::new(Body::from(html));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
