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
pub(crate) struct Rejection(pub(crate) StatusCode, pub(crate) &'static str);

pub(super) const fn bad_request(why: &'static str) -> Rejection {
    Rejection(StatusCode::BAD_REQUEST, why)
}

pub(super) const fn forbidden(why: &'static str) -> Rejection {
    Rejection(StatusCode::FORBIDDEN, why)
}

pub(super) const fn not_found(why: &'static str) -> Rejection {
    Rejection(StatusCode::NOT_FOUND, why)
}

pub(super) const fn conflict(why: &'static str) -> Rejection {
    Rejection(StatusCode::CONFLICT, why)
}

pub(super) const fn failed_condition(why: &'static str) -> Rejection {
    Rejection(StatusCode::PRECONDITION_FAILED, why)
}

pub(super) const fn too_large(why: &'static str) -> Rejection {
    Rejection(StatusCode::PAYLOAD_TOO_LARGE, why)
}

pub(super) const fn locked(why: &'static str) -> Rejection {
    Rejection(StatusCode::LOCKED, why)
}

pub(super) const fn failure(why: &'static str) -> Rejection {
    Rejection(StatusCode::INTERNAL_SERVER_ERROR, why)
}

pub(super) const fn bad_gateway(why: &'static str) -> Rejection {
    Rejection(StatusCode::BAD_GATEWAY, why)
}

pub(super) const fn unavailable(why: &'static str) -> Rejection {
    Rejection(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(super) const fn no_space(why: &'static str) -> Rejection {
    Rejection(StatusCode::INSUFFICIENT_STORAGE, why)
}

impl Rejection {
    /// Returns the rejection of a request that creates a name: only the parent of the name can be missing.
    pub(super) fn of_new_name(self) -> Self {
        match self.0 {
            StatusCode::NOT_FOUND => conflict("the parent directory does not exist"),
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
        match errno {
            // A symbolic link in the path leads nowhere.
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => not_found("not found"),
            Errno::EXIST => failed_condition("the name exists already"),
            Errno::NOTEMPTY => conflict("the directory is not empty"),
            Errno::BUSY => conflict("it is in use"),
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::ISDIR => {
                forbidden("the site may not do that")
            }
            Errno::NOSPC | Errno::DQUOT => no_space("no space is left"),
            Errno::FBIG => too_large("the file is too large"),
            Errno::NAMETOOLONG => Self(StatusCode::URI_TOO_LONG, "the name is too long there"),
            Errno::XDEV => bad_gateway("the destination is on another file system"),
            _ => failure("the file system has failed"),
        }
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
    done.unwrap_or(Err(failure("the site has failed")))
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

/// Returns a response with a status only.
pub(super) fn empty_response(status: StatusCode) -> HttpResponse {
    let mut response = HttpResponse::new(full_body(""));
    *response.status_mut() = status;
    response
}

pub(super) fn typed_response(status: StatusCode, kind: &'static str, body: Body) -> HttpResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Returns an XML response with this element.
pub(super) fn xml_response(status: StatusCode, element: &str) -> HttpResponse {
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
    let mut response = typed_response(StatusCode::MULTI_STATUS, XML_TYPE, streamed_body(texts));
    insert(&mut response, CACHE_CONTROL, "no-cache");
    response
}

/// Returns a `response` element. A URL's path is escaped, and contains no XML characters.
pub(super) fn response_element(href: &str, parts: &str) -> String {
    format!("<D:response><D:href>{href}</D:href>{parts}</D:response>")
}

pub(super) fn status_element(status: StatusCode) -> String {
    format!("<D:status>HTTP/1.1 {status}</D:status>")
}

pub(super) fn text_response(status: StatusCode, text: &str) -> HttpResponse {
    let body = full_body(format!("{text}\n"));
    typed_response(status, "text/plain; charset=utf-8", body)
}

/// Returns the response to OPTIONS, which WebDAV clients request before they mount something.
pub(super) fn options_response(methods: &[&str]) -> HttpResponse {
    let mut response = empty_response(StatusCode::OK);
    insert(&mut response, HeaderName::from_static("dav"), DAV_CLASSES);
    insert(
        &mut response,
        HeaderName::from_static("ms-author-via"),
        "DAV",
    );
    insert(&mut response, ALLOW, methods.join(", "));
    response
}

/// Sets a header field to a value in ASCII without control characters.
pub(super) fn insert(response: &mut HttpResponse, name: HeaderName, value: impl AsRef<str>) {
    if let Ok(value) = HeaderValue::try_from(value.as_ref()) {
        response.headers_mut().insert(name, value);
    }
}
