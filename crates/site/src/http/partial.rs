// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partial responses: one range by itself, or several as multipart/byteranges (RFC 9110 §15.3.7, RFC 2046 §5.1).

use super::{
    export::download::{Download, READ_LEN},
    response::{Body, HttpResponse},
};
use bytes::Bytes;
use dav_server::fs::{DavFile, DavMetaData};
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    StatusCode,
    body::Frame,
    header::{self, HeaderName, HeaderValue},
};
use std::{
    collections::VecDeque,
    io::{self, SeekFrom},
};

/// Part of a response body.
#[derive(Debug, PartialEq, Eq)]
enum BodyPart {
    Text(String),
    /// First and last byte in the file.
    Range(u64, u64),
}

impl BodyPart {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Range(first, last) => last - first + 1,
        }
    }
}

/// Returns a response with ranges of a file, each from its first to its last byte.
pub(super) fn partial_content(file: Download, kind: &str, parts: &[(u64, u64)]) -> HttpResponse {
    let len = file.meta().len();
    let range = |(first, last): (u64, u64)| format!("bytes {first}-{last}/{len}");
    let boundary = format!("{:032x}", random());
    let (kind, range, pieces) = match parts {
        &[(first, last)] => (
            kind.to_owned(),
            Some(range((first, last))),
            vec![BodyPart::Range(first, last)],
        ),
        _ => (
            format!("multipart/byteranges; boundary={boundary}"),
            None,
            multipart(parts, &boundary, kind, range),
        ),
    };
    let content_len: u64 = pieces.iter().map(BodyPart::len).sum();
    let mut response = HttpResponse::new(body(file, pieces.into()));
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    for (name, value) in [
        (header::ACCEPT_RANGES, Some("bytes".to_owned())),
        (header::CONTENT_LENGTH, Some(content_len.to_string())),
        (header::CONTENT_RANGE, range),
        (header::CONTENT_TYPE, Some(kind)),
    ] {
        insert(&mut response, name, value);
    }
    response
}

fn insert(response: &mut HttpResponse, name: HeaderName, value: Option<String>) {
    // The values are ASCII.
    if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
        response.headers_mut().insert(name, value);
    }
}

/// Returns a random boundary. A file contains it only by chance.
fn random() -> u128 {
    let mut random = [0; 16];
    // If this fails, the boundary is zero and still valid.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    u128::from_ne_bytes(random)
}

fn multipart(
    parts: &[(u64, u64)],
    boundary: &str,
    kind: &str,
    range: impl Fn((u64, u64)) -> String,
) -> Vec<BodyPart> {
    let head = |part| {
        let range = range(part);
        format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n")
    };
    let piece = |&(first, last): &(u64, u64)| {
        [
            BodyPart::Text(head((first, last))),
            BodyPart::Range(first, last),
        ]
    };
    let end = BodyPart::Text(format!("\r\n--{boundary}--\r\n"));
    parts.iter().flat_map(piece).chain([end]).collect()
}

fn body(file: Download, pieces: VecDeque<BodyPart>) -> Body {
    let frames = stream::try_unfold((file, pieces), next_frame);
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

async fn next_frame(
    (mut file, mut pieces): (Download, VecDeque<BodyPart>),
) -> io::Result<Option<(Frame<Bytes>, (Download, VecDeque<BodyPart>))>> {
    let bytes = match pieces.pop_front() {
        None => return Ok(None),
        Some(BodyPart::Text(text)) => Bytes::from(text),
        Some(BodyPart::Range(first, last)) => {
            let bytes = read(&mut file, first, last).await?;
            let next = first + bytes.len() as u64;
            if next <= last {
                pieces.push_front(BodyPart::Range(next, last));
            }
            bytes
        }
    };
    Ok(Some((Frame::data(bytes), (file, pieces))))
}

/// Reads the next bytes of a range.
async fn read(file: &mut Download, first: u64, last: u64) -> io::Result<Bytes> {
    let count = (last - first + 1).min(READ_LEN as u64) as usize;
    file.seek(SeekFrom::Start(first))
        .await
        .map_err(io::Error::other)?;
    file.read_bytes(count).await.map_err(io::Error::other)
}
