// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preconditions of a request: its conditional headers, and the lock tokens for the paths that it changes (RFC 4918
//! §7). They are checked when the request arrives, and again when it changes something ([`Guard`]).
//!
//! dav-server asks a lock system only about a path and its descendants. But a lock of a directory also protects the
//! names in it, whatever its depth (§7.4). The site therefore checks locks itself, and gives dav-server a lock system
//! that permits everything.

use super::{
    export::{files::Files, guard::Guard, meta::Meta},
    locks::{Holder, LockTable},
    request::{
        conditions::{Conditions, ResourceState, Validators, fails_for_change},
        target::{self, Rejection, Target},
    },
};
use dav_server::fs::DavMetaData;
use hyper::{HeaderMap, Method, Request, StatusCode};
use longhaul_store::path::RelPath;
use std::{os::unix::ffi::OsStrExt, sync::Arc};

/// Preconditions of one request.
pub(super) struct Preconditions {
    check: LockCheck,
    conditions: Conditions,
    headers: HeaderMap,
}

impl Preconditions {
    /// Takes the preconditions out of a request.
    ///
    /// # Errors
    /// A header can't be parsed.
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
        let check = LockCheck {
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

    /// Checks the preconditions.
    ///
    /// # Errors
    /// A condition does not hold (412), or a path is locked by another client (423).
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), Rejection> {
        if self.conditions.is_empty() && !self.is_change() {
            return Ok(());
        }
        let this = self.clone();
        let checked = tokio::task::spawn_blocking(move || this.evaluate());
        checked.await.unwrap_or(Err(unavailable()))
    }

    /// Returns a guard that repeats the check when the change is made, which may be much later.
    pub(super) fn guard(self: &Arc<Self>) -> Guard {
        let this = self.clone();
        Guard::new(this.check.files.access.locks.clone(), move || {
            this.evaluate()
        })
    }

    /// Returns whether the request can change something. For other methods `get` handles the conditional headers.
    fn is_change(&self) -> bool {
        self.check.changes() || self.check.method.as_str() == "LOCK"
    }

    fn evaluate(&self) -> Result<(), Rejection> {
        let validators = || Validators::of(&self.check.meta(None)?);
        if self.is_change() && fails_for_change(&self.headers, validators().as_ref()) {
            return Err((StatusCode::PRECONDITION_FAILED, "a condition does not hold"));
        }
        self.check.run(&self.conditions)
    }
}

/// Returns the response when the lock file can't be read.
pub(super) fn unavailable() -> Rejection {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the site can't read its locks",
    )
}

/// Returns a path of an export in the form that locks use.
pub(super) fn lock_path(files: &Files, path: Option<&RelPath>) -> String {
    let top = target::escape_path(files.access.directory.as_os_str().as_bytes());
    let top = top.trim_end_matches('/');
    match path {
        Some(path) => format!("{top}/{}", target::escape_path(path.as_bytes())),
        None => top.to_owned(),
    }
}

/// Returns the lock path of the parent directory. `None` for the export itself, whose name clients can't change.
pub(super) fn parent_lock_path(files: &Files, path: Option<&RelPath>) -> Option<String> {
    path.map(|path| lock_path(files, path.parent().as_ref()))
}

/// Discards the locks of paths that were removed, moved away or replaced. A destination keeps its own lock, which
/// belongs to the name.
pub(super) async fn discard_locks(files: Files, target: Target, moved: bool, status: StatusCode) {
    if ![StatusCode::CREATED, StatusCode::NO_CONTENT].contains(&status) {
        return;
    }
    let discarded = tokio::task::spawn_blocking(move || {
        let locks = &files.access.locks;
        if target.destination.is_none() || moved {
            locks.discard(&lock_path(&files, target.path.as_ref()), true)?;
        }
        match &target.destination {
            Some(destination) => locks.discard(&lock_path(&files, Some(destination)), false),
            None => Ok(()),
        }
    });
    // If this fails, the locks expire.
    let _ = discarded.await;
}

/// Data of a request for the check of locks.
struct LockCheck {
    method: Method,
    files: Files,
    target: Target,
    holder: Holder,
}

impl LockCheck {
    /// Returns whether the method changes something. LOCK makes its own check.
    fn changes(&self) -> bool {
        ["COPY", "DELETE", "MKCOL", "MOVE", "PROPPATCH", "PUT"].contains(&self.method.as_str())
    }

    fn run(&self, conditions: &Conditions) -> Result<(), Rejection> {
        let table = self.files.access.locks.read().map_err(|_| unavailable())?;
        if !conditions.evaluate(|resource, state| self.matches_state(&table, resource, state)) {
            return Err((
                StatusCode::PRECONDITION_FAILED,
                "a condition of If does not hold",
            ));
        }
        if !self.changes() || self.is_permitted(&table) {
            Ok(())
        } else {
            Err((
                StatusCode::LOCKED,
                "it is locked: want the token of the lock, in If",
            ))
        }
    }

    /// Returns whether a resource is in a state.
    fn matches_state(
        &self,
        table: &LockTable,
        resource: Option<&str>,
        state: &ResourceState,
    ) -> bool {
        let path = match resource {
            None => self.target.path.clone(),
            Some(url) => match target::resolve_url(url, &self.files.access.export) {
                Some(path) => path,
                None => return false,
            },
        };
        match state {
            ResourceState::Locked(token) => {
                let lock_path = lock_path(&self.files, path.as_ref());
                table.covering(&lock_path).any(|lock| lock.token == *token)
            }
            ResourceState::Tagged(tag) => self.tag(Some(path)).as_ref() == Some(tag),
        }
    }

    /// Returns the metadata of a path; `None` is the request's own.
    fn meta(&self, path: Option<Option<RelPath>>) -> Option<Meta> {
        let path = path.unwrap_or_else(|| self.target.path.clone());
        if path.as_ref().is_some_and(RelPath::is_internal) {
            None
        } else {
            Meta::visible(&self.files.root, path.as_ref()).ok()
        }
    }

    /// Returns the entity tag of a path.
    fn tag(&self, path: Option<Option<RelPath>>) -> Option<String> {
        Some(format!("\"{}\"", self.meta(path)?.etag()?))
    }

    fn is_permitted(&self, table: &LockTable) -> bool {
        let (path, destination) = (self.target.path.as_ref(), self.target.destination.as_ref());
        let permits = |lock_path: Option<String>| {
            lock_path.is_none_or(|lock_path| table.permits(&self.holder, &lock_path))
        };
        let tree = |path: Option<&RelPath>| {
            let lock_path = lock_path(&self.files, path);
            permits(parent_lock_path(&self.files, path))
                && table.permits_below(&self.holder, &lock_path)
                && permits(Some(lock_path))
        };
        match self.method.as_str() {
            "COPY" => tree(destination),
            "MOVE" => tree(path) && tree(destination),
            "DELETE" => tree(path),
            _ => {
                // A missing file also changes its directory.
                let exists = Meta::stat(&self.files.root, path).is_ok();
                permits(Some(lock_path(&self.files, path)))
                    && (exists || permits(parent_lock_path(&self.files, path)))
            }
        }
    }
}
