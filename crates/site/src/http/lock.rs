// SPDX-License-Identifier: MIT OR Apache-2.0
//! LOCK and UNLOCK (RFC 4918 §9.10 and §9.11), and what a listing says of locks.
//!
//! dav-server's own LOCK makes a file that is never written to its end, gives a lock without a time-out to who asks for
//! none, and refreshes by no more than one token.

use super::{
    answer::{Answer, bare, said, xml},
    claims::Place,
    export::files::Files,
    locks::{Holder, Lock, Refused, TIME, TIME_MAX, Unlocked},
    protection::{place, place_around, unavailable},
    replacement::claim,
    request::{
        properties::LockInfo,
        target::{self, Rejection, Target},
    },
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

/// Gives a lock, or has one last longer.
pub(super) async fn lock(
    files: Files,
    target: Target,
    request: Request<Bytes>,
    holder: Holder,
) -> Answer {
    let (head, body) = request.into_parts();
    // What is being removed, moved or replaced gets no lock meanwhile.
    let place = (!body.is_empty()).then(|| Place {
        path: place(&files, target.path.as_ref()),
        read: true,
    });
    let _claim = match claim(&files, place.into_iter().collect()).await {
        Ok(claim) => claim,
        Err((status, why)) => return said(status, why),
    };
    let locked = move || match body.is_empty() {
        true => refresh(&files, &target, &head.headers, &holder),
        false => grant(&files, &target, (&head.headers, &body), &holder),
    };
    on_a_thread(locked).await
}

/// Gives a lock back.
pub(super) async fn unlock(
    files: Files,
    target: Target,
    request: Request<Bytes>,
    holder: Holder,
) -> Answer {
    on_a_thread(move || {
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
        let place = place(&files, target.path.as_ref());
        let changed = files
            .access
            .locks
            .change(|table| table.remove(&holder, &place));
        match changed.map_err(|_| unavailable())? {
            Unlocked::Done => Ok(bare(StatusCode::NO_CONTENT)),
            Unlocked::NoLock => Err((StatusCode::CONFLICT, "it has no such lock")),
            Unlocked::OfAnother => Err((StatusCode::FORBIDDEN, "the lock is another's")),
        }
    })
    .await
}

async fn on_a_thread(act: impl FnOnce() -> Result<Answer, Rejection> + Send + 'static) -> Answer {
    match tokio::task::spawn_blocking(act).await {
        Ok(Ok(answer)) => answer,
        Ok(Err((status, why))) => said(status, why),
        Err(_) => said(StatusCode::INTERNAL_SERVER_ERROR, "the site can't lock it"),
    }
}

fn refresh(
    files: &Files,
    target: &Target,
    headers: &HeaderMap,
    holder: &Holder,
) -> Result<Answer, Rejection> {
    let place = place(files, target.path.as_ref());
    let time = time(headers);
    let changed = files
        .access
        .locks
        .change(|table| table.refresh(holder, &place, time));
    let lock = changed.map_err(|_| unavailable())?;
    let why = "want an If with the token of a lock that it has";
    let lock = lock.ok_or((StatusCode::PRECONDITION_FAILED, why))?;
    Ok(granted(StatusCode::OK, files, &lock))
}

fn grant(
    files: &Files,
    target: &Target,
    (headers, body): (&HeaderMap, &[u8]),
    holder: &Holder,
) -> Result<Answer, Rejection> {
    let path = target.path.as_ref();
    if !files.access.writable || path.is_some_and(RelPath::is_internal) {
        return Err((StatusCode::FORBIDDEN, "this may not be written"));
    }
    let info = LockInfo::read(body)?;
    let deep = is_deep(headers)?;
    let is_there = files.is_there(path);
    if !is_there && target.is_directory {
        let why = "a name with a slash at its end is a directory's";
        return Err((StatusCode::CONFLICT, why));
    }
    let lock = Lock::new(
        place(files, path),
        &holder.principal,
        (info.shared, deep),
        info.owner,
    );
    let lock = lock.map_err(|_| unavailable())?.lasting(time(headers));
    let around = place_around(files, path).filter(|_| !is_there);
    let changed = files.access.locks.change(|table| {
        // A name is made.
        match around.is_none_or(|around| table.lets(holder, &around)) {
            true => table.add(lock.clone()),
            false => Err(Refused::Locked),
        }
    });
    changed
        .map_err(|_| unavailable())?
        .map_err(|refused| match refused {
            Refused::Locked => (StatusCode::LOCKED, "another lock is in the way"),
            Refused::Full => (
                StatusCode::INSUFFICIENT_STORAGE,
                "there are as many locks as there may be",
            ),
        })?;
    if is_there {
        return Ok(granted(StatusCode::OK, files, &lock));
    }
    match path.map_or(Ok(false), |path| files.make_empty(path)) {
        Ok(true) => Ok(granted(StatusCode::CREATED, files, &lock)),
        Ok(false) => Ok(granted(StatusCode::OK, files, &lock)),
        Err(error) => {
            let given_back = Holder {
                principal: lock.principal.clone(),
                tokens: vec![lock.token.clone()],
            };
            let locks = &files.access.locks;
            // If not, it ends by itself.
            let _ = locks.change(|table| table.remove(&given_back, &lock.place));
            Err(not_made(&error))
        }
    }
}

/// Why the file that is to be locked is not there.
fn not_made(error: &FsError) -> Rejection {
    match error {
        FsError::NotFound => (
            StatusCode::CONFLICT,
            "the directory that it is to be in is not there",
        ),
        FsError::Forbidden => (StatusCode::FORBIDDEN, "the site may not make it"),
        FsError::InsufficientStorage => (StatusCode::INSUFFICIENT_STORAGE, "no space is left"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the site can't make it"),
    }
}

/// Read before by `Target`.
fn is_deep(headers: &HeaderMap) -> Result<bool, Rejection> {
    match headers.get("depth").map(HeaderValue::as_bytes) {
        Some(b"0") => Ok(false),
        None | Some(b"infinity") => Ok(true),
        Some(_) => Err((StatusCode::BAD_REQUEST, "want a Depth of 0 or infinity")),
    }
}

/// What a client asks for (§10.7): the first that makes sense.
fn time(headers: &HeaderMap) -> Duration {
    let text = headers.get("timeout").and_then(|value| value.to_str().ok());
    let mut asked = text.unwrap_or_default().split(',').map(str::trim);
    let read = |one: &str| match one.strip_prefix("Second-") {
        // Digits alone, however many.
        Some(seconds)
            if !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Some(Duration::from_secs(seconds.parse().unwrap_or(u64::MAX)))
        }
        _ => one.eq_ignore_ascii_case("Infinite").then_some(TIME_MAX),
    };
    asked.find_map(read).unwrap_or(TIME)
}

fn granted(status: StatusCode, files: &Files, lock: &Lock) -> Answer {
    let active = active(files, lock);
    let element =
        format!("<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>{active}</D:lockdiscovery></D:prop>");
    let mut answer = xml(status, &element);
    // A token is ASCII without control characters.
    if let Ok(token) = HeaderValue::try_from(format!("<{}>", lock.token)) {
        answer.headers_mut().insert(LOCK_TOKEN, token);
    }
    answer
}

/// A lock as a property has it (§14.1).
pub(super) fn active(files: &Files, lock: &Lock) -> String {
    let scope = if lock.shared { "shared" } else { "exclusive" };
    let depth = if lock.deep { "infinity" } else { "0" };
    let seconds = lock.left().as_secs_f64().round();
    let (owner, token, root) = (&lock.owner, &lock.token, root(files, lock));
    format!(
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
         <D:depth>{depth}</D:depth>{owner}<D:timeout>Second-{seconds}</D:timeout>\
         <D:locktoken><D:href>{token}</D:href></D:locktoken><D:lockroot><D:href>{root}</D:href></D:lockroot></D:activelock>"
    )
}

/// Where it was taken, as a path of a URL; what is above the export is not the clients' to know.
fn root(files: &Files, lock: &Lock) -> String {
    let export = &files.access.export;
    let top = target::escaped(files.access.directory.as_os_str().as_bytes());
    match lock.place.strip_prefix(top.trim_end_matches('/')) {
        Some(below) if below.starts_with('/') => format!("/{export}{below}"),
        _ => format!("/{export}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_for_a_time() {
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
            assert_eq!(time(&headers), Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(time(&HeaderMap::new()), TIME);
    }
}
