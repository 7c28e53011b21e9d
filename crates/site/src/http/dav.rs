// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of an authorized request: by its method, after its checks.

use super::{
    access::Access,
    audit::AuditEntry,
    dav_request::DavRequest,
    get, lock, properties,
    put::{check_head, put},
    replacement,
    request::xml::BODY_LEN_MAX,
    response::{
        HttpResponse, Outcome, Rejection, bad_request, blocking, empty_response, options_response,
        too_large,
    },
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{Request, StatusCode, body::Incoming};
use rustix::io::Errno;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time to receive the body of a request other than PUT.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Methods of an export's files and directories.
pub(super) const METHODS: [&str; 12] = [
    "OPTIONS",
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
];

/// Executes a request and writes its audit record.
pub(super) async fn respond(
    access: Access,
    request: Request<&mut Incoming>,
    mut entry: AuditEntry,
) -> HttpResponse {
    let (head, body) = request.into_parts();
    if ["PATCH", "PUT"].contains(&head.method.as_str())
        && let Err(rejection) = check_head(&head)
    {
        return entry.finish(Err(rejection));
    }
    let request = match DavRequest::open(access, head, &mut entry).await {
        Ok(request) => request,
        Err(rejection) => return entry.finish(Err(rejection)),
    };
    if request.method() == "PUT" {
        return entry.finish(put(request, body).await);
    }
    let body = match collect_body(body).await {
        Ok(body) => body,
        Err(rejection) => return entry.finish(Err(rejection)),
    };
    match request.method() {
        "GET" | "HEAD" => entry.finish(get::get(request).await),
        "PROPFIND" => entry.finish(properties::propfind(request, body).await),
        _ => {
            let executed = blocking(move || Ok(entry.finish(execute(&request, &body))));
            executed.await.unwrap_or_else(Into::into)
        }
    }
}

/// Executes a request other than PUT that may change something.
fn execute(request: &DavRequest, body: &[u8]) -> Outcome {
    if !METHODS.contains(&request.method()) {
        return Err(Rejection(StatusCode::METHOD_NOT_ALLOWED, "no such method"));
    }
    request.check_kind()?;
    let has_body = ["LOCK", "PROPPATCH"].contains(&request.method());
    if !has_body && !body.is_empty() {
        return Err(Rejection(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "want no body",
        ));
    }
    match request.method() {
        "OPTIONS" => Ok(options_response(&METHODS)),
        "MKCOL" => make_directory(request),
        "DELETE" => replacement::delete(request),
        "COPY" | "MOVE" => replacement::copy_or_move(request),
        "PROPPATCH" => properties::proppatch(request, body),
        "LOCK" => lock::lock(request, body),
        _ => lock::unlock(request),
    }
}

fn make_directory(request: &DavRequest) -> Outcome {
    const EXISTS: Rejection = Rejection(StatusCode::METHOD_NOT_ALLOWED, "the name exists already");
    let path = request.path().ok_or(EXISTS)?;
    request.check()?;
    let made = request.step(|| Ok(request.files.root.make_dir_with_umask(path)?));
    made.map_err(|rejection| {
        if rejection == Errno::EXIST.into() {
            EXISTS
        } else {
            rejection.of_new_name()
        }
    })?;
    request.files.changes.count_entry();
    Ok(empty_response(StatusCode::CREATED))
}

/// Reads the whole body of a request.
pub(super) async fn collect_body(body: &mut Incoming) -> Outcome<Bytes> {
    match timeout(BODY_TIMEOUT, Limited::new(body, BODY_LEN_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large("the body is too long")),
        Ok(Err(_)) => Err(bad_request("the body is incomplete")),
        Err(_) => Err(Rejection(
            StatusCode::REQUEST_TIMEOUT,
            "the body is too slow",
        )),
    }
}
