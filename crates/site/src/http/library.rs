// SPDX-License-Identifier: MIT OR Apache-2.0
//! dav-server, which does the methods of RFC 4918 that the site does not do itself.

use super::{
    answer::{Answer, CLASSES, said},
    export::{download::READ_LEN, files::Files},
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

/// What the library makes of a request.
pub(super) async fn handle<B>(files: Files, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes>,
    B::Error: Error + Send + Sync + 'static,
{
    let (access, guard) = (files.access.clone(), files.guard.clone());
    let handler = DavConfig::new()
        .strip_prefix(format!("/{}", access.export))
        .filesystem(Box::new(files))
        // Locks are looked at before; this has it say that there are some.
        .locksystem(FakeLs::new())
        .principal(&access.token)
        .autoindex(true)
        .read_buf_size(READ_LEN)
        .build_handler();
    // It panics at some headers that make no sense (an ETag of one quotation mark); that is to be the client's affair.
    let handled = AssertUnwindSafe(handler.handle(request)).catch_unwind();
    match (handled.await, guard.refused()) {
        (Ok(_), Some((status, why))) => said(status, why),
        (Ok(answer), None) => answer.map(BodyExt::boxed_unsync),
        (Err(_), _) => bad_request(),
    }
}

pub(super) fn bad_request() -> Answer {
    said(
        StatusCode::BAD_REQUEST,
        "what the request says makes no sense",
    )
}

/// What it says of itself. It says that parts of a file may be put.
pub(super) fn options(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert("dav", HeaderValue::from_static(CLASSES));
    let allowed = headers
        .get(header::ALLOW)
        .and_then(|value| value.to_str().ok());
    let kept = allowed
        .unwrap_or_default()
        .split(',')
        .filter(|one| *one != "PATCH");
    if let Ok(kept) = HeaderValue::try_from(kept.collect::<Vec<_>>().join(",")) {
        headers.insert(header::ALLOW, kept);
    }
    answer
}
