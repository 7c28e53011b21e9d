// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that is let in: checked, then carried out. Locks and properties are the site's; the other methods of RFC 4918
//! are dav-server's, on what [`Files`] shows it of an export.

use super::{
    access::Access,
    answer::{Answer, said},
    audit::Entry,
    export::files::Files,
    get,
    library::{bad_request, handle, options},
    lock,
    locks::Holder,
    opening::open,
    properties,
    protection::Preconditions,
    replacement,
    request::{
        body::Received,
        target::{Rejection, Target},
        xml,
    },
};
use bytes::Bytes;
use dav_server::fs::DavMetaData;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{Method, Request, StatusCode, header};
use std::time::Duration;
use tokio::time::timeout;

/// How long the body of a request that is no PUT may take to come.
const BODY_TIME: Duration = Duration::from_secs(20);

/// How long an export may take to be opened.
const OPEN_TIME: Duration = Duration::from_secs(20);

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
pub(super) async fn answer(access: Access, mut request: Request<Received>, entry: Entry) -> Answer {
    // With it, a client of a test suite may ask for a whole tree at once.
    request.headers_mut().remove("x-litmus");
    match checked(access, &mut request, &entry).await {
        Ok((target, files)) => carry_out(request, target, files, entry).await,
        Err((status, why)) => entry.end(said(status, why)),
    }
}

async fn checked<B>(
    access: Access,
    request: &mut Request<B>,
    entry: &Entry,
) -> Result<(Target, Files), Rejection> {
    if request.method() == Method::PATCH || request.method() == Method::PUT {
        is_a_whole_file(request)?;
    }
    let target = Target::of(request, &access.export)?;
    let opened = open(access, entry.changes.clone(), OPEN_TIME, |files| files).await;
    let files = opened.ok_or((
        StatusCode::SERVICE_UNAVAILABLE,
        "the site cannot open what it exports",
    ))?;
    Ok((target, files))
}

async fn carry_out(
    mut request: Request<Received>,
    target: Target,
    files: Files,
    mut entry: Entry,
) -> Answer {
    if target.destination.is_some() {
        entry.to = target.destination_url(&files.access.export);
    }
    if let Err((status, why)) = check_kind(&files, &target, &request).await {
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
    carried_out.await.unwrap_or_else(|_| bad_request())
}

/// Answers a request that moves and removes no names.
async fn answer_whole(
    files: Files,
    target: Target,
    request: Request<Bytes>,
    holder: Holder,
) -> Answer {
    match request.method().as_str() {
        "LOCK" => lock::lock(files, target, request, holder).await,
        "UNLOCK" => lock::unlock(files, target, request, holder).await,
        "PROPFIND" => properties::find(files, target, request).await,
        "PROPPATCH" => properties::patch(files, target, request).await,
        "OPTIONS" => options(handle(files, request.map(Full::new)).await),
        "GET" | "HEAD" => get::get(files, &target, request).await,
        _ => handle(files, request.map(Full::new)).await,
    }
}

/// The request when all of its body is there, which is checked if it is XML.
pub(super) async fn with_whole_body(
    request: Request<Received>,
) -> Result<Request<Bytes>, Rejection> {
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
    if WITH_XML.contains(&head.method.as_str()) && !body.is_empty() {
        check_xml(body.clone()).await?;
    }
    Ok(Request::from_parts(head, body))
}

/// On a thread for that: 64 KiB take some milliseconds.
async fn check_xml(body: Bytes) -> Result<(), Rejection> {
    let checked = tokio::task::spawn_blocking(move || xml::check(&body)).await;
    let checked = checked.unwrap_or(Err("the body can't be read"));
    checked.map_err(|why| (StatusCode::BAD_REQUEST, why))
}

/// A file is put whole, and as its bytes are: what they mean is not kept beside them (RFC 9110 §8.4, §9.3.4, §14.5; RFC
/// 9112 §6.1).
fn is_a_whole_file<B>(request: &Request<B>) -> Result<(), Rejection> {
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

/// Whether what is there is what the request takes it for: a name with a slash at its end is a directory's, and a DELETE of a
/// directory is of all that is in it. One that says otherwise means something else (RFC 4918 §9.6.1: no client may say it;
/// Apache answers likewise).
async fn check_kind<B>(
    files: &Files,
    target: &Target,
    request: &Request<B>,
) -> Result<(), Rejection> {
    let (is_put, is_delete) = (
        request.method() == Method::PUT,
        request.method() == Method::DELETE,
    );
    let of_some = is_delete
        && request
            .headers()
            .get("depth")
            .is_some_and(|depth| depth != "infinity");
    let path = target
        .path
        .clone()
        .filter(|_| target.is_directory || of_some);
    let Some(path) = path else {
        return Ok(());
    };
    if is_put {
        let why = "a name with a slash at its end is a directory's";
        return Err((StatusCode::CONFLICT, why));
    }
    match files.look(Some(path)).await {
        Ok(meta) if meta.is_dir() && of_some => Err((
            StatusCode::BAD_REQUEST,
            "a directory is removed with all that is in it: want no Depth, or infinity",
        )),
        Ok(meta) if !meta.is_dir() && target.is_directory => Err((
            StatusCode::NOT_FOUND,
            "it is a file, and the name a directory's",
        )),
        _ => Ok(()),
    }
}
