// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a request may go on: its conditions hold, and it shows the tokens of the locks of what it changes (RFC 4918 §7).
//! Looked at when it comes, and again when it changes something ([`Guard`]).
//!
//! dav-server asks a lock system only about a path and what is below it. But a lock of a directory, whatever its depth,
//! is of the names in it, too (§7.4). So the site looks at locks itself, and dav-server is given a lock system that lets all.

use super::{
    export::{files::Files, guard::Guard, meta::Meta},
    locks::{Holder, Table},
    request::{
        conditions::{Conditions, State, Validators, are_against},
        target::{self, Rejection, Target},
    },
};
use dav_server::fs::DavMetaData;
use hyper::{HeaderMap, Method, Request, StatusCode};
use longhaul_store::path::RelPath;
use std::{os::unix::ffi::OsStrExt, sync::Arc};

/// What has to hold for a request to be carried out.
pub(super) struct Preconditions {
    check: Check,
    conditions: Conditions,
    headers: HeaderMap,
}

impl Preconditions {
    /// Takes them out of a request.
    ///
    /// # Errors
    /// They can't be read.
    pub(super) fn take<B>(
        files: &Files,
        target: &Target,
        request: &mut Request<B>,
    ) -> Result<Arc<Self>, Rejection> {
        let conditions = Conditions::take(request.headers_mut())?;
        let holder = Holder {
            principal: files.access.token.clone(),
            tokens: conditions.tokens(),
        };
        let check = Check {
            method: request.method().clone(),
            files: files.clone(),
            target: target.clone(),
            holder,
        };
        Ok(Arc::new(Self {
            check,
            conditions,
            headers: request.headers().clone(),
        }))
    }

    pub(super) fn holder(&self) -> Holder {
        self.check.holder.clone()
    }

    /// Checks them.
    ///
    /// # Errors
    /// A condition does not hold (412), or something is locked by somebody else (423).
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), Rejection> {
        if self.conditions.are_none() && !self.are_of_a_change() {
            return Ok(());
        }
        let this = self.clone();
        let checked = tokio::task::spawn_blocking(move || this.hold());
        checked.await.unwrap_or(Err(unavailable()))
    }

    /// The same when the change is made, which may be much later.
    pub(super) fn guard(self: &Arc<Self>) -> Guard {
        let this = self.clone();
        Guard::new(this.check.files.access.locks.clone(), move || this.hold())
    }

    /// The library looks at the headers of requests that show something.
    fn are_of_a_change(&self) -> bool {
        self.check.changes() || self.check.method.as_str() == "LOCK"
    }

    fn hold(&self) -> Result<(), Rejection> {
        let validators = || Validators::of(&self.check.meta(None)?);
        if self.are_of_a_change() && are_against(&self.headers, validators().as_ref()) {
            return Err((StatusCode::PRECONDITION_FAILED, "a condition does not hold"));
        }
        self.check.run(&self.conditions)
    }
}

/// The site can't look at its locks.
pub(super) fn unavailable() -> Rejection {
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
pub(super) async fn forget(files: Files, target: Target, moved: bool, status: StatusCode) {
    if ![StatusCode::CREATED, StatusCode::NO_CONTENT].contains(&status) {
        return;
    }
    let forgotten = tokio::task::spawn_blocking(move || {
        let locks = &files.access.locks;
        if target.destination.is_none() || moved {
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

    fn run(&self, conditions: &Conditions) -> Result<(), Rejection> {
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

    /// What is known of what is at a path; none is the request's.
    fn meta(&self, path: Option<Option<RelPath>>) -> Option<Meta> {
        let path = path.unwrap_or_else(|| self.target.path.clone());
        match path.as_ref().is_some_and(RelPath::is_internal) {
            true => None,
            false => Meta::shown(&self.files.root, path.as_ref()).ok(),
        }
    }

    /// Its entity tag.
    fn tag(&self, path: Option<Option<RelPath>>) -> Option<String> {
        Some(format!("\"{}\"", self.meta(path)?.etag()?))
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
