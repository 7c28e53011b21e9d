// SPDX-License-Identifier: MIT OR Apache-2.0
//! GET and HEAD: whole files, parts of them (RFC 9110 §14), and pages of directories.
//!
//! dav-server takes an entity tag that is marked as weak for another one, divides the parts of an answer as no client expects,
//! and answers HEAD with parts. So conditions and parts are the site's.

use super::{
    answer::{Answer, bare, said},
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
};
use bytes::Bytes;
use dav_server::fs::DavMetaData;
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderName, HeaderValue},
};

/// What is read here, and not by the library.
const CHECKED: [HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
];

/// Answers it.
pub(super) async fn get(files: Files, target: &Target, mut request: Request<Bytes>) -> Answer {
    let headers = request.headers();
    if CHECKED.iter().any(|name| headers.contains_key(name))
        && let Some(file) = open(&files, target).await
    {
        match checked(&request, file, &content_type(&url(&files, target))) {
            Some(answer) => return answer,
            None => CHECKED
                .iter()
                .for_each(|name| drop(request.headers_mut().remove(name))),
        }
    }
    whole(files, target, request.map(Full::new)).await
}

/// A file; not a directory, nor what is not there.
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

/// The answer to a request for anything but a whole file, if it is one.
fn checked(request: &Request<Bytes>, file: Download, kind: &str) -> Option<Answer> {
    let (headers, meta) = (request.headers(), *file.meta());
    let validators = Validators::of(&meta);
    if let Some(status) = conditions::failure(headers, true, validators.as_ref()) {
        return Some(with_validators(bare(status), &meta));
    }
    if request.method() != Method::GET || !conditions::range_counts(headers, validators.as_ref()) {
        return None;
    }
    match RequestedRange::of(headers, meta.len()) {
        RequestedRange::Whole => None,
        RequestedRange::Parts(parts) => {
            Some(with_validators(partial::answer(file, kind, &parts), &meta))
        }
        RequestedRange::Missing => Some(unsatisfiable("nothing of it is there", meta.len())),
        RequestedRange::Refused => {
            let why = "want fewer ranges, and none that overlap";
            Some(unsatisfiable(why, meta.len()))
        }
    }
}

fn unsatisfiable(why: &str, len: u64) -> Answer {
    let mut answer = said(StatusCode::RANGE_NOT_SATISFIABLE, why);
    // Digits are ASCII.
    if let Ok(all) = HeaderValue::try_from(format!("bytes */{len}")) {
        answer.headers_mut().insert(header::CONTENT_RANGE, all);
    }
    answer
}

/// By which a client recognizes what it has got.
fn with_validators(mut answer: Answer, meta: &Meta) -> Answer {
    let tag = meta.etag().map(|tag| format!("\"{tag}\""));
    for (name, value) in [
        (header::ETAG, tag),
        (header::LAST_MODIFIED, http_date(meta)),
    ] {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// A directory is listed before the library is asked, which would show one that can't be listed as an empty one.
async fn whole(files: Files, target: &Target, request: Request<Full<Bytes>>) -> Answer {
    match listing::of(files, target).await {
        Ok((files, place)) => {
            let mut answer = handle(files, request).await;
            // Until all of the answer is sent.
            if let Some(place) = place {
                answer.extensions_mut().insert(place);
            }
            answer
        }
        Err((status, why)) => said(status, why),
    }
}
