// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls into dav-server, which implements the methods of RFC 4918 that the site does not implement itself.

use super::{
    export::{download::READ_LEN, files::Files},
    response::{DAV_CLASSES, HttpResponse, text_response},
};
use bytes::Bytes;
use dav_server::{DavConfig, fakels::FakeLs};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::{
    Request, StatusCode,
    body::Body,
    header::{self, HeaderValue},
};
use std::{error::Error, panic::AssertUnwindSafe};

/// Passes a request to dav-server and returns its response.
pub(super) async fn handle<B>(files: Files, request: Request<B>) -> HttpResponse
where
    B: Body<Data = Bytes>,
    B::Error: Error + Send + Sync + 'static,
{
    let (access, guard) = (files.access.clone(), files.guard.clone());
    let handler = DavConfig::new()
        .strip_prefix(format!("/{}", access.export))
        .filesystem(Box::new(files))
        // The site has checked the locks already. With this, dav-server still advertises lock support.
        .locksystem(FakeLs::new())
        .principal(&access.token)
        .autoindex(true)
        .read_buf_size(READ_LEN)
        .build_handler();
    // It panics at some invalid headers, such as an ETag of one quotation mark. The client gets an error then.
    let handled = AssertUnwindSafe(handler.handle(request)).catch_unwind();
    match (handled.await, guard.rejection()) {
        (Ok(_), Some((status, why))) => text_response(status, why),
        (Ok(response), None) => response.map(BodyExt::boxed_unsync),
        (Err(_), _) => bad_request(),
    }
}

pub(super) fn bad_request() -> HttpResponse {
    text_response(StatusCode::BAD_REQUEST, "the request is invalid")
}

/// Methods that the site implements itself, and that dav-server does not always name.
const OWN_METHODS: [&str; 4] = ["GET", "HEAD", "PROPFIND", "PROPPATCH"];

/// Completes the response to OPTIONS: without PATCH, which dav-server advertises, and with the site's own methods.
pub(super) fn options_response(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert("dav", HeaderValue::from_static(DAV_CLASSES));
    let allowed = headers
        .get(header::ALLOW)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let methods = allowed.split(',').filter(|method| *method != "PATCH");
    let mut methods: Vec<&str> = methods.collect();
    methods.extend(
        OWN_METHODS
            .iter()
            .filter(|own| !allowed.split(',').any(|method| method == **own)),
    );
    if let Ok(methods) = HeaderValue::try_from(methods.join(",")) {
        headers.insert(header::ALLOW, methods);
    }
    response
}
