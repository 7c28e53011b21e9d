// SPDX-License-Identifier: MIT OR Apache-2.0
//! DELETE, COPY and MOVE: checked before any change, with a destination that is replaced in one step once its new
//! contents are complete.
//!
//! RFC 4918 §9.8.4 has a server delete the destination first. If the copy then fails, both are lost. Here a COPY is
//! made under an internal name beside the destination, which it then replaces. A MOVE replaces the destination
//! directly.

use super::{
    audit::ChangeCounter,
    claims::{Claim, ClaimedPath, Claims},
    export::{
        files::Files,
        guard::Guard,
        meta::{Meta, blocking, from_failure},
        tree,
        upload::{aside_name, temporary_name},
    },
    preconditions::{self, Preconditions, lock_path},
    request::target::{self, Rejection, Target},
    response::{HttpResponse, empty_response, full_body, text_response},
};
use dav_server::fs::{DavMetaData, FsError, FsResult};
use http_body_util::BodyExt;
use hyper::{HeaderMap, Request, StatusCode, header::HeaderValue};
use longhaul_store::{
    path::RelPath,
    root::{Root, lacks_rename_flags},
};
use std::sync::Arc;
use tracing::warn;

/// Longest report of dav-server on a copy that failed in part, in bytes. Each failure costs some 200.
const FAILURES_LEN_MAX: usize = 256 << 10;

/// Plan for a request, made before it changes anything.
enum Plan {
    /// dav-server handles the request.
    Library,
    /// dav-server removes a file, in one guarded step.
    RemoveFile,
    Move(Replacement),
    /// dav-server makes a copy beside an existing destination.
    Replace(RelPath, Replacement),
    Refuse(StatusCode, &'static str),
}

/// New contents of a destination.
#[derive(Clone)]
struct Replacement {
    root: Arc<Root>,
    changes: ChangeCounter,
    /// Path of the new contents until then.
    new: RelPath,
    destination: RelPath,
}

/// Result for the old contents of the destination.
enum RenameOutcome {
    Created,
    Replaced,
    /// The old contents are still to be removed.
    MovedAside(RelPath),
}

/// Executes a request that changes names. `handle` passes it to dav-server.
pub(super) async fn execute<B, F: Future<Output = HttpResponse>>(
    files: Files,
    target: Target,
    request: Request<B>,
    preconditions: Arc<Preconditions>,
    handle: impl Fn(Files, Request<B>) -> F,
) -> HttpResponse {
    if !files.access.writable {
        return text_response(StatusCode::FORBIDDEN, "it is read-only");
    }
    let moved = request.method().as_str() == "MOVE";
    let _claim = match claim(&files, claimed_paths(&files, &target, moved)).await {
        Ok(claim) => claim,
        Err((status, why)) => return text_response(status, why),
    };
    // Other requests may have made changes since the first check.
    if let Err((status, why)) = preconditions.check().await {
        return text_response(status, why);
    }
    let (export, at) = (files.clone(), target.clone());
    let response = change(files, target, request, preconditions.guard(), handle).await;
    preconditions::discard_locks(export, at, moved, response.status()).await;
    response
}

/// Waits until no other request claims the paths.
pub(super) async fn claim(files: &Files, paths: Vec<ClaimedPath>) -> Result<Claim, Rejection> {
    let claimed = match Claims::for_process(files.access.locks.state()) {
        Ok(claims) => claims.claim(paths).await,
        Err(error) => Err(error),
    };
    let unknown = (
        StatusCode::SERVICE_UNAVAILABLE,
        "the site can't read the claims of other requests",
    );
    let busy = (StatusCode::LOCKED, "another request is changing it");
    claimed.map_err(|_| unknown)?.ok_or(busy)
}

async fn change<B, F: Future<Output = HttpResponse>>(
    files: Files,
    target: Target,
    request: Request<B>,
    guard: Guard,
    handle: impl Fn(Files, Request<B>) -> F,
) -> HttpResponse {
    let moved = request.method().as_str() == "MOVE";
    if moved && !has_infinite_depth(request.headers()) {
        return text_response(StatusCode::BAD_REQUEST, "want a Depth of infinity");
    }
    let files = match (&target.path, &target.destination, moved) {
        (Some(from), Some(to), false) => files.with_copy(from, to),
        _ => files,
    };
    let at = files.clone();
    match blocking(move || plan(&at, &target, moved)).await {
        Err(FsError::TooLarge) => text_response(
            StatusCode::INSUFFICIENT_STORAGE,
            "it contains a directory of more than 1,000,000 entries",
        ),
        Err(_) => text_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site cannot read the affected files",
        ),
        Ok(Plan::Refuse(status, why)) => text_response(status, why),
        Ok(Plan::Library) => match collect_response(handle(files, request).await).await {
            // dav-server's response when the name was taken meanwhile.
            response if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
                let (status, why) = move_error(&FsError::Exists);
                text_response(status, why)
            }
            response => response,
        },
        Ok(Plan::RemoveFile) => {
            collect_response(handle(files.with_guard(guard), request).await).await
        }
        Ok(Plan::Move(replacement)) => replacement.move_source(guard).await,
        Ok(Plan::Replace(source, replacement)) => {
            replacement
                .install_copy(files, &source, request, handle)
                .await
        }
    }
}

/// Returns whether Depth is infinity. `Target` has checked the header.
fn has_infinite_depth(headers: &HeaderMap) -> bool {
    let depth = headers.get("depth").map(HeaderValue::as_bytes);
    depth.is_none_or(|depth| depth == b"infinity")
}

/// Returns the paths that the request changes and reads.
fn claimed_paths(files: &Files, target: &Target, moved: bool) -> Vec<ClaimedPath> {
    let source = target.path.as_ref().map(|path| ClaimedPath {
        path: lock_path(files, Some(path)),
        read: target.destination.is_some() && !moved,
    });
    let destination = target.destination.as_ref().map(|path| ClaimedPath {
        path: lock_path(files, Some(path)),
        read: false,
    });
    source.into_iter().chain(destination).collect()
}

const REJECT_ACTIVE_COPY: Plan = Plan::Refuse(
    StatusCode::LOCKED,
    "a copy into it is in progress, or was interrupted",
);

const REJECT_EXPORT: Plan = Plan::Refuse(StatusCode::FORBIDDEN, "it contains another export");

fn plan(files: &Files, target: &Target, moved: bool) -> FsResult<Plan> {
    let root = &files.root;
    // Hidden paths get a 404.
    let Some(source) = target.path.as_ref().filter(|path| !path.is_internal()) else {
        return Ok(Plan::Library);
    };
    let Some(meta) = optional(Meta::visible(root, Some(source)))? else {
        return Ok(Plan::Library);
    };
    let is_removed = target.destination.is_none() || moved;
    if is_removed && files.contains_export(source) {
        return Ok(REJECT_EXPORT);
    }
    match tree::has_active_copy(root, source) {
        Ok(true) if is_removed => return Ok(REJECT_ACTIVE_COPY),
        // dav-server would stop midway at a directory that is too large to list.
        Err(FsError::TooLarge) if !moved => return Err(FsError::TooLarge),
        Err(error) if target.destination.is_none() => return Err(error),
        // An unreadable tree can still be moved, and a copy reports what it left out.
        _ => {}
    }
    let Some(destination) = &target.destination else {
        return Ok(if meta.is_dir() {
            Plan::Library
        } else {
            Plan::RemoveFile
        });
    };
    let existing = match Meta::replaceable(root, destination) {
        Err(FsError::Forbidden) => {
            let why = "the destination is a symbolic link or a device";
            return Ok(Plan::Refuse(StatusCode::FORBIDDEN, why));
        }
        existing => existing?,
    };
    let above = |meta: &Meta, path| Ok(meta.is_dir() && is_above(root, meta, path)?);
    if above(&meta, destination)?
        || existing.map_or(Ok(false), |existing| above(&existing, source))?
    {
        let why = "one of source and destination is in the other";
        return Ok(Plan::Refuse(StatusCode::FORBIDDEN, why));
    }
    let refused = existing.map(|_| refuse_to_replace(files, destination, target.overwrites));
    if let Some(refused) = refused.transpose()?.flatten() {
        return Ok(refused);
    }
    let replacement = |new: RelPath| Replacement {
        root: root.clone(),
        changes: files.changes.clone(),
        new,
        destination: destination.clone(),
    };
    Ok(match (moved, existing) {
        (true, _) => Plan::Move(replacement(source.clone())),
        (false, Some(_)) => {
            Plan::Replace(source.clone(), replacement(temporary_name(destination)?))
        }
        (false, None) => Plan::Library,
    })
}

/// Returns the refusal if the destination must not be replaced.
fn refuse_to_replace(
    files: &Files,
    destination: &RelPath,
    overwrites: bool,
) -> FsResult<Option<Plan>> {
    if !overwrites {
        let why = "the destination exists";
        return Ok(Some(Plan::Refuse(StatusCode::PRECONDITION_FAILED, why)));
    }
    if files.contains_export(destination) {
        return Ok(Some(REJECT_EXPORT));
    }
    Ok(tree::has_active_copy(&files.root, destination)?.then_some(REJECT_ACTIVE_COPY))
}

fn optional(meta: FsResult<Meta>) -> FsResult<Option<Meta>> {
    match meta {
        Ok(meta) => Ok(Some(meta)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a directory is at a path or above it. Compares inodes: a mount may give a directory two names, and
/// a file system may ignore case.
fn is_above(root: &Root, directory: &Meta, path: &RelPath) -> FsResult<bool> {
    let mut at = Some(path.clone());
    loop {
        let meta = optional(Meta::stat(root, at.as_ref()))?;
        if meta.is_some_and(|meta| meta.identity() == directory.identity()) {
            return Ok(true);
        }
        match at {
            Some(path) => at = path.parent(),
            None => return Ok(false),
        }
    }
}

impl Replacement {
    /// Moves the source to its new name.
    async fn move_source(self, guard: Guard) -> HttpResponse {
        let step = guard.clone();
        let moved = blocking(move || {
            let status = self.install(&step)?;
            self.changes.count_entry();
            Ok(status)
        });
        match (moved.await, guard.rejection()) {
            (Ok(status), _) => empty_response(status),
            (Err(_), Some((status, why))) => text_response(status, why),
            (Err(error), None) => {
                let (status, why) = move_error(&error);
                text_response(status, why)
            }
        }
    }

    /// Has dav-server make a copy, which replaces the destination once it is complete.
    async fn install_copy<B, F: Future<Output = HttpResponse>>(
        self,
        files: Files,
        source: &RelPath,
        mut request: Request<B>,
        handle: impl Fn(Files, Request<B>) -> F,
    ) -> HttpResponse {
        target::set_destination(request.headers_mut(), &files.access.export, &self.new);
        target::forbid_overwrite(request.headers_mut());
        let files = files.with_staging(&self.new).with_copy(source, &self.new);
        let response = collect_response(handle(files, request).await).await;
        let is_made = response.status() == StatusCode::CREATED;
        match (is_made, blocking(move || self.finish(is_made)).await) {
            (false, _) => response,
            (true, Ok(())) => empty_response(StatusCode::NO_CONTENT),
            (true, Err(_)) => {
                text_response(StatusCode::CONFLICT, "the destination cannot be replaced")
            }
        }
    }

    /// Installs a complete copy, or removes a failed one.
    fn finish(&self, is_made: bool) -> FsResult<()> {
        let replaced = if is_made {
            self.install(&Guard::default()).map(drop)
        } else {
            Ok(())
        };
        if !is_made || replaced.is_err() {
            self.discard(&self.new, &ChangeCounter::default());
        }
        replaced
    }

    fn install(&self, guard: &Guard) -> FsResult<StatusCode> {
        match guard.step(|| self.rename())? {
            RenameOutcome::Created => return Ok(StatusCode::CREATED),
            RenameOutcome::Replaced => {}
            RenameOutcome::MovedAside(old) => self.discard(&old, &self.changes),
        }
        Ok(StatusCode::NO_CONTENT)
    }

    fn rename(&self) -> FsResult<RenameOutcome> {
        let [new, old] =
            [&self.new, &self.destination].map(|path| optional(Meta::stat(&self.root, Some(path))));
        let (new, old) = (new?.ok_or(FsError::NotFound)?, old?);
        let Some(old) = old else {
            self.rename_to_new(&self.new, &self.destination)?;
            return Ok(RenameOutcome::Created);
        };
        if new.is_dir() || old.is_dir() {
            return self.exchange().map(RenameOutcome::MovedAside);
        }
        let renamed = self.root.rename(&self.new, &self.destination);
        renamed.map_err(from_failure)?;
        if new.identity() == old.identity() {
            drop(self.root.remove(&self.new));
        } else {
            self.changes.count_entry();
            self.changes.count_bytes(old.len());
        }
        Ok(RenameOutcome::Replaced)
    }

    /// Exchanges the new and the old contents, since rename(2) can't replace a directory. Returns the path of the old
    /// contents.
    fn exchange(&self) -> FsResult<RelPath> {
        match self.root.exchange(&self.new, &self.destination) {
            Err(failure) if failure.errno().is_some_and(lacks_rename_flags) => {
                self.replace_without_exchange()
            }
            exchanged => {
                exchanged.map_err(from_failure)?;
                Ok(self
                    .rename_to_internal()
                    .unwrap_or_else(|_| self.new.clone()))
            }
        }
    }

    /// Moves the old contents from the source's name to an internal name.
    fn rename_to_internal(&self) -> FsResult<RelPath> {
        if self.new.is_internal() {
            return Ok(self.new.clone());
        }
        let hidden = temporary_name(&self.new)?;
        self.rename_to_new(&self.new, &hidden)?;
        Ok(hidden)
    }

    /// Replaces the destination on a file system that can't exchange names: the old contents are renamed first. If
    /// the process ends in between, the operator still finds them.
    fn replace_without_exchange(&self) -> FsResult<RelPath> {
        let aside = aside_name(&self.destination)?;
        self.rename_to_new(&self.destination, &aside)?;
        if let Err(error) = self.rename_to_new(&self.new, &self.destination) {
            self.rename_to_new(&aside, &self.destination)?;
            return Err(error);
        }
        Ok(aside)
    }

    fn rename_to_new(&self, from: &RelPath, to: &RelPath) -> FsResult<()> {
        self.root.rename_to_new(from, to).map_err(from_failure)
    }

    /// Removes old contents. A failure is only logged, since the request has its result already.
    fn discard(&self, path: &RelPath, changes: &ChangeCounter) {
        match tree::remove(&self.root, path, changes) {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => warn!("{path} is left, and can't be removed: {error:?}"),
        }
    }
}

/// Returns the response to a failed MOVE, or to a COPY whose destination was taken meanwhile.
fn move_error(error: &FsError) -> Rejection {
    match error {
        FsError::NotFound => (StatusCode::CONFLICT, "the parent directory does not exist"),
        FsError::Exists => (
            StatusCode::PRECONDITION_FAILED,
            "the destination was created meanwhile",
        ),
        FsError::Forbidden => (StatusCode::FORBIDDEN, "the site may not move it"),
        FsError::InsufficientStorage => (StatusCode::INSUFFICIENT_STORAGE, "no space is left"),
        FsError::IsRemote => (
            StatusCode::BAD_GATEWAY,
            "the destination is on another file system",
        ),
        FsError::PathTooLong => (StatusCode::URI_TOO_LONG, "the name is too long there"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the site can't move it"),
    }
}

/// Reads the whole response. dav-server does the work while its body is read.
async fn collect_response(response: HttpResponse) -> HttpResponse {
    let (head, mut rest) = response.into_parts();
    let (mut bytes, mut fits) = (Vec::new(), true);
    while let Some(Ok(frame)) = rest.frame().await {
        let data = frame.into_data().unwrap_or_default();
        fits &= bytes.len() + data.len() <= FAILURES_LEN_MAX;
        if fits {
            bytes.extend_from_slice(&data);
        }
    }
    if fits {
        HttpResponse::from_parts(head, full_body(bytes))
    } else {
        text_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "there are too many failures to list",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// NFS can't exchange names.
    #[test]
    fn replaces_a_directory_without_exchange() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
        for (name, contents) in [("new", "new"), ("old", "old")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), contents).unwrap();
        }
        let replacement = Replacement {
            root: Arc::new(Root::open(folder.path()).unwrap()),
            changes: ChangeCounter::default(),
            new: path("new"),
            destination: path("old"),
        };
        let aside = replacement.replace_without_exchange().unwrap();
        let read = |name: &str| fs::read_to_string(at(name).join("file")).unwrap();
        assert_eq!((read("old").as_str(), at("new").exists()), ("new", false));
        assert_eq!(read(&aside.to_string()), "old");
        assert!(!tree::is_orphaned(&replacement.root, &aside));
        // The new contents are missing, so the old ones come back.
        assert!(replacement.replace_without_exchange().is_err());
        assert_eq!(read("old"), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
