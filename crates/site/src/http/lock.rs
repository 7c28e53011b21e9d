// SPDX-License-Identifier: MIT OR Apache-2.0
//! LOCK and UNLOCK (RFC 4918 §9.10 and §9.11), and the lock elements in listings.

use super::{
    dav_request::{DavRequest, NO_LOCKS, SLASH},
    export::{files::Files, upload::Upload},
    locks::{
        CONFLICTING_LOCK, DEFAULT_TIMEOUT, Lock, LockTable, TIMEOUT_MAX, end_after, new_token,
    },
    request::{
        properties::LockInfo,
        ranges::number,
        target::{Depth, single_value},
    },
    response::{HttpResponse, Outcome, Rejection, empty_response, insert, xml_response},
};
use hyper::{HeaderMap, header::HeaderName};
use longhaul_store::path::RelPath;
use std::time::Duration;

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// Grants a lock or, without a body, refreshes one.
pub(super) fn lock(request: &DavRequest, body: &[u8]) -> Outcome {
    if body.is_empty() {
        request.check()?;
        return refresh(request);
    }
    // A file that is being removed, moved or replaced gets no lock meanwhile.
    let _claim = request.claim(&[(request.path(), true)])?;
    request.check()?;
    grant(request, body)
}

/// Removes a lock.
pub(super) fn unlock(request: &DavRequest) -> Outcome {
    request.check()?;
    let token = single_value(request.headers(), &LOCK_TOKEN)?;
    let token = token.and_then(|text| text.trim().strip_prefix('<')?.strip_suffix('>'));
    let token = token.ok_or(Rejection(400, "want a Lock-Token"))?;
    let (files, principal) = (&request.files, &request.holder.principal);
    let lock_path = files.lock_path(request.path());
    change(files, |table| table.remove(principal, token, &lock_path))??;
    Ok(empty_response(204))
}

fn change<T>(files: &Files, operation: impl FnOnce(&mut LockTable) -> T) -> Outcome<T> {
    files.locks.change(operation).map_err(|_| NO_LOCKS)
}

fn refresh(request: &DavRequest) -> Outcome {
    const NO_LOCK: Rejection = Rejection(412, "want an If with the token of one of its locks");
    let (files, timeout) = (&request.files, requested_timeout(request.headers()));
    let lock_path = files.lock_path(request.path());
    let lock = change(files, |table| {
        table.refresh(&request.holder, &lock_path, timeout)
    })?;
    Ok(lock_response(200, files, &lock.ok_or(NO_LOCK)?))
}

fn grant(request: &DavRequest, body: &[u8]) -> Outcome {
    let (files, path) = (&request.files, request.path());
    let info = LockInfo::read(body)?;
    if request.target.depth == Some(Depth::One) {
        return Err(Rejection(400, "want a Depth of 0 or infinity"));
    }
    let exists = files.exists(path);
    if !exists && request.target.is_directory {
        return Err(SLASH);
    }
    let lock = Lock {
        token: new_token().map_err(|_| NO_LOCKS)?,
        path: files.lock_path(path),
        principal: request.holder.principal.clone(),
        owner: info.owner,
        shared: info.shared,
        deep: request.is_deep(),
        until: end_after(requested_timeout(request.headers())),
    };
    // The lock creates a file, whose name is protected by a lock of its directory.
    let parent = path.filter(|_| !exists).map(RelPath::parent);
    let parent = parent.map(|parent| files.lock_path(parent.as_ref()));
    change(files, |table| match parent {
        Some(parent) if !table.permits(&request.holder, &parent) => Err(CONFLICTING_LOCK),
        _ => table.add(lock.clone()),
    })??;
    let created = if exists { Ok(false) } else { create(request) };
    if created.is_err() {
        // If this fails, the lock expires.
        let _ = change(files, |table| table.remove_token(&lock.token));
    }
    let status = if created? { 201 } else { 200 };
    Ok(lock_response(status, files, &lock))
}

/// Creates the empty file that is locked. Returns whether it did not exist before.
fn create(request: &DavRequest) -> Outcome<bool> {
    let (files, Some(path)) = (&request.files, request.path()) else {
        return Ok(false);
    };
    let upload = Upload::begin(&files.root, path, true, &files.changes);
    match upload.and_then(|upload| upload.commit(Upload::rename_into_place)) {
        // Another request has created it meanwhile.
        Err(_) if files.exists(Some(path)) => Ok(false),
        created => created.map(|_| true).map_err(Rejection::of_new_name),
    }
}

/// Returns the first valid timeout that the client requests (§10.7).
fn requested_timeout(headers: &HeaderMap) -> Duration {
    let text = headers.get("timeout").and_then(|value| value.to_str().ok());
    let mut requested = text.unwrap_or_default().split(',').map(str::trim);
    let read = |text: &str| match text.strip_prefix("Second-") {
        Some(seconds) => number(seconds).map(Duration::from_secs),
        None => text.eq_ignore_ascii_case("Infinite").then_some(TIMEOUT_MAX),
    };
    requested.find_map(read).unwrap_or(DEFAULT_TIMEOUT)
}

fn lock_response(status: u16, files: &Files, lock: &Lock) -> HttpResponse {
    let active = activelock_element(files, lock);
    let element =
        format!("<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>{active}</D:lockdiscovery></D:prop>");
    let mut response = xml_response(status, &element);
    insert(&mut response, LOCK_TOKEN, format!("<{}>", lock.token));
    response
}

/// Returns the `activelock` element of a lock (§14.1).
pub(super) fn activelock_element(files: &Files, lock: &Lock) -> String {
    let scope = if lock.shared { "shared" } else { "exclusive" };
    let depth = if lock.deep { "infinity" } else { "0" };
    let seconds = lock.remaining().as_secs_f64().round();
    let (owner, token, root) = (&lock.owner, &lock.token, lock_root(files, lock));
    format!(
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
         <D:depth>{depth}</D:depth>{owner}<D:timeout>Second-{seconds}</D:timeout>\
         <D:locktoken><D:href>{token}</D:href></D:locktoken><D:lockroot><D:href>{root}</D:href></D:lockroot></D:activelock>"
    )
}

/// Returns the URL path of a lock's root. The parents of the export are not disclosed.
fn lock_root(files: &Files, lock: &Lock) -> String {
    let export = &files.access.export;
    match lock.path.strip_prefix(&files.lock_path(None)) {
        Some(below) if below.starts_with('/') => format!("/{export}{below}"),
        _ => format!("/{export}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lock_timeouts() {
        for (text, seconds) in [
            ("Second-5", 5),
            ("Infinite, Second-5", 3600),
            ("Extend, Second-7", 7),
            ("Second-99999999999999999999", u64::MAX),
            ("Second-", 600),
            ("Second--1", 600),
            ("x", 600),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("timeout", text.parse().unwrap());
            let requested = requested_timeout(&headers);
            assert_eq!(requested, Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(requested_timeout(&HeaderMap::new()), DEFAULT_TIMEOUT);
    }
}
