// SPDX-License-Identifier: MIT OR Apache-2.0
//! PUT: a whole file, stored once all of it has arrived and is what the client announced.

use super::{
    dav_request::DavRequest,
    digests::ExpectedDigests,
    export::upload::Upload,
    response::{HttpResponse, Outcome, Rejection, bad_request, blocking, empty_response, insert},
};
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Method, StatusCode,
    body::Incoming,
    header::{self, HeaderName},
    http::request::Parts,
};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
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
        let why = "partial uploads are not supported: longhaul copy resumes an interrupted copy";
        return Err(bad_request(why));
    }
    if has_other_value(header::CONTENT_ENCODING, "identity") {
        let why = "Content-Encoding is not supported";
        return Err(Rejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    if has_other_value(header::TRANSFER_ENCODING, "chunked") {
        let why = "the only supported transfer coding is chunked";
        return Err(Rejection(StatusCode::NOT_IMPLEMENTED, why));
    }
    Ok(())
}

/// Stores a file. The conditions are checked again when it gets its name, since the body takes time.
pub(super) async fn put(request: DavRequest, body: &mut Incoming) -> Outcome {
    let (mut expected, modified) = (
        ExpectedDigests::of(request.headers())?,
        modified(request.headers())?,
    );
    let announced_len = number(request.headers(), &LENGTH);
    let request = Arc::new(request);
    let (mut upload, status) = blocking({
        let request = request.clone();
        move || begin(&request)
    })
    .await?;
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| bad_request("the body is incomplete"))?;
        if let Ok(bytes) = frame.into_data() {
            len += bytes.len() as u64;
            (upload, expected) = blocking(move || {
                upload.write(&bytes)?;
                expected.update(&bytes);
                Ok((upload, expected))
            })
            .await?;
        }
    }
    if announced_len.is_some_and(|announced| announced != len) {
        return Err(bad_request("the body has another length than announced"));
    }
    expected.check()?;
    blocking(move || finish(&request, upload, modified, status)).await
}

/// Creates the temporary file. Returns the status of the response, too.
fn begin(request: &DavRequest) -> Outcome<(Upload, StatusCode)> {
    request.check_kind()?;
    request.check()?;
    let path = request.path().ok_or(bad_request("want a name"))?;
    let is_new = request
        .headers()
        .get(header::IF_NONE_MATCH)
        .is_some_and(|tag| tag == "*");
    let status = if request.files.exists(Some(path)) {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::CREATED
    };
    let upload = Upload::begin(&request.files.root, path, is_new, &request.files.changes);
    Ok((upload.map_err(Rejection::of_new_name)?, status))
}

/// Gives the file its time and its name.
fn finish(
    request: &DavRequest,
    upload: Upload,
    modified: Option<i64>,
    status: StatusCode,
) -> Outcome {
    if let Some(seconds) = modified {
        upload.set_times(&times(seconds))?;
    }
    let meta = upload.commit(|upload| request.step(|| upload.rename_into_place()))?;
    let mut response: HttpResponse = empty_response(status);
    insert(&mut response, header::ETAG, meta.etag());
    insert(
        &mut response,
        header::LAST_MODIFIED,
        meta.http_date().unwrap_or_default(),
    );
    // Some file systems keep no time so far away.
    if modified == Some(meta.modified_s()) {
        insert(&mut response, MODIFIED, "accepted");
    }
    Ok(response)
}

/// Parses the time that the client names.
fn modified(headers: &HeaderMap) -> Outcome<Option<i64>> {
    let seconds = headers
        .get(MODIFIED)
        .map(|value| value.to_str().ok()?.parse::<f64>().ok());
    match seconds {
        None => Ok(None),
        Some(Some(seconds)) if seconds.abs() < 1e11 => Ok(Some(seconds as i64)),
        Some(_) => Err(bad_request("X-OC-Mtime is no time")),
    }
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn times(seconds: i64) -> Timestamps {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: time(0, UTIME_OMIT),
        last_modification: time(seconds, 0),
    }
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
