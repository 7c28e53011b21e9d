// SPDX-License-Identifier: MIT OR Apache-2.0
//! PUT: a whole file, stored once all of it has arrived and is what the client announced.

use super::{
    dav_request::DavRequest,
    digests::ExpectedDigests,
    export::upload::Upload,
    request::ranges::number,
    response::{HttpResponse, Outcome, Rejection, blocking, empty_response, insert},
};
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Method,
    body::Incoming,
    header::{self, HeaderName},
    http::request::Parts,
};
use std::sync::Arc;

/// Time of the file, in seconds since 1970 (ownCloud, Nextcloud, rclone).
const MODIFIED: HeaderName = HeaderName::from_static("x-oc-mtime");

/// Length of the body, if it is sent in chunks (macOS).
const LENGTH: HeaderName = HeaderName::from_static("x-expected-entity-length");

/// Checks that a PUT is a whole file without a content coding. Partial files and codings are not stored (RFC 9110
/// §8.4, §9.3.4, §14.5; RFC 9112 §6.1).
pub(super) fn check_head(head: &Parts) -> Outcome<()> {
    let has_other_value = |name, supported: &str| {
        let mut values = head.headers.get_all(name).iter();
        values.any(|value| !value.as_bytes().eq_ignore_ascii_case(supported.as_bytes()))
    };
    if head.method == Method::PATCH || head.headers.contains_key(header::CONTENT_RANGE) {
        Err(Rejection(
            400,
            "partial uploads are not supported: longhaul copy resumes an interrupted copy",
        ))
    } else if has_other_value(header::CONTENT_ENCODING, "identity") {
        Err(Rejection(415, "Content-Encoding is not supported"))
    } else if has_other_value(header::TRANSFER_ENCODING, "chunked") {
        Err(Rejection(
            501,
            "the only supported transfer coding is chunked",
        ))
    } else {
        Ok(())
    }
}

/// Stores a file. The conditions are checked again when it gets its name, since the body takes time.
pub(super) async fn put(request: DavRequest, body: &mut Incoming) -> Outcome {
    let mut expected = ExpectedDigests::of(request.headers())?;
    let modified = modified(request.headers())?;
    let announced = request.headers().get(LENGTH);
    let announced = announced.and_then(|len| number(len.to_str().ok()?));
    let request = Arc::new(request);
    let beginning = request.clone();
    let (mut upload, status) = blocking(move || begin(&beginning)).await?;
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Rejection(400, "the body is incomplete"))?;
        if let Ok(bytes) = frame.into_data() {
            len += bytes.len() as u64;
            let written = blocking(move || {
                upload.write(&bytes)?;
                expected.update(&bytes);
                Ok((upload, expected))
            });
            (upload, expected) = written.await?;
        }
    }
    if announced.is_some_and(|announced| announced != len) {
        return Err(Rejection(400, "the body has another length than announced"));
    }
    expected.check()?;
    blocking(move || finish(&request, upload, modified, status)).await
}

/// Creates the temporary file. Returns the status of the response, too.
fn begin(request: &DavRequest) -> Outcome<(Upload, u16)> {
    request.check_kind()?;
    request.check()?;
    let (files, path) = (&request.files, request.path());
    let path = path.ok_or(Rejection(400, "want a name"))?;
    let condition = request.headers().get(header::IF_NONE_MATCH);
    let is_new = condition.is_some_and(|tag| tag == "*");
    let status = if files.exists(Some(path)) { 204 } else { 201 };
    let upload = Upload::begin(&files.root, path, is_new, &files.changes);
    Ok((upload.map_err(Rejection::of_new_name)?, status))
}

/// Gives the file its time and its name.
fn finish(request: &DavRequest, upload: Upload, modified: Option<i64>, status: u16) -> Outcome {
    if let Some(seconds) = modified {
        upload.set_modified(seconds)?;
    }
    let meta = upload.commit(|upload| request.step(|| upload.rename_into_place()))?;
    let mut response: HttpResponse = empty_response(status);
    insert(&mut response, header::ETAG, meta.etag());
    if let Some(date) = meta.http_date() {
        insert(&mut response, header::LAST_MODIFIED, date);
    }
    // Some file systems keep no time so far away.
    if modified == Some(meta.modified_s()) {
        insert(&mut response, MODIFIED, "accepted");
    }
    Ok(response)
}

/// Parses the time that the client names.
fn modified(headers: &HeaderMap) -> Outcome<Option<i64>> {
    let Some(value) = headers.get(MODIFIED) else {
        return Ok(None);
    };
    let seconds = value.to_str().ok().and_then(|text| text.parse().ok());
    let seconds = seconds.filter(|seconds: &f64| seconds.abs() < 1e11);
    let seconds = seconds.ok_or(Rejection(400, "X-OC-Mtime is no time"))?;
    Ok(Some(seconds as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_in_seconds() {
        let of = |text: &str| modified(&HeaderMap::from_iter([(MODIFIED, text.parse().unwrap())]));
        assert_eq!(of("981173106"), Ok(Some(981_173_106)));
        assert_eq!(of("981173106.7"), Ok(Some(981_173_106)));
        assert_eq!(of("-1"), Ok(Some(-1)));
        assert_eq!(modified(&HeaderMap::new()), Ok(None));
        for invalid in ["", "yesterday", "inf", "NaN", "1e30"] {
            assert!(of(invalid).is_err(), "{invalid}");
        }
    }
}
