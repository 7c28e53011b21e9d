// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a request may go on: its conditions hold, and it shows the tokens of the locks of what it changes (RFC 4918 §7).
//!
//! dav-server asks a lock system only about a path and what is below it. But a lock of a directory, whatever its depth,
//! is of the names in it, too (§7.4). So the site looks at locks itself, and dav-server is given a lock system that lets all.

use super::{
    export::{files::Files, meta::Meta},
    locks::{Holder, Table},
    request::{
        conditions::{Conditions, State, are_against},
        target::{self, Target, Wrong},
    },
};
use dav_server::fs::DavMetaData;
use hyper::{Method, Request, StatusCode};
use longhaul_store::path::RelPath;
use std::os::unix::ffi::OsStrExt;

/// Checks a request, and takes its conditions out of it.
///
/// # Errors
/// A condition does not hold (412), or something is locked by somebody else (423).
pub(super) async fn pass<B>(
    files: &Files,
    target: &Target,
    request: &mut Request<B>,
) -> Result<Holder, Wrong> {
    let conditions = Conditions::take(request.headers_mut())?;
    let holder = Holder {
        principal: files.access.token.clone(),
        tokens: conditions.tokens(),
    };
    let check = Check {
        method: request.method().clone(),
        files: files.clone(),
        target: target.clone(),
        holder: holder.clone(),
    };
    // The library does the same for the methods that it carries out.
    let headers = ["LOCK", "PROPPATCH"].contains(&check.method.as_str());
    let headers = headers.then(|| request.headers().clone());
    if conditions.are_none() && headers.is_none() && !check.changes() {
        return Ok(holder);
    }
    let checked = tokio::task::spawn_blocking(move || {
        if headers.is_some_and(|headers| are_against(&headers, check.tag(None).as_deref())) {
            return Err((StatusCode::PRECONDITION_FAILED, "a condition does not hold"));
        }
        check.run(&conditions)
    });
    checked.await.unwrap_or(Err(unavailable()))?;
    Ok(holder)
}

/// The site can't look at its locks.
pub(super) fn unavailable() -> Wrong {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the site can't look at its locks",
    )
}

/// A place of an export as locks have it.
pub(super) fn place(files: &Files, path: Option<&RelPath>) -> String {
    let top = target::escaped(files.access.directory.as_os_str().as_bytes());
    let top = top.trim_end_matches('/');
    match path {
        Some(path) => format!("{top}/{}", target::escaped(path.as_bytes())),
        None => top.to_owned(),
    }
}

/// The directory whose name a path is; none is the export itself, whose name is not the clients'.
pub(super) fn place_around(files: &Files, path: Option<&RelPath>) -> Option<String> {
    path.map(|path| place(files, path.parent().as_ref()))
}

/// What was removed, moved away or replaced has no locks any more. A destination keeps its own: that is of the name.
pub(super) async fn forget(files: Files, target: Target, method: Method, status: StatusCode) {
    if ![StatusCode::CREATED, StatusCode::NO_CONTENT].contains(&status) {
        return;
    }
    let forgotten = tokio::task::spawn_blocking(move || {
        let locks = &files.access.locks;
        if target.destination.is_none() || method.as_str() == "MOVE" {
            locks.forget(&place(&files, target.path.as_ref()), true)?;
        }
        match &target.destination {
            Some(destination) => locks.forget(&place(&files, Some(destination)), false),
            None => Ok(()),
        }
    });
    // They end by themselves.
    let _ = forgotten.await;
}

/// A request as far as locks are concerned.
struct Check {
    method: Method,
    files: Files,
    target: Target,
    holder: Holder,
}

impl Check {
    /// A LOCK is looked at when it is carried out.
    fn changes(&self) -> bool {
        ["COPY", "DELETE", "MKCOL", "MOVE", "PROPPATCH", "PUT"].contains(&self.method.as_str())
    }

    fn run(&self, conditions: &Conditions) -> Result<(), Wrong> {
        let table = self.files.access.locks.read().map_err(|_| unavailable())?;
        if !conditions.hold(|about, state| self.is(&table, about, state)) {
            return Err((
                StatusCode::PRECONDITION_FAILED,
                "a condition of If does not hold",
            ));
        }
        match !self.changes() || self.may_change(&table) {
            true => Ok(()),
            false => Err((
                StatusCode::LOCKED,
                "it is locked: want the token of the lock, in If",
            )),
        }
    }

    /// Whether a resource is in a state.
    fn is(&self, table: &Table, about: Option<&str>, state: &State) -> bool {
        let path = match about {
            None => self.target.path.clone(),
            Some(url) => match target::named(url, &self.files.access.export) {
                Some(path) => path,
                None => return false,
            },
        };
        match state {
            State::Locked(token) => {
                let place = place(&self.files, path.as_ref());
                table.covering(&place).any(|lock| lock.token == *token)
            }
            State::Tagged(tag) => self.tag(Some(path)).as_ref() == Some(tag),
        }
    }

    /// The entity tag of what is at a path; none is the request's.
    fn tag(&self, path: Option<Option<RelPath>>) -> Option<String> {
        let path = path.unwrap_or_else(|| self.target.path.clone());
        if path.as_ref().is_some_and(RelPath::is_own) {
            return None;
        }
        let meta = Meta::shown(&self.files.root, path.as_ref()).ok()?;
        Some(format!("\"{}\"", meta.etag()?))
    }

    fn may_change(&self, table: &Table) -> bool {
        let (path, destination) = (self.target.path.as_ref(), self.target.destination.as_ref());
        let lets =
            |place: Option<String>| place.is_none_or(|place| table.lets(&self.holder, &place));
        let tree = |path: Option<&RelPath>| {
            let place = place(&self.files, path);
            lets(place_around(&self.files, path))
                && table.lets_below(&self.holder, &place)
                && lets(Some(place))
        };
        match self.method.as_str() {
            "COPY" => tree(destination),
            "MOVE" => tree(path) && tree(destination),
            "DELETE" => tree(path),
            _ => {
                // A name is made, or not.
                let is_there = Meta::any(&self.files.root, path).is_ok();
                lets(Some(place(&self.files, path)))
                    && (is_there || lets(place_around(&self.files, path)))
            }
        }
    }
}
