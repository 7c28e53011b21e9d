// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of an authorized request: first its checks, then the method. The site handles locks and properties
//! itself. dav-server handles the other methods of RFC 4918, on the view of an export that [`Files`] gives it.

use super::{
    access::Access,
    audit::AuditEntry,
    export::{
        files::Files,
        terms::{MODIFIED, Terms},
    },
    get,
    library::{bad_request, handle, options_response},
    lock,
    locks::Holder,
    opening::open,
    preconditions::Preconditions,
    properties, replacement,
    request::{
        body::RequestBody,
        target::{Rejection, Target},
        xml,
    },
    response::{HttpResponse, text_response},
};
use bytes::Bytes;
use dav_server::fs::DavMetaData;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderValue},
};
use std::time::Duration;
use tokio::time::timeout;

/// Longest time to receive the body of a request other than PUT.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest time to open an export.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Methods whose body is XML, whether dav-server implements them or not. The body of a MKCOL is refused (415).
const XML_METHODS: [&str; 8] = [
    "ACL",
    "LOCK",
    "MKADDRESSBOOK",
    "MKCALENDAR",
    "PROPFIND",
    "PROPPATCH",
    "REPORT",
    "SEARCH",
];

/// Executes a request and writes its audit record.
pub(super) async fn respond(
    access: Access,
    mut request: Request<RequestBody>,
    entry: AuditEntry,
) -> HttpResponse {
    // This header would let a client list a whole tree at once. A test suite uses it.
    request.headers_mut().remove("x-litmus");
    match prepare(access, &mut request, &entry).await {
        Ok((target, files)) => execute(request, target, files, entry).await,
        Err((status, why)) => entry.finish(text_response(status, why)),
    }
}

async fn prepare<B>(
    access: Access,
    request: &mut Request<B>,
    entry: &AuditEntry,
) -> Result<(Target, Files), Rejection> {
    if request.method() == Method::PATCH || request.method() == Method::PUT {
        check_put(request)?;
    }
    let target = Target::of(request, &access.export)?;
    let opened = open(access, entry.changes.clone(), OPEN_TIMEOUT, |files| files).await;
    let files = opened.ok_or((
        StatusCode::SERVICE_UNAVAILABLE,
        "the site cannot open the export",
    ))?;
    Ok((target, files))
}

async fn execute(
    mut request: Request<RequestBody>,
    target: Target,
    files: Files,
    mut entry: AuditEntry,
) -> HttpResponse {
    if target.destination.is_some() {
        entry.destination = target.destination_url(&files.access.export);
    }
    if let Err((status, why)) = check_resource_kind(&files, &target, &request).await {
        return entry.finish(text_response(status, why));
    }
    let preconditions = match Preconditions::take(&files, &target, &mut request) {
        Ok(preconditions) => preconditions,
        Err((status, why)) => return entry.finish(text_response(status, why)),
    };
    if let Err((status, why)) = preconditions.check().await {
        return entry.finish(text_response(status, why));
    }
    let files = if ["MKCOL", "PROPPATCH", "PUT"].contains(&request.method().as_str()) {
        files.with_guard(preconditions.guard())
    } else {
        files
    };
    if request.method() == Method::PUT {
        return entry.finish(put(files, &target, request).await);
    }
    let request = match collect_body(request).await {
        Ok(request) => request,
        Err((status, why)) => return entry.finish(text_response(status, why)),
    };
    if !["COPY", "DELETE", "MOVE"].contains(&request.method().as_str()) {
        return entry.finish(dispatch(files, target, request, preconditions.holder()).await);
    }
    // An operation that has begun is finished even if the client disconnects.
    let response = tokio::spawn(async move {
        let request = request.map(Full::new);
        entry.finish(replacement::execute(files, target, request, preconditions, handle).await)
    });
    response.await.unwrap_or_else(|_| bad_request())
}

/// Stores a file, on the terms that the client names.
async fn put(files: Files, target: &Target, request: Request<RequestBody>) -> HttpResponse {
    let terms = match Terms::of(request.headers()) {
        Ok(terms) => terms,
        Err((status, why)) => return text_response(status, why),
    };
    let (wanted, stored) = (terms.modified, files.clone());
    let mut response = handle(files.with_terms(terms), request).await;
    // dav-server's response if the body ends early.
    if response.status() == StatusCode::BAD_GATEWAY {
        return text_response(StatusCode::BAD_REQUEST, "the body is incomplete");
    }
    // Some file systems keep no time so far away.
    if wanted.is_some()
        && response.status().is_success()
        && let Ok(meta) = stored.stat(target.path.clone()).await
        && wanted == Some(meta.modified_s())
    {
        let accepted = HeaderValue::from_static("accepted");
        response.headers_mut().insert(MODIFIED, accepted);
    }
    response
}

/// Executes a request that neither moves nor removes names.
async fn dispatch(
    files: Files,
    target: Target,
    request: Request<Bytes>,
    holder: Holder,
) -> HttpResponse {
    match request.method().as_str() {
        "LOCK" => lock::lock(files, target, request, holder).await,
        "UNLOCK" => lock::unlock(files, target, request, holder).await,
        "PROPFIND" => properties::propfind(files, target, request).await,
        "PROPPATCH" => properties::proppatch(files, target, request).await,
        "OPTIONS" => options_response(handle(files, request.map(Full::new)).await),
        "GET" | "HEAD" => get::get(files, &target, request).await,
        _ => handle(files, request.map(Full::new)).await,
    }
}

/// Reads the whole body of a request, and checks it if it is XML.
pub(super) async fn collect_body(
    request: Request<RequestBody>,
) -> Result<Request<Bytes>, Rejection> {
    let (head, body) = request.into_parts();
    let read = timeout(
        BODY_TIMEOUT,
        Limited::new(body, xml::BODY_LEN_MAX).collect(),
    )
    .await;
    let body = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"));
        }
        Ok(Err(_)) => return Err((StatusCode::BAD_REQUEST, "the body is incomplete")),
        Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the body is too slow")),
    };
    if XML_METHODS.contains(&head.method.as_str()) && !body.is_empty() {
        check_xml(body.clone()).await?;
    }
    Ok(Request::from_parts(head, body))
}

/// Checks XML on a thread of its own: 64 KiB take some milliseconds.
async fn check_xml(body: Bytes) -> Result<(), Rejection> {
    let checked = tokio::task::spawn_blocking(move || xml::check(&body)).await;
    let checked = checked.unwrap_or(Err("the body can't be read"));
    checked.map_err(|why| (StatusCode::BAD_REQUEST, why))
}

/// Checks that a PUT is a whole file without a content coding. Partial files and codings are not stored (RFC 9110
/// §8.4, §9.3.4, §14.5; RFC 9112 §6.1).
fn check_put<B>(request: &Request<B>) -> Result<(), Rejection> {
    let headers = request.headers();
    let has_other_value = |name, supported: &str| {
        let mut values = headers.get_all(name).iter();
        values.any(|value| !value.as_bytes().eq_ignore_ascii_case(supported.as_bytes()))
    };
    if request.method() == Method::PATCH || headers.contains_key(header::CONTENT_RANGE) {
        let why = "partial uploads are not supported: longhaul copy resumes an interrupted copy";
        return Err((StatusCode::BAD_REQUEST, why));
    }
    if has_other_value(header::CONTENT_ENCODING, "identity") {
        let why = "Content-Encoding is not supported";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    if has_other_value(header::TRANSFER_ENCODING, "chunked") {
        let why = "the only supported transfer coding is chunked";
        return Err((StatusCode::NOT_IMPLEMENTED, why));
    }
    Ok(())
}

/// Checks that a request fits the kind of resource it names. A name that ends with a slash is a directory's, and
/// DELETE of a directory removes all its contents. RFC 4918 §9.6.1 forbids a Depth other than infinity. Apache also
/// refuses it with 400.
async fn check_resource_kind<B>(
    files: &Files,
    target: &Target,
    request: &Request<B>,
) -> Result<(), Rejection> {
    let (is_put, is_delete) = (
        request.method() == Method::PUT,
        request.method() == Method::DELETE,
    );
    let is_partial_delete = is_delete
        && request
            .headers()
            .get("depth")
            .is_some_and(|depth| depth != "infinity");
    let path = target
        .path
        .clone()
        .filter(|_| target.is_directory || is_partial_delete);
    let Some(path) = path else {
        return Ok(());
    };
    if is_put {
        let why = "a name with a trailing slash is a directory's";
        return Err((StatusCode::CONFLICT, why));
    }
    match files.stat(Some(path)).await {
        Ok(meta) if meta.is_dir() && is_partial_delete => Err((
            StatusCode::BAD_REQUEST,
            "DELETE of a directory removes all that is in it: send no Depth, or infinity",
        )),
        Ok(meta) if !meta.is_dir() && target.is_directory => Err((
            StatusCode::NOT_FOUND,
            "it is a file, and the name ends with a slash",
        )),
        _ => Ok(()),
    }
}
