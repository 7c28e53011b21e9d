// SPDX-License-Identifier: MIT OR Apache-2.0
//! LOCK and UNLOCK (RFC 4918 §9.10 and §9.11), and the lock elements in listings.

use super::{
    dav_request::{DavRequest, NO_LOCKS},
    export::{files::Files, upload::Upload},
    locks::{DEFAULT_TIMEOUT, Holder, Lock, TIMEOUT_MAX},
    request::{
        properties::LockInfo,
        target::{Depth, escape_path},
    },
    response::{
        HttpResponse, Outcome, Rejection, bad_request, conflict, empty_response, failed_condition,
        insert, locked, xml_response,
    },
};
use hyper::{HeaderMap, StatusCode, header::HeaderName};
use std::{os::unix::ffi::OsStrExt, time::Duration};

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
    let token = request
        .headers()
        .get(LOCK_TOKEN)
        .and_then(|value| value.to_str().ok());
    let token = token.and_then(|text| text.trim().strip_prefix('<')?.strip_suffix('>'));
    let holder = Holder {
        principal: request.holder.principal.clone(),
        tokens: vec![token.ok_or(bad_request("want a Lock-Token"))?.to_owned()],
    };
    let lock_path = request.files.lock_path(request.path());
    let removed = request
        .files
        .locks()
        .change(|table| table.remove(&holder, &lock_path));
    removed.map_err(|_| NO_LOCKS)??;
    Ok(empty_response(StatusCode::NO_CONTENT))
}

fn refresh(request: &DavRequest) -> Outcome {
    let lock_path = request.files.lock_path(request.path());
    let timeout = requested_timeout(request.headers());
    let locks = request.files.locks();
    let lock = locks.change(|table| table.refresh(&request.holder, &lock_path, timeout));
    let why = "want an If with the token of one of its locks";
    let lock = lock.map_err(|_| NO_LOCKS)?.ok_or(failed_condition(why))?;
    Ok(lock_response(StatusCode::OK, &request.files, &lock))
}

fn grant(request: &DavRequest, body: &[u8]) -> Outcome {
    let (files, path) = (&request.files, request.path());
    let info = LockInfo::read(body)?;
    if request.target.depth == Some(Depth::One) {
        return Err(bad_request("want a Depth of 0 or infinity"));
    }
    let exists = files.exists(path);
    if !exists && request.target.is_directory {
        return Err(conflict("a name with a trailing slash is a directory's"));
    }
    let (principal, scope) = (&request.holder.principal, (info.shared, request.is_deep()));
    let lock = Lock::new(files.lock_path(path), principal, scope, info.owner);
    let lock = lock
        .map_err(|_| NO_LOCKS)?
        .expiring_in(requested_timeout(request.headers()));
    // The lock creates a file.
    let parent = files.parent_lock_path(path).filter(|_| !exists);
    let granted = files.locks().change(|table| {
        if parent.is_none_or(|parent| table.permits(&request.holder, &parent)) {
            table.add(lock.clone())
        } else {
            Err(locked("a conflicting lock exists"))
        }
    });
    granted.map_err(|_| NO_LOCKS)??;
    let created = if exists { Ok(false) } else { create(request) };
    if created.is_err() {
        // If this fails, the lock expires.
        let _ = files
            .locks()
            .change(|table| table.remove(&lock.holder(), &lock.path));
    }
    let status = if created? {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
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
        // Digits only, however many.
        Some(seconds)
            if !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Some(Duration::from_secs(seconds.parse().unwrap_or(u64::MAX)))
        }
        _ => text.eq_ignore_ascii_case("Infinite").then_some(TIMEOUT_MAX),
    };
    requested.find_map(read).unwrap_or(DEFAULT_TIMEOUT)
}

fn lock_response(status: StatusCode, files: &Files, lock: &Lock) -> HttpResponse {
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
    let top = escape_path(files.access.directory.as_os_str().as_bytes());
    match lock.path.strip_prefix(top.trim_end_matches('/')) {
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
            assert_eq!(
                requested_timeout(&headers),
                Duration::from_secs(seconds),
                "{text}"
            );
        }
        assert_eq!(requested_timeout(&HeaderMap::new()), DEFAULT_TIMEOUT);
    }
}
