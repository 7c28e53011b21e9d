// SPDX-License-Identifier: MIT OR Apache-2.0
//! GET and HEAD: whole files, ranges (RFC 9110 §14), and directory pages.
//!
//! dav-server treats a weak entity tag as a different one, separates the ranges of a response incorrectly, and
//! responds to HEAD with ranges. The site therefore handles conditions and ranges itself.

use super::{
    export::{
        download::Download,
        files::Files,
        meta::{Meta, blocking},
    },
    library::handle,
    listing, partial,
    properties::{content_type, http_date},
    request::{
        conditions::{self, Validators},
        ranges::RequestedRange,
        target::{Target, url_path},
    },
    response::{HttpResponse, empty_response, text_response},
    wanted_digests::WantedDigests,
};
use bytes::Bytes;
use dav_server::fs::DavMetaData;
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use std::time::Duration;
use tokio::time::timeout;

/// Longest time that a request waits for the digests of others.
const DIGEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Headers that the site handles itself.
const CONDITIONAL_HEADERS: [HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
];

/// Responds to a GET or a HEAD.
pub(super) async fn get(files: Files, target: &Target, request: Request<Bytes>) -> HttpResponse {
    let wanted = WantedDigests::of(request.headers());
    if wanted.is_empty() {
        return respond(files, target, request).await;
    }
    let (file, access) = (open(&files, target).await, files.access.clone());
    let mut response = respond(files, target, request).await;
    if let Some(file) = file {
        let permits = access.budget.acquire_digest(&access.token);
        // A digest is only a wish. Without it, the client need not wait for others.
        if let Ok(Some(_permits)) = timeout(DIGEST_WAIT_MAX, permits).await {
            wanted.add(&mut response, file).await;
        }
    }
    response
}

async fn respond(files: Files, target: &Target, mut request: Request<Bytes>) -> HttpResponse {
    let headers = request.headers();
    if CONDITIONAL_HEADERS
        .iter()
        .any(|name| headers.contains_key(name))
        && let Some(file) = open(&files, target).await
    {
        match conditional_response(&request, file, &content_type(&url(&files, target))) {
            Some(response) => return response,
            None => CONDITIONAL_HEADERS
                .iter()
                .for_each(|name| drop(request.headers_mut().remove(name))),
        }
    }
    full_response(files, target, request.map(Full::new)).await
}

/// Opens the target. `None` for a directory or a missing file.
async fn open(files: &Files, target: &Target) -> Option<Download> {
    let (root, path) = (files.root.clone(), target.path.clone()?);
    if path.is_internal() {
        return None;
    }
    blocking(move || Download::open(&root, &path)).await.ok()
}

fn url(files: &Files, target: &Target) -> String {
    url_path(&files.access.export, target.path.as_ref())
}

/// Returns the response to a conditional or a range request. `None` if the whole file is to be sent.
fn conditional_response(
    request: &Request<Bytes>,
    file: Download,
    kind: &str,
) -> Option<HttpResponse> {
    let (headers, meta) = (request.headers(), *file.meta());
    let validators = Validators::of(&meta);
    if let Some(status) = conditions::failure(headers, true, validators.as_ref()) {
        return Some(with_validators(empty_response(status), &meta));
    }
    if request.method() != Method::GET || !conditions::range_applies(headers, validators.as_ref()) {
        return None;
    }
    match RequestedRange::of(headers, meta.len()) {
        RequestedRange::Whole => None,
        RequestedRange::Parts(parts) => Some(with_validators(
            partial::partial_content(file, kind, &parts),
            &meta,
        )),
        RequestedRange::Unsatisfiable => {
            Some(unsatisfiable("the range is beyond the end", meta.len()))
        }
        RequestedRange::Refused => {
            let why = "want fewer ranges, and none that overlap";
            Some(unsatisfiable(why, meta.len()))
        }
    }
}

fn unsatisfiable(why: &str, len: u64) -> HttpResponse {
    let mut response = text_response(StatusCode::RANGE_NOT_SATISFIABLE, why);
    // Digits are ASCII.
    if let Ok(all) = HeaderValue::try_from(format!("bytes */{len}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, all);
    }
    response
}

/// Adds the entity tag and the date of the last change.
fn with_validators(mut response: HttpResponse, meta: &Meta) -> HttpResponse {
    let tag = meta.etag().map(|tag| format!("\"{tag}\""));
    for (name, value) in [
        (header::ETAG, tag),
        (header::LAST_MODIFIED, http_date(meta)),
    ] {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Sends the whole file or a directory page. The site lists a directory first, since dav-server would show an
/// unreadable one as empty.
async fn full_response(
    files: Files,
    target: &Target,
    request: Request<Full<Bytes>>,
) -> HttpResponse {
    match listing::list_target(files, target).await {
        Ok((files, reservation)) => {
            let mut response = handle(files, request).await;
            // The reservation is held until the response is sent.
            if let Some(reservation) = reservation {
                response.extensions_mut().insert(reservation);
            }
            response
        }
        Err((status, why)) => text_response(status, why),
    }
}
