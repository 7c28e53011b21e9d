// SPDX-License-Identifier: MIT OR Apache-2.0
//! GET and HEAD: whole files, ranges (RFC 9110 §14) by themselves or as multipart/byteranges (§15.3.7, RFC 2046 §5.1),
//! and directory pages.

use super::{
    budget::Use,
    dav_request::DavRequest,
    digests::WantedDigests,
    export::meta::Meta,
    page,
    request::{
        conditions,
        ranges::{Range, RequestedRange},
    },
    response::{
        Body, HttpResponse, Outcome, Rejection, blocking, empty_response, insert, text_response,
        typed_response,
    },
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Method,
    body::Frame,
    header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED},
};
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
    insert(&mut response, ETAG, meta.etag());
    if let Some(date) = meta.http_date() {
        insert(&mut response, LAST_MODIFIED, date);
    }
    let wanted = WantedDigests::of(request.headers(), response.status());
    if !wanted.is_empty() {
        let access = &request.files.access;
        let permits = access.budget.acquire(Use::Digest, &access.token, 1);
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

/// Returns the response for a file, without validators.
fn file_response(request: &DavRequest, file: &Arc<File>, meta: &Meta) -> Outcome {
    let (headers, validators, len) = (request.headers(), meta.validators(), meta.len());
    if let Some(status) = conditions::failed_status(headers, true, Some(&validators)) {
        return Ok(empty_response(status));
    }
    let is_get = request.head.method == Method::GET;
    let range = if is_get && conditions::range_applies(headers, &validators) {
        RequestedRange::of(headers, len)
    } else {
        RequestedRange::Whole
    };
    let kind = content_type(&request.url());
    let response = match range {
        RequestedRange::Refused => {
            let why = "want ranges before the end, few of them, and none that overlap";
            let mut response = text_response(416, why);
            insert(&mut response, CONTENT_RANGE, format!("bytes */{len}"));
            return Ok(response);
        }
        RequestedRange::Whole => {
            let all = len.checked_sub(1).map(|last| Part::Range(0, last));
            contents(200, &kind, file, all.into_iter().collect())
        }
        RequestedRange::Parts(parts) => match parts[..] {
            [range] => {
                let part = Part::Range(range.0, range.1);
                let mut response = contents(206, &kind, file, VecDeque::from([part]));
                insert(&mut response, CONTENT_RANGE, content_range(range, len));
                response
            }
            _ => {
                // A file contains it only by chance.
                let boundary = format!("{:032x}", u128::from_ne_bytes(random_bytes()?));
                let parts = multipart(&parts, &boundary, &kind, len);
                let kind = format!("multipart/byteranges; boundary={boundary}");
                contents(206, &kind, file, parts)
            }
        },
    };
    Ok(response)
}

/// Guesses the media type from a name, which is escaped as in a URL.
pub(super) fn content_type(href: &str) -> String {
    let kind = mime_guess::from_path(href).first_or_octet_stream();
    kind.essence_str().to_owned()
}

fn content_range((first, last): Range, len: u64) -> String {
    format!("bytes {first}-{last}/{len}")
}

/// Part of a response body.
enum Part {
    Text(String),
    /// First and last byte in the file.
    Range(u64, u64),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Range(first, last) => last - first + 1,
        }
    }
}

fn multipart(ranges: &[Range], boundary: &str, kind: &str, len: u64) -> VecDeque<Part> {
    let parts = ranges.iter().flat_map(|&(first, last)| {
        let range = content_range((first, last), len);
        let head =
            format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n");
        [Part::Text(head), Part::Range(first, last)]
    });
    let end = Part::Text(format!("\r\n--{boundary}--\r\n"));
    parts.chain([end]).collect()
}

/// Returns a response with parts of a file.
fn contents(status: u16, kind: &str, file: &Arc<File>, parts: VecDeque<Part>) -> HttpResponse {
    let len: u64 = parts.iter().map(Part::len).sum();
    let mut response = typed_response(status, kind, body(file.clone(), parts));
    insert(&mut response, ACCEPT_RANGES, "bytes");
    insert(&mut response, CONTENT_LENGTH, len.to_string());
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
            0 => Err(Rejection(500, "the file has become shorter")),
            _ => Ok(Bytes::from(bytes)),
        }
    });
    read.await
        .map_err(|rejection| io::Error::other(rejection.1))
}
