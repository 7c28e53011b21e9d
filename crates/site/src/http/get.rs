// SPDX-License-Identifier: MIT OR Apache-2.0
//! GET and HEAD: whole files, ranges (RFC 9110 §14) by themselves or as multipart/byteranges (§15.3.7, RFC 2046 §5.1),
//! and directory pages.

use super::{
    dav_request::DavRequest,
    digests::WantedDigests,
    export::meta::Meta,
    page,
    request::{conditions, ranges::RequestedRange},
    response::{
        Body, HttpResponse, Outcome, blocking, empty_response, failure, full_body, insert,
        text_response,
    },
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::{Method, StatusCode, body::Frame, header};
use longhaul_linux::random::random_bytes;
use std::{
    collections::VecDeque, fs::File, io, os::unix::fs::FileExt as _, sync::Arc, time::Duration,
};
use tokio::time::timeout;

/// Bytes that are read at once.
const READ_LEN: u64 = 128 << 10;

/// Longest time that a request waits for the digests of others.
const DIGEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Responds to a GET or a HEAD.
pub(super) async fn get(request: DavRequest) -> Outcome {
    let opened = blocking(move || {
        let opened = open(&request)?;
        Ok((request, opened))
    });
    let (request, opened) = opened.await?;
    let Some((file, meta)) = opened else {
        return page::get(request).await;
    };
    let file = Arc::new(file);
    let mut response = file_response(&request, &file, &meta)?;
    let wanted = WantedDigests::of(request.headers()).of_status(response.status());
    if !wanted.is_empty() {
        let access = &request.files.access;
        let permits = access.budget.acquire_digest(&access.token);
        // A digest is only a wish. Without it, the client need not wait for others.
        if let Ok(Some(_permits)) = timeout(DIGEST_WAIT_MAX, permits).await {
            wanted.add(&mut response, file, meta).await;
        }
    }
    Ok(response)
}

/// Opens the file. `None` for a directory.
fn open(request: &DavRequest) -> Outcome<Option<(File, Meta)>> {
    request.check_kind()?;
    request.check()?;
    let meta = request.meta()?;
    let path = request.path().filter(|_| meta.is_file());
    path.map(|path| Meta::open(&request.files.root, path))
        .transpose()
}

/// Returns the response for a file.
fn file_response(request: &DavRequest, file: &Arc<File>, meta: &Meta) -> Outcome {
    let (headers, validators) = (request.headers(), meta.validators());
    let is_get = request.head.method == Method::GET;
    let range = match conditions::failed_status(headers, true, Some(&validators)) {
        Some(status) => return Ok(with_validators(empty_response(status), meta)),
        None if is_get && conditions::range_applies(headers, &validators) => {
            RequestedRange::of(headers, meta.len())
        }
        None => RequestedRange::Whole,
    };
    let kind = content_type(&request.url());
    let response = match range {
        RequestedRange::Unsatisfiable => {
            return Ok(unsatisfiable("the range is beyond the end", meta.len()));
        }
        RequestedRange::Refused => {
            return Ok(unsatisfiable(
                "want fewer ranges, and none that overlap",
                meta.len(),
            ));
        }
        RequestedRange::Whole => {
            let parts = meta.len().checked_sub(1).map(|last| Part::Range(0, last));
            contents(
                StatusCode::OK,
                &kind,
                file,
                parts.into_iter().collect(),
                is_get,
            )
        }
        RequestedRange::Parts(parts) if parts.len() == 1 => {
            let (first, last) = parts[0];
            let range = VecDeque::from([Part::Range(first, last)]);
            let mut response = contents(StatusCode::PARTIAL_CONTENT, &kind, file, range, true);
            insert(
                &mut response,
                header::CONTENT_RANGE,
                content_range(parts[0], meta.len()),
            );
            response
        }
        RequestedRange::Parts(parts) => {
            // A file contains it only by chance.
            let boundary = format!("{:032x}", u128::from_ne_bytes(random_bytes()?));
            let parts = multipart(&parts, &boundary, &kind, meta.len());
            let kind = format!("multipart/byteranges; boundary={boundary}");
            contents(StatusCode::PARTIAL_CONTENT, &kind, file, parts, true)
        }
    };
    Ok(with_validators(response, meta))
}

/// Guesses the media type from a name, which is escaped as in a URL.
pub(super) fn content_type(href: &str) -> String {
    let kind = mime_guess::from_path(href).first_or_octet_stream();
    kind.essence_str().to_owned()
}

/// Adds the entity tag and the date of the last change.
fn with_validators(mut response: HttpResponse, meta: &Meta) -> HttpResponse {
    insert(&mut response, header::ETAG, meta.etag());
    if let Some(date) = meta.http_date() {
        insert(&mut response, header::LAST_MODIFIED, date);
    }
    response
}

fn unsatisfiable(why: &str, len: u64) -> HttpResponse {
    let mut response = text_response(StatusCode::RANGE_NOT_SATISFIABLE, why);
    insert(
        &mut response,
        header::CONTENT_RANGE,
        format!("bytes */{len}"),
    );
    response
}

fn content_range((first, last): (u64, u64), len: u64) -> String {
    format!("bytes {first}-{last}/{len}")
}

/// Part of a response body.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// First and last byte in the file.
    Range(u64, u64),
}

fn multipart(ranges: &[(u64, u64)], boundary: &str, kind: &str, len: u64) -> VecDeque<Part> {
    let parts = ranges.iter().flat_map(|&(first, last)| {
        let range = content_range((first, last), len);
        let head =
            format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n");
        [Part::Text(head), Part::Range(first, last)]
    });
    let end = Part::Text(format!("\r\n--{boundary}--\r\n"));
    parts.chain([end]).collect()
}

/// Returns a response with parts of a file or, unless they `are_sent`, with their length only.
fn contents(
    status: StatusCode,
    kind: &str,
    file: &Arc<File>,
    parts: VecDeque<Part>,
    are_sent: bool,
) -> HttpResponse {
    let len = |part: &Part| match part {
        Part::Text(text) => text.len() as u64,
        Part::Range(first, last) => last - first + 1,
    };
    let len: u64 = parts.iter().map(len).sum();
    let mut response = HttpResponse::new(if are_sent {
        body(file.clone(), parts)
    } else {
        full_body("")
    });
    *response.status_mut() = status;
    insert(&mut response, header::ACCEPT_RANGES, "bytes");
    insert(&mut response, header::CONTENT_LENGTH, len.to_string());
    insert(&mut response, header::CONTENT_TYPE, kind);
    response
}

fn body(file: Arc<File>, parts: VecDeque<Part>) -> Body {
    let frames = stream::try_unfold(parts, move |mut parts| {
        let file = file.clone();
        async move {
            let bytes = match parts.pop_front() {
                None => return Ok(None),
                Some(Part::Text(text)) => Bytes::from(text),
                Some(Part::Range(first, last)) => {
                    let bytes = read(file, first, last).await?;
                    let next = first + bytes.len() as u64;
                    if next <= last {
                        parts.push_front(Part::Range(next, last));
                    }
                    bytes
                }
            };
            Ok::<_, io::Error>(Some((Frame::data(bytes), parts)))
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

/// Reads the next bytes of a range. A file that has become shorter is an error, so that no client receives bytes that
/// never existed.
async fn read(file: Arc<File>, first: u64, last: u64) -> io::Result<Bytes> {
    let read = blocking(move || {
        let mut bytes = vec![0; (last - first + 1).min(READ_LEN) as usize];
        let read = file.read_at(&mut bytes, first)?;
        bytes.truncate(read);
        match read {
            0 => Err(failure("the file has become shorter")),
            _ => Ok(Bytes::from(bytes)),
        }
    });
    read.await
        .map_err(|rejection| io::Error::other(rejection.1))
}
