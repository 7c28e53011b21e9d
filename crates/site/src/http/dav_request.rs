// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request to a resource of an export, and what must hold for it: its conditional headers, and the lock tokens for the
//! paths that it changes (RFC 4918 §7). This is checked before the request changes something, and again in the step in
//! which it does, which may be much later.

use super::{
    access::Access,
    audit::AuditEntry,
    claims::{Claim, ClaimedPath, Claims},
    export::{files::Files, meta::Meta},
    locks::{Holder, LockTable},
    request::{
        conditions::{self, Conditions, ResourceState},
        target::{Depth, Target, resolve_url, url_path},
    },
    response::{
        Outcome, Rejection, bad_request, conflict, failed_condition, forbidden, locked, not_found,
        unavailable,
    },
};
use hyper::{HeaderMap, http::request::Parts};
use longhaul_store::path::RelPath;
use std::time::Duration;

/// Longest time to open an export.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Response when the lock file can't be read.
pub(super) const NO_LOCKS: Rejection = unavailable("the site can't read its locks");

/// Request, read but not checked.
#[derive(Debug)]
pub(super) struct DavRequest {
    pub(super) head: Parts,
    pub(super) files: Files,
    pub(super) target: Target,
    pub(super) holder: Holder,
    conditions: Conditions,
}

impl DavRequest {
    /// Reads the head of a request, and opens the export.
    pub(super) async fn open(access: Access, head: Parts, entry: &mut AuditEntry) -> Outcome<Self> {
        let target = Target::of(&head, &access.export)?;
        if let Some(destination) = &target.destination {
            entry.set_destination(url_path(&access.export, Some(destination)));
        }
        let conditions = Conditions::of(&head.headers)?;
        let holder = Holder {
            principal: access.token.clone(),
            tokens: conditions.tokens(),
        };
        let files = Files::open(access, entry.changes.clone(), OPEN_TIMEOUT, |files| files).await;
        let files = files.ok_or(unavailable("the site cannot open the export"))?;
        Ok(Self {
            head,
            files,
            target,
            holder,
            conditions,
        })
    }

    pub(super) fn method(&self) -> &str {
        self.head.method.as_str()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// Returns the path of the resource. `None` is the export itself.
    pub(super) fn path(&self) -> Option<&RelPath> {
        self.target.path.as_ref()
    }

    /// Returns the URL path of the resource. Only that of the export itself ends with a slash.
    pub(super) fn url(&self) -> String {
        url_path(&self.files.access.export, self.path())
    }

    /// Returns the metadata of the resource.
    pub(super) fn meta(&self) -> Outcome<Meta> {
        self.files.visible(self.path())
    }

    pub(super) fn is_deep(&self) -> bool {
        self.target
            .depth
            .is_none_or(|depth| depth == Depth::Infinity)
    }

    /// Returns whether the method changes something. LOCK makes its own check of locks.
    fn changes(&self) -> bool {
        ["COPY", "DELETE", "MKCOL", "MOVE", "PROPPATCH", "PUT"].contains(&self.method())
    }

    /// Checks that the request fits the rights of the client and the kind of resource that it names. A name that ends
    /// with a slash is a directory's.
    pub(super) fn check_kind(&self) -> Outcome<()> {
        let locks = self.method() == "LOCK";
        if (locks || self.changes()) && !self.files.access.writable {
            return Err(forbidden("it is read-only"));
        }
        let creates = locks || ["MKCOL", "PUT"].contains(&self.method());
        if creates && self.path().is_some_and(RelPath::is_internal) {
            return Err(forbidden(
                "names that begin with .longhaul- are the site's own",
            ));
        }
        if self.method() == "PUT" && self.target.is_directory {
            return Err(conflict("a name with a trailing slash is a directory's"));
        }
        let is_deep = self.is_deep();
        match self.meta() {
            // RFC 4918 §9.6.1. Apache also refuses it with 400.
            Ok(meta) if meta.is_dir() && self.method() == "DELETE" && !is_deep => {
                let why =
                    "DELETE of a directory removes all that is in it: send no Depth, or infinity";
                Err(bad_request(why))
            }
            // An existing file is no failure of the name to a MKCOL, whose name may end with a slash.
            Ok(meta) if !meta.is_dir() && self.target.is_directory && self.method() != "MKCOL" => {
                Err(not_found("it is a file, and the name ends with a slash"))
            }
            _ => Ok(()),
        }
    }

    /// Waits until no other request claims these paths. With `read`, other requests may read a path meanwhile.
    pub(super) fn claim(&self, paths: &[(Option<&RelPath>, bool)]) -> Outcome<Claim> {
        let paths = paths.iter().map(|&(path, read)| {
            let path = self.files.lock_path(path);
            ClaimedPath { path, read }
        });
        let paths: Vec<_> = paths.collect();
        let claims = Claims::for_process(self.files.locks().state());
        let claimed = claims.and_then(|claims| claims.claim(&paths));
        claimed
            .map_err(|_| unavailable("the site can't read the claims of other requests"))?
            .ok_or(locked("another request is changing it"))
    }

    /// Runs a step that changes something, if the conditions hold still. No other process of the site changes files
    /// or locks meanwhile.
    pub(super) fn step<T>(&self, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let locks = self.files.locks();
        let done = locks.exclusively(|| self.check().and_then(|()| operation()));
        done.map_err(|_| NO_LOCKS)?
    }

    /// Checks the conditions. Those of a GET or a HEAD that RFC 9110 defines are its own.
    ///
    /// # Errors
    /// A condition does not hold (412), or a path is locked by another client (423).
    pub(super) fn check(&self) -> Outcome<()> {
        if self.changes() || self.method() == "LOCK" {
            let validators = self.meta().ok().map(|meta| meta.validators());
            let failed = conditions::failed_status(self.headers(), false, validators.as_ref());
            if let Some(status) = failed {
                return Err(Rejection(status, "a condition does not hold"));
            }
        }
        if self.conditions.is_empty() && !self.changes() {
            return Ok(());
        }
        let table = self.files.locks().read().map_err(|_| NO_LOCKS)?;
        let is = |resource: Option<&str>, state: &_| self.is_in_state(&table, resource, state);
        if !self.conditions.evaluate(is) {
            return Err(failed_condition("a condition of If does not hold"));
        }
        if self.changes() && !self.is_permitted(&table) {
            return Err(locked("it is locked: want the token of the lock, in If"));
        }
        Ok(())
    }

    /// Returns whether a resource is in a state. `None` is the request's own resource.
    fn is_in_state(
        &self,
        table: &LockTable,
        resource: Option<&str>,
        state: &ResourceState,
    ) -> bool {
        let resolved = resource.map(|url| resolve_url(url, &self.files.access.export));
        let path = match &resolved {
            None => self.path(),
            Some(Some(path)) => path.as_ref(),
            Some(None) => return false,
        };
        match state {
            ResourceState::Locked(token) => {
                let lock_path = self.files.lock_path(path);
                table.covering(&lock_path).any(|lock| lock.token == *token)
            }
            ResourceState::Tagged(tag) => self
                .files
                .visible(path)
                .is_ok_and(|meta| meta.etag() == *tag),
        }
    }

    /// Returns whether the locks permit the change. A lock of a directory also protects the names in it, whatever its
    /// depth (§7.4).
    fn is_permitted(&self, table: &LockTable) -> bool {
        let (files, path, destination) =
            (&self.files, self.path(), self.target.destination.as_ref());
        let permits = |path| table.permits(&self.holder, &files.lock_path(path));
        let permits_name = |path: Option<&RelPath>| {
            let parent = files.parent_lock_path(path);
            parent.is_none_or(|parent| table.permits(&self.holder, &parent))
        };
        let permits_tree = |path| {
            permits(path)
                && permits_name(path)
                && table.permits_below(&self.holder, &files.lock_path(path))
        };
        match self.method() {
            "COPY" => permits_tree(destination),
            "MOVE" => permits_tree(path) && permits_tree(destination),
            "DELETE" => permits_tree(path),
            // A missing file also changes its directory.
            _ => permits(path) && (Meta::stat(&files.root, path).is_ok() || permits_name(path)),
        }
    }
}
