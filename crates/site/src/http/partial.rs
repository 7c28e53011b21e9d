// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a file: one as it is, several each with a head (RFC 9110 §15.3.7, RFC 2046 §5.1).

use super::{
    answer::{Answer, Body},
    export::download::{Download, READ_LEN},
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

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// First and last byte of the file.
    Range(u64, u64),
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Range(first, last) => last - first + 1,
        }
    }
}

/// These bytes of a file of this type, each part from the first to the last.
pub(super) fn answer(file: Download, kind: &str, parts: &[(u64, u64)]) -> Answer {
    let len = file.meta().len();
    let range = |(first, last): (u64, u64)| format!("bytes {first}-{last}/{len}");
    let boundary = format!("{:032x}", random());
    let (kind, range, pieces) = match parts {
        &[(first, last)] => (
            kind.to_owned(),
            Some(range((first, last))),
            vec![Piece::Range(first, last)],
        ),
        _ => (
            format!("multipart/byteranges; boundary={boundary}"),
            None,
            several(parts, &boundary, kind, range),
        ),
    };
    let content_len: u64 = pieces.iter().map(Piece::len).sum();
    let mut answer = Answer::new(body(file, pieces.into()));
    *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
    for (name, value) in [
        (header::ACCEPT_RANGES, Some("bytes".to_owned())),
        (header::CONTENT_LENGTH, Some(content_len.to_string())),
        (header::CONTENT_RANGE, range),
        (header::CONTENT_TYPE, Some(kind)),
    ] {
        insert(&mut answer, name, value);
    }
    answer
}

fn insert(answer: &mut Answer, name: HeaderName, value: Option<String>) {
    // They are ASCII.
    if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
        answer.headers_mut().insert(name, value);
    }
}

/// No file has it in it but by chance.
fn random() -> u128 {
    let mut random = [0; 16];
    // Without it, a boundary is one all the same.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    u128::from_ne_bytes(random)
}

fn several(
    parts: &[(u64, u64)],
    boundary: &str,
    kind: &str,
    range: impl Fn((u64, u64)) -> String,
) -> Vec<Piece> {
    let head = |part| {
        let range = range(part);
        format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n")
    };
    let piece =
        |&(first, last): &(u64, u64)| [Piece::Text(head((first, last))), Piece::Range(first, last)];
    let end = Piece::Text(format!("\r\n--{boundary}--\r\n"));
    parts.iter().flat_map(piece).chain([end]).collect()
}

fn body(file: Download, pieces: VecDeque<Piece>) -> Body {
    let frames = stream::try_unfold((file, pieces), next);
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

async fn next(
    (mut file, mut pieces): (Download, VecDeque<Piece>),
) -> io::Result<Option<(Frame<Bytes>, (Download, VecDeque<Piece>))>> {
    let bytes = match pieces.pop_front() {
        None => return Ok(None),
        Some(Piece::Text(text)) => Bytes::from(text),
        Some(Piece::Range(first, last)) => {
            let bytes = read(&mut file, first, last).await?;
            let next = first + bytes.len() as u64;
            if next <= last {
                pieces.push_front(Piece::Range(next, last));
            }
            bytes
        }
    };
    Ok(Some((Frame::data(bytes), (file, pieces))))
}

/// What can be read at once.
async fn read(file: &mut Download, first: u64, last: u64) -> io::Result<Bytes> {
    let count = (last - first + 1).min(READ_LEN as u64) as usize;
    file.seek(SeekFrom::Start(first))
        .await
        .map_err(io::Error::other)?;
    file.read_bytes(count).await.map_err(io::Error::other)
}
