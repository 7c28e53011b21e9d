// SPDX-License-Identifier: MIT OR Apache-2.0
//! LOCK and UNLOCK (RFC 4918 §9.10 and §9.11), and the lock elements in listings.
//!
//! dav-server's own LOCK leaves the file that it creates unfinished, grants locks without a timeout, and refreshes by
//! one token only. The site therefore implements the methods itself.

use super::{
    claims::ClaimedPath,
    export::files::Files,
    locks::{DEFAULT_TIMEOUT, Holder, Lock, LockError, TIMEOUT_MAX, UnlockOutcome},
    preconditions::{lock_path, parent_lock_path, unavailable},
    replacement::claim,
    request::{
        properties::LockInfo,
        target::{self, Rejection, Target},
    },
    response::{HttpResponse, empty_response, text_response, xml_response},
};
use bytes::Bytes;
use dav_server::fs::FsError;
use hyper::{
    HeaderMap, Request, StatusCode,
    header::{HeaderName, HeaderValue},
};
use longhaul_store::path::RelPath;
use std::{os::unix::ffi::OsStrExt, time::Duration};

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// Grants or refreshes a lock.
pub(super) async fn lock(
    files: Files,
    target: Target,
    request: Request<Bytes>,
    holder: Holder,
) -> HttpResponse {
    let (head, body) = request.into_parts();
    // A file that is being removed, moved or replaced gets no lock meanwhile.
    let lock_path = (!body.is_empty()).then(|| ClaimedPath {
        path: lock_path(&files, target.path.as_ref()),
        read: true,
    });
    let _claim = match claim(&files, lock_path.into_iter().collect()).await {
        Ok(claim) => claim,
        Err((status, why)) => return text_response(status, why),
    };
    let locked = move || {
        if body.is_empty() {
            refresh(&files, &target, &head.headers, &holder)
        } else {
            grant(&files, &target, (&head.headers, &body), &holder)
        }
    };
    run_blocking(locked).await
}

/// Removes a lock.
pub(super) async fn unlock(
    files: Files,
    target: Target,
    request: Request<Bytes>,
    holder: Holder,
) -> HttpResponse {
    run_blocking(move || {
        let token = request
            .headers()
            .get(LOCK_TOKEN)
            .and_then(|value| value.to_str().ok());
        let token = token.and_then(|text| text.trim().strip_prefix('<')?.strip_suffix('>'));
        let token = token.ok_or((StatusCode::BAD_REQUEST, "want a Lock-Token"))?;
        let holder = Holder {
            tokens: vec![token.to_owned()],
            ..holder
        };
        let lock_path = lock_path(&files, target.path.as_ref());
        let changed = files
            .access
            .locks
            .change(|table| table.remove(&holder, &lock_path));
        match changed.map_err(|_| unavailable())? {
            UnlockOutcome::Removed => Ok(empty_response(StatusCode::NO_CONTENT)),
            UnlockOutcome::NotFound => Err((StatusCode::CONFLICT, "it has no such lock")),
            UnlockOutcome::NotOwner => {
                Err((StatusCode::FORBIDDEN, "the lock belongs to another client"))
            }
        }
    })
    .await
}

async fn run_blocking(
    operation: impl FnOnce() -> Result<HttpResponse, Rejection> + Send + 'static,
) -> HttpResponse {
    match tokio::task::spawn_blocking(operation).await {
        Ok(Ok(response)) => response,
        Ok(Err((status, why))) => text_response(status, why),
        Err(_) => text_response(StatusCode::INTERNAL_SERVER_ERROR, "the site can't lock it"),
    }
}

fn refresh(
    files: &Files,
    target: &Target,
    headers: &HeaderMap,
    holder: &Holder,
) -> Result<HttpResponse, Rejection> {
    let lock_path = lock_path(files, target.path.as_ref());
    let timeout = requested_timeout(headers);
    let changed = files
        .access
        .locks
        .change(|table| table.refresh(holder, &lock_path, timeout));
    let lock = changed.map_err(|_| unavailable())?;
    let why = "want an If with the token of one of its locks";
    let lock = lock.ok_or((StatusCode::PRECONDITION_FAILED, why))?;
    Ok(lock_response(StatusCode::OK, files, &lock))
}

fn grant(
    files: &Files,
    target: &Target,
    (headers, body): (&HeaderMap, &[u8]),
    holder: &Holder,
) -> Result<HttpResponse, Rejection> {
    let path = target.path.as_ref();
    if !files.access.writable || path.is_some_and(RelPath::is_internal) {
        return Err((StatusCode::FORBIDDEN, "it is read-only"));
    }
    let info = LockInfo::read(body)?;
    let deep = has_infinite_depth(headers)?;
    let exists = files.exists(path);
    if !exists && target.is_directory {
        let why = "a name with a trailing slash is a directory's";
        return Err((StatusCode::CONFLICT, why));
    }
    let lock = Lock::new(
        lock_path(files, path),
        &holder.principal,
        (info.shared, deep),
        info.owner,
    );
    let lock = lock
        .map_err(|_| unavailable())?
        .expiring_in(requested_timeout(headers));
    let parent = parent_lock_path(files, path).filter(|_| !exists);
    let changed = files.access.locks.change(|table| {
        // The lock creates a file.
        if parent.is_none_or(|parent| table.permits(holder, &parent)) {
            table.add(lock.clone())
        } else {
            Err(LockError::Conflict)
        }
    });
    changed
        .map_err(|_| unavailable())?
        .map_err(|refused| match refused {
            LockError::Conflict => (StatusCode::LOCKED, "a conflicting lock exists"),
            LockError::Full => (
                StatusCode::INSUFFICIENT_STORAGE,
                "the limit on locks is reached",
            ),
        })?;
    if exists {
        return Ok(lock_response(StatusCode::OK, files, &lock));
    }
    match path.map_or(Ok(false), |path| files.make_empty(path)) {
        Ok(true) => Ok(lock_response(StatusCode::CREATED, files, &lock)),
        Ok(false) => Ok(lock_response(StatusCode::OK, files, &lock)),
        Err(error) => {
            let creator = Holder {
                principal: lock.principal.clone(),
                tokens: vec![lock.token.clone()],
            };
            let locks = &files.access.locks;
            // If this fails, the lock expires.
            let _ = locks.change(|table| table.remove(&creator, &lock.path));
            Err(creation_error(&error))
        }
    }
}

/// Returns the response when the file to be locked can't be created.
fn creation_error(error: &FsError) -> Rejection {
    match error {
        FsError::NotFound => (StatusCode::CONFLICT, "the parent directory does not exist"),
        FsError::Forbidden => (StatusCode::FORBIDDEN, "the site may not create it"),
        FsError::InsufficientStorage => (StatusCode::INSUFFICIENT_STORAGE, "no space is left"),
        _ => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site can't create it",
        ),
    }
}

/// Returns whether Depth is infinity. `Target` has checked the header.
fn has_infinite_depth(headers: &HeaderMap) -> Result<bool, Rejection> {
    match headers.get("depth").map(HeaderValue::as_bytes) {
        Some(b"0") => Ok(false),
        None | Some(b"infinity") => Ok(true),
        Some(_) => Err((StatusCode::BAD_REQUEST, "want a Depth of 0 or infinity")),
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
    // A token is ASCII without control characters.
    if let Ok(token) = HeaderValue::try_from(format!("<{}>", lock.token)) {
        response.headers_mut().insert(LOCK_TOKEN, token);
    }
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
    let top = target::escape_path(files.access.directory.as_os_str().as_bytes());
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
