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
        target::{Depth, INTERNAL_NAME, Target, resolve_url, url_path},
    },
    response::{Outcome, Rejection},
};
use hyper::{HeaderMap, http::request::Parts};
use longhaul_store::path::RelPath;
use std::time::Duration;

/// Longest time to open an export.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Response when the lock file can't be read.
pub(super) const NO_LOCKS: Rejection = Rejection(503, "the site can't read its locks");

pub(super) const SLASH: Rejection = Rejection(409, "a name with a trailing slash is a directory's");

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
        Ok(Self {
            head,
            files: files.ok_or(Rejection(503, "the site cannot open the export"))?,
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
        matches!(self.target.depth, None | Some(Depth::Infinity))
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
            return Err(Rejection(403, "it is read-only"));
        }
        let creates = locks || ["MKCOL", "PUT"].contains(&self.method());
        if creates && self.path().is_some_and(RelPath::is_internal) {
            return Err(INTERNAL_NAME);
        }
        if self.method() == "PUT" && self.target.is_directory {
            return Err(SLASH);
        }
        match self.meta() {
            // RFC 4918 §9.6.1. Apache also refuses it with 400.
            Ok(meta) if meta.is_dir() && self.method() == "DELETE" && !self.is_deep() => {
                Err(Rejection(400, "want a Depth of infinity, or none"))
            }
            // An existing file is no failure of the name to a MKCOL, whose name may end with a slash.
            Ok(meta) if !meta.is_dir() && self.target.is_directory && self.method() != "MKCOL" => {
                Err(Rejection(
                    404,
                    "it is a file, and the name ends with a slash",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Waits until no other request claims these paths. With `read`, other requests may read a path meanwhile.
    pub(super) fn claim(&self, paths: &[(Option<&RelPath>, bool)]) -> Outcome<Claim> {
        let paths = paths.iter().map(|&(path, read)| ClaimedPath {
            path: self.files.lock_path(path),
            read,
        });
        let claims = Claims::for_process(&self.files.access.config.state);
        let claimed = claims.and_then(|claims| claims.claim(&paths.collect::<Vec<_>>()));
        let claimed =
            claimed.map_err(|_| Rejection(503, "the site can't read the claims of other requests"));
        claimed?.ok_or(Rejection(423, "another request is changing it"))
    }

    /// Runs a step that changes something, if the conditions hold still. No other process of the site changes files
    /// or locks meanwhile.
    pub(super) fn step<T>(&self, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let locks = &self.files.locks;
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
            if conditions::failed_status(self.headers(), false, validators.as_ref()).is_some() {
                return Err(Rejection(412, "a condition does not hold"));
            }
        }
        if self.conditions.is_empty() && !self.changes() {
            return Ok(());
        }
        let table = self.files.locks.read().map_err(|_| NO_LOCKS)?;
        let is = |resource: Option<&str>, state: &_| self.is_in_state(&table, resource, state);
        if !self.conditions.evaluate(is) {
            return Err(Rejection(412, "a condition of If does not hold"));
        }
        if self.changes() && !self.is_permitted(&table) {
            return Err(Rejection(
                423,
                "it is locked: want the token of the lock, in If",
            ));
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
        let (files, own) = (&self.files, self.target.path.clone());
        let resolved = resource.map_or(Some(own), |url| resolve_url(url, &files.access.export));
        resolved.is_some_and(|path| match state {
            ResourceState::Locked(token) => {
                let lock_path = files.lock_path(path.as_ref());
                table.covering(&lock_path).any(|lock| lock.token == *token)
            }
            ResourceState::Tagged(tag) => {
                let meta = files.visible(path.as_ref());
                meta.is_ok_and(|meta| meta.etag() == *tag)
            }
        })
    }

    /// Returns whether the locks permit the change. A lock of a directory also protects the names in it, whatever its
    /// depth (§7.4).
    fn is_permitted(&self, table: &LockTable) -> bool {
        let (files, path, destination) =
            (&self.files, self.path(), self.target.destination.as_ref());
        let permits = |path: Option<&RelPath>| table.permits(&self.holder, &files.lock_path(path));
        let permits_name =
            |path: Option<&RelPath>| path.is_none_or(|path| permits(path.parent().as_ref()));
        let permits_below = |path| table.permits_below(&self.holder, &files.lock_path(path));
        let permits_tree = |path| permits(path) && permits_name(path) && permits_below(path);
        match self.method() {
            "COPY" => permits_tree(destination),
            "MOVE" => permits_tree(path) && permits_tree(destination),
            "DELETE" => permits_tree(path),
            // A missing file also changes its directory.
            _ => permits(path) && (Meta::stat(&files.root, path).is_ok() || permits_name(path)),
        }
    }
}
