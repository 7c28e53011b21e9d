// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of an authorized request: by its method, after its checks.

use super::{
    access::Access,
    audit::AuditEntry,
    dav_request::DavRequest,
    get, lock, properties,
    put::{check_head, put},
    replacement,
    request::collect_body,
    response::{HttpResponse, Outcome, Rejection, blocking, empty_response, options_response},
};
use hyper::{Request, body::Incoming, http::request::Parts};
use rustix::io::Errno;

/// Methods of an export's files and directories.
#[rustfmt::skip]
pub(super) const METHODS: [&str; 12] = [
    "OPTIONS", "GET", "HEAD", "PUT", "DELETE", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK",
];

/// Executes a request and writes its audit record.
pub(super) async fn respond(
    access: Access,
    request: Request<&mut Incoming>,
    mut entry: AuditEntry,
) -> HttpResponse {
    let (head, body) = request.into_parts();
    let outcome = match open(access, head, &mut entry).await {
        Err(rejection) => Err(rejection),
        Ok(request) => match request.method() {
            "PUT" => put(request, body).await,
            "GET" | "HEAD" => get::get(request).await,
            "PROPFIND" => properties::propfind(request, body).await,
            _ => return change(request, body, entry).await,
        },
    };
    entry.finish(outcome)
}

async fn open(access: Access, head: Parts, entry: &mut AuditEntry) -> Outcome<DavRequest> {
    if ["PATCH", "PUT"].contains(&head.method.as_str()) {
        check_head(&head)?;
    }
    DavRequest::open(access, head, entry).await
}

/// Executes a request on a thread, which finishes it even if the client leaves.
async fn change(request: DavRequest, body: &mut Incoming, entry: AuditEntry) -> HttpResponse {
    let body = match collect_body(body).await {
        Ok(body) => body,
        Err(rejection) => return entry.finish(Err(rejection)),
    };
    let executed = blocking(move || Ok(entry.finish(execute(&request, &body))));
    executed.await.unwrap_or_else(Into::into)
}

/// Executes a request other than PUT that may change something.
fn execute(request: &DavRequest, body: &[u8]) -> Outcome {
    let method = request.method();
    if !METHODS.contains(&method) {
        return Err(Rejection(405, "no such method"));
    }
    request.check_kind()?;
    if !["LOCK", "PROPPATCH"].contains(&method) && !body.is_empty() {
        return Err(Rejection(415, "want no body"));
    }
    match method {
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
    const EXISTS: Rejection = Rejection(405, "the name exists already");
    let path = request.path().ok_or(EXISTS)?;
    request.check()?;
    let made = request.step(|| Ok(request.files.root.make_dir_with_umask(path)?));
    made.map_err(|rejection| match rejection {
        rejection if rejection == Errno::EXIST.into() => EXISTS,
        rejection => rejection.of_new_name(),
    })?;
    request.files.changes.count_entry();
    Ok(empty_response(201))
}
