// SPDX-License-Identifier: MIT OR Apache-2.0
//! Responses: a status with a text, XML, bodies that are made while they are sent, and refusals.

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::Frame,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
};
use longhaul_store::root::Failure;
use rustix::io::Errno;
use std::{io, iter};

/// WebDAV compliance classes of the site (RFC 4918 §18).
const DAV_CLASSES: &str = "1, 2, 3";

const XML_TYPE: &str = "application/xml; charset=utf-8";
const XML_DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Most texts in a batch, and bytes that end a batch early. One text of a listing may have some 16 KiB of properties,
/// 256 KiB of missing ones, and 1 MiB of locks.
const BATCH: usize = 128;
const BATCH_LEN: usize = 256 << 10;

/// Response to a request.
pub(crate) type HttpResponse = Response<Body>;

/// Body of a response, whole or streamed.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Result of a request or a part of it.
pub(crate) type Outcome<T = HttpResponse> = Result<T, Rejection>;

/// Status and text of the response to a request that is refused or has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejection(pub(crate) u16, pub(crate) &'static str);

impl Rejection {
    /// Returns the rejection of a request that creates a name: only the parent of the name can be missing.
    pub(super) fn of_new_name(self) -> Self {
        match self.0 {
            404 => Self(409, "the parent directory does not exist"),
            _ => self,
        }
    }
}

impl From<Rejection> for HttpResponse {
    fn from(Rejection(status, why): Rejection) -> Self {
        text_response(status, why)
    }
}

impl From<Errno> for Rejection {
    fn from(errno: Errno) -> Self {
        let (status, why) = match errno {
            // A symbolic link in the path leads nowhere.
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => (404, "not found"),
            Errno::EXIST => (412, "the name exists already"),
            Errno::NOTEMPTY => (409, "the directory is not empty"),
            Errno::BUSY => (409, "it is in use"),
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::ISDIR => {
                (403, "the site may not do that")
            }
            Errno::NOSPC | Errno::DQUOT => (507, "no space is left"),
            Errno::FBIG => (413, "the file is too large"),
            Errno::NAMETOOLONG => (414, "the name is too long there"),
            Errno::XDEV => (502, "the destination is on another file system"),
            _ => (500, "the file system has failed"),
        };
        Self(status, why)
    }
}

impl From<Failure> for Rejection {
    fn from(failure: Failure) -> Self {
        failure.errno().unwrap_or(Errno::PERM).into()
    }
}

impl From<io::Error> for Rejection {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

/// Runs an operation that may wait for a disk on a thread of its own. It ends even if the client disconnects.
pub(super) async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let done = tokio::task::spawn_blocking(operation).await;
    done.unwrap_or(Err(Rejection(500, "the site has failed")))
}

pub(super) fn full_body(bytes: impl Into<Bytes>) -> Body {
    let never = |never| match never {};
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

/// Returns a body of texts, none of which is empty. They are made in batches when the client is ready for them. An error
/// cuts it off.
pub(super) fn streamed_body(texts: impl Iterator<Item = Outcome<String>> + Send + 'static) -> Body {
    let frames = stream::unfold(Some(texts), async |texts| {
        let mut texts = texts?;
        let batch = blocking(move || {
            let mut batch = String::new();
            for text in texts.by_ref().take(BATCH) {
                batch += &text?;
                if batch.len() >= BATCH_LEN {
                    break;
                }
            }
            Ok((batch, texts))
        });
        match batch.await {
            Ok((batch, _)) if batch.is_empty() => None,
            Ok((batch, texts)) => Some((Ok(Frame::data(Bytes::from(batch))), Some(texts))),
            Err(Rejection(_, why)) => Some((Err(io::Error::other(why)), None)),
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

fn response(status: u16, body: Body) -> HttpResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status_code(status);
    response
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns a response with a status only.
pub(super) fn empty_response(status: u16) -> HttpResponse {
    response(status, full_body(""))
}

pub(super) fn typed_response(status: u16, kind: &str, body: Body) -> HttpResponse {
    let mut response = response(status, body);
    insert(&mut response, CONTENT_TYPE, kind);
    response
}

/// Returns an XML response with this element.
pub(super) fn xml_response(status: u16, element: &str) -> HttpResponse {
    let body = full_body(format!("{XML_DECLARATION}{element}\n"));
    typed_response(status, XML_TYPE, body)
}

/// Returns a multistatus response (RFC 4918 §13), which streams these elements.
pub(super) fn multistatus_response(
    elements: impl Iterator<Item = Outcome<String>> + Send + 'static,
) -> HttpResponse {
    let begin = format!("{XML_DECLARATION}<D:multistatus xmlns:D=\"DAV:\">");
    let end = "</D:multistatus>\n".to_owned();
    let texts = iter::once(Ok(begin)).chain(elements).chain([Ok(end)]);
    let mut response = typed_response(207, XML_TYPE, streamed_body(texts));
    insert(&mut response, CACHE_CONTROL, "no-cache");
    response
}

/// Returns a `response` element. A URL's path is escaped, and contains no XML characters.
pub(super) fn response_element(href: &str, parts: &str) -> String {
    format!("<D:response><D:href>{href}</D:href>{parts}</D:response>")
}

pub(super) fn status_element(status: u16) -> String {
    format!("<D:status>HTTP/1.1 {}</D:status>", status_code(status))
}

pub(super) fn text_response(status: u16, text: &str) -> HttpResponse {
    let body = full_body(format!("{text}\n"));
    typed_response(status, "text/plain; charset=utf-8", body)
}

/// Returns the response to OPTIONS, which WebDAV clients request before they mount something.
pub(super) fn options_response(methods: &[&str]) -> HttpResponse {
    const DAV: HeaderName = HeaderName::from_static("dav");
    const AUTHORING: HeaderName = HeaderName::from_static("ms-author-via");
    let mut response = empty_response(200);
    insert(&mut response, DAV, DAV_CLASSES);
    insert(&mut response, AUTHORING, "DAV");
    insert(&mut response, ALLOW, methods.join(", "));
    response
}

/// Sets a header field to a value in ASCII without control characters.
pub(super) fn insert(response: &mut HttpResponse, name: HeaderName, value: impl AsRef<str>) {
    if let Ok(value) = HeaderValue::try_from(value.as_ref()) {
        response.headers_mut().insert(name, value);
    }
}
