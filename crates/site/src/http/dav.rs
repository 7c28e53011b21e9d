// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that is let in: checked, then carried out. Locks and properties are the site's; the other methods of RFC 4918
//! are dav-server's, on what [`Files`] shows it of an export.

use super::{
    access::Access,
    answer::{Answer, CLASSES, said},
    audit::Entry,
    export::{download::READ_LEN, files::Files},
    listing, lock,
    locks::Holder,
    properties,
    protection::Preconditions,
    replacement,
    request::{
        ranges::{self, Asked},
        target::{Target, Wrong},
        xml,
    },
};
use bytes::Bytes;
use dav_server::{DavConfig, fakels::FakeLs, fs::DavMetaData};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Body, Incoming},
    header::{self, HeaderMap, HeaderValue},
};
use std::{error::Error, panic::AssertUnwindSafe, time::Duration};
use tokio::time::timeout;

/// How long the body of a request that is no PUT may take to come.
const BODY_TIME: Duration = Duration::from_secs(20);

/// Methods whose body is XML, whether the library knows them or not. That of a MKCOL is refused (415).
const WITH_XML: [&str; 8] = [
    "ACL",
    "LOCK",
    "MKADDRESSBOOK",
    "MKCALENDAR",
    "PROPFIND",
    "PROPPATCH",
    "REPORT",
    "SEARCH",
];

/// Answers a request, and says so.
pub(super) async fn answer(access: Access, mut request: Request<Incoming>, entry: Entry) -> Answer {
    // With it, a client of a test suite may ask for a whole tree at once.
    request.headers_mut().remove("x-litmus");
    match checked(access, &mut request, &entry) {
        Ok((target, files)) => carry_out(request, target, files, entry).await,
        Err((status, why)) => entry.end(said(status, why)),
    }
}

fn checked<B>(
    access: Access,
    request: &mut Request<B>,
    entry: &Entry,
) -> Result<(Target, Files), Wrong> {
    if request.method() == Method::PATCH || request.method() == Method::PUT {
        is_a_whole_file(request)?;
    }
    let target = Target::of(request, &access.export)?;
    let files = Files::of(access, entry.changes.clone());
    let closed = (
        StatusCode::SERVICE_UNAVAILABLE,
        "the site cannot open what it exports",
    );
    Ok((target, files.map_err(|_| closed)?))
}

async fn carry_out(
    mut request: Request<Incoming>,
    target: Target,
    files: Files,
    mut entry: Entry,
) -> Answer {
    if target.destination.is_some() {
        entry.to = target.destination_url(&files.access.export);
    }
    if let Some((status, why)) = misnamed(&files, &target, request.method()).await {
        return entry.end(said(status, why));
    }
    let preconditions = match Preconditions::take(&files, &target, &mut request) {
        Ok(preconditions) => preconditions,
        Err((status, why)) => return entry.end(said(status, why)),
    };
    if let Err((status, why)) = preconditions.check().await {
        return entry.end(said(status, why));
    }
    let files = match ["MKCOL", "PROPPATCH", "PUT"].contains(&request.method().as_str()) {
        true => files.guarded(preconditions.guard()),
        false => files,
    };
    if request.method() == Method::PUT {
        return entry.end(handle(files, request).await);
    }
    let whole = match with_whole_body(request).await {
        Ok(request) => request,
        Err((status, why)) => return entry.end(said(status, why)),
    };
    if !["COPY", "DELETE", "MOVE"].contains(&whole.method().as_str()) {
        return entry.end(answer_whole(files, target, whole, preconditions.holder()).await);
    }
    // What has begun goes on when the client is gone.
    let carried_out = tokio::spawn(async move {
        let whole = whole.map(Full::new);
        entry.end(replacement::carry_out(files, target, whole, preconditions, handle).await)
    });
    carried_out.await.unwrap_or_else(|_| senseless())
}

/// Answers a request that moves and removes no names.
async fn answer_whole(
    files: Files,
    target: Target,
    mut request: Request<Bytes>,
    holder: Holder,
) -> Answer {
    match request.method().as_str() {
        "LOCK" => lock::lock(files, target, request, holder).await,
        "UNLOCK" => lock::unlock(files, target, request, holder).await,
        "PROPFIND" => properties::find(files, target, request).await,
        "PROPPATCH" => properties::patch(files, target, request).await,
        "OPTIONS" => options(handle(files, request.map(Full::new)).await),
        _ => match refuse_ranges(&files, &target, request.headers_mut()).await {
            Some(answer) => answer,
            None => show(files, &target, request.map(Full::new)).await,
        },
    }
}

/// dav-server says that parts of a file may be put.
fn options(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert("dav", HeaderValue::from_static(CLASSES));
    let allowed = headers
        .get(header::ALLOW)
        .and_then(|value| value.to_str().ok());
    let kept = allowed
        .unwrap_or_default()
        .split(',')
        .filter(|one| *one != "PATCH");
    if let Ok(kept) = HeaderValue::try_from(kept.collect::<Vec<_>>().join(",")) {
        headers.insert(header::ALLOW, kept);
    }
    answer
}

/// A directory is listed before the library is asked, which would show one that can't be listed as an empty one.
async fn show(files: Files, target: &Target, request: Request<Full<Bytes>>) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return handle(files, request).await;
    }
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

/// What the library makes of a request.
async fn handle<B>(files: Files, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes>,
    B::Error: Error + Send + Sync + 'static,
{
    let (access, guard) = (files.access.clone(), files.guard.clone());
    let handler = DavConfig::new()
        .strip_prefix(format!("/{}", access.export))
        .filesystem(Box::new(files))
        // Locks are looked at before; this has it say that there are some.
        .locksystem(FakeLs::new())
        .principal(&access.token)
        .autoindex(true)
        .read_buf_size(READ_LEN)
        .build_handler();
    // It panics at some headers that make no sense (an ETag of one quotation mark); that is to be the client's affair.
    let handled = AssertUnwindSafe(handler.handle(request)).catch_unwind();
    match (handled.await, guard.refused()) {
        (Ok(_), Some((status, why))) => said(status, why),
        (Ok(answer), None) => answer.map(BodyExt::boxed_unsync),
        (Err(_), _) => senseless(),
    }
}

fn senseless() -> Answer {
    said(
        StatusCode::BAD_REQUEST,
        "what the request says makes no sense",
    )
}

/// The request when all of its body is there, which is checked if it is XML.
pub(super) async fn with_whole_body(request: Request<Incoming>) -> Result<Request<Bytes>, Wrong> {
    let (head, body) = request.into_parts();
    let read = timeout(BODY_TIME, Limited::new(body, xml::BODY_LEN_MAX).collect()).await;
    let body = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"));
        }
        Ok(Err(_)) => return Err((StatusCode::BAD_REQUEST, "the body did not come whole")),
        Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the body is too slow")),
    };
    if WITH_XML.contains(&head.method.as_str()) {
        xml::check(&body).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    }
    Ok(Request::from_parts(head, body))
}

/// Has a request for parts of a file ask for none that is not there; the answer to one for too many, or for the same
/// again and again.
async fn refuse_ranges(files: &Files, target: &Target, headers: &mut HeaderMap) -> Option<Answer> {
    let mut asked = headers.get_all(header::RANGE).iter();
    let header = asked.next()?.to_str().ok()?.to_owned();
    let once = asked.next().is_none();
    let path = target.path.clone()?;
    let len = files.look(Some(path)).await.ok()?.len();
    match ranges::read(&header, len) {
        Asked::Whole if once => drop(headers.remove(header::RANGE)),
        Asked::Parts(parts) if once => {
            headers.insert(header::RANGE, HeaderValue::try_from(parts).ok()?);
        }
        _ => {
            let why = "want fewer ranges, and none that overlap";
            let mut answer = said(StatusCode::RANGE_NOT_SATISFIABLE, why);
            let all = HeaderValue::try_from(format!("bytes */{len}")).ok()?;
            answer.headers_mut().insert(header::CONTENT_RANGE, all);
            return Some(answer);
        }
    }
    None
}

/// A file is put whole, and as its bytes are: what they mean is not kept beside them (RFC 9110 §8.4, §9.3.4, §14.5; RFC
/// 9112 §6.1).
fn is_a_whole_file<B>(request: &Request<B>) -> Result<(), Wrong> {
    let headers = request.headers();
    let other = |name, usual: &str| {
        let mut all = headers.get_all(name).iter();
        all.any(|value| !value.as_bytes().eq_ignore_ascii_case(usual.as_bytes()))
    };
    if request.method() == Method::PATCH || headers.contains_key(header::CONTENT_RANGE) {
        let why = "a file is put whole: longhaul copy goes on where it was interrupted";
        return Err((StatusCode::BAD_REQUEST, why));
    }
    if other(header::CONTENT_ENCODING, "identity") {
        let why = "a file is put as it is: without Content-Encoding";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    if other(header::TRANSFER_ENCODING, "chunked") {
        let why = "of transfer codings only chunked is known";
        return Err((StatusCode::NOT_IMPLEMENTED, why));
    }
    Ok(())
}

/// A name with a slash at its end is a directory's: what is wrong if a file has it.
async fn misnamed(files: &Files, target: &Target, method: &Method) -> Option<Wrong> {
    let path = target.path.clone().filter(|_| target.is_directory)?;
    if method == Method::PUT {
        return Some((
            StatusCode::CONFLICT,
            "a name with a slash at its end is a directory's",
        ));
    }
    let meta = files.look(Some(path)).await;
    let is_file = meta.is_ok_and(|meta| !meta.is_dir());
    is_file.then_some((
        StatusCode::NOT_FOUND,
        "it is a file, and the name a directory's",
    ))
}
