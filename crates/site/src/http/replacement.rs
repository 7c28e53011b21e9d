// SPDX-License-Identifier: MIT OR Apache-2.0
//! A DELETE, a COPY or a MOVE, checked before anything is touched; and what is at a destination, replaced in one step
//! when all that comes in its place is there.
//!
//! RFC 4918 §9.8.4 has a server delete the destination first. If the copy then fails, neither is there. Here a COPY is
//! made under a name of our own beside the destination, whose place it then takes; what is moved takes it straight
//! away.

use super::{
    answer::{Answer, bare, body, said},
    audit::Changes,
    claims::{Claim, Claims, Place},
    export::{
        files::{ENTRIES_MAX, Files},
        guard::Guard,
        meta::{Meta, blocking, failed},
        tree,
        upload::{aside, temporary},
    },
    protection::{self, Preconditions, place},
    request::target::{self, Rejection, Target},
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

/// Bytes of what the library says of a copy that failed in part, at most. Each failure costs some 200.
const FAILURES_LEN_MAX: usize = 256 << 10;

/// What a request is to do, as far as it is known before.
enum Plan {
    /// The library does it.
    Plain,
    /// The same, in one step.
    RemoveFile,
    Move(Replacement),
    /// The library makes a copy beside the destination, where something is.
    Replace(RelPath, Replacement),
    Refuse(StatusCode, &'static str),
}

/// Something that gets the name of what may be there.
#[derive(Clone)]
struct Replacement {
    root: Arc<Root>,
    changes: Changes,
    /// What it is called until then.
    new: RelPath,
    destination: RelPath,
}

/// What became of what was at a destination.
enum Replaced {
    Nothing,
    Removed,
    /// It is to be removed.
    Renamed(RelPath),
}

/// Carries out a request that changes names; `handle` gives it to the library.
pub(super) async fn carry_out<B, F: Future<Output = Answer>>(
    files: Files,
    target: Target,
    request: Request<B>,
    preconditions: Arc<Preconditions>,
    handle: impl Fn(Files, Request<B>) -> F,
) -> Answer {
    if !files.access.writable {
        return said(StatusCode::FORBIDDEN, "this may only be read");
    }
    let moved = request.method().as_str() == "MOVE";
    let _claim = match claim(&files, places(&files, &target, moved)).await {
        Ok(claim) => claim,
        Err((status, why)) => return said(status, why),
    };
    // Others have had their turn since it was checked.
    if let Err((status, why)) = preconditions.check().await {
        return said(status, why);
    }
    let (export, at) = (files.clone(), target.clone());
    let answer = change(files, target, request, preconditions.guard(), handle).await;
    protection::forget(export, at, moved, answer.status()).await;
    answer
}

/// Waits until no other request is at some places.
pub(super) async fn claim(files: &Files, places: Vec<Place>) -> Result<Claim, Rejection> {
    let claimed = match Claims::of_process(files.access.locks.state()) {
        Ok(claims) => claims.claim(places).await,
        Err(error) => Err(error),
    };
    let unknown = (
        StatusCode::SERVICE_UNAVAILABLE,
        "the site can't look at what other requests are at",
    );
    let busy = (StatusCode::LOCKED, "another request is at it");
    claimed.map_err(|_| unknown)?.ok_or(busy)
}

async fn change<B, F: Future<Output = Answer>>(
    files: Files,
    target: Target,
    request: Request<B>,
    guard: Guard,
    handle: impl Fn(Files, Request<B>) -> F,
) -> Answer {
    let moved = request.method().as_str() == "MOVE";
    if moved && !is_of_all(request.headers()) {
        return said(StatusCode::BAD_REQUEST, "want a Depth of infinity");
    }
    let files = match (&target.path, &target.destination, moved) {
        (Some(from), Some(to), false) => files.copying(from, to),
        _ => files,
    };
    let at = files.clone();
    match blocking(move || plan(&at, &target, moved)).await {
        Err(FsError::TooLarge) => said(
            StatusCode::INSUFFICIENT_STORAGE,
            "a directory of more than 100,000 entries is in it",
        ),
        Err(_) => said(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site cannot look at what this would change",
        ),
        Ok(Plan::Refuse(status, why)) => said(status, why),
        Ok(Plan::Plain) => match whole(handle(files, request).await).await {
            // What the library says of a name that is taken meanwhile.
            answer if answer.status() == StatusCode::METHOD_NOT_ALLOWED => {
                let (status, why) = not_moved(&FsError::Exists);
                said(status, why)
            }
            answer => answer,
        },
        Ok(Plan::RemoveFile) => whole(handle(files.guarded(guard), request).await).await,
        Ok(Plan::Move(replacement)) => replacement.take_source(guard).await,
        Ok(Plan::Replace(source, replacement)) => {
            replacement.take_copy(files, &source, request, handle).await
        }
    }
}

/// Read before by `Target`.
fn is_of_all(headers: &HeaderMap) -> bool {
    let depth = headers.get("depth").map(HeaderValue::as_bytes);
    depth.is_none_or(|depth| depth == b"infinity")
}

/// What the request is at: all of what it changes, and what it reads.
fn places(files: &Files, target: &Target, moved: bool) -> Vec<Place> {
    let source = target.path.as_ref().map(|path| Place {
        path: place(files, Some(path)),
        read: target.destination.is_some() && !moved,
    });
    let destination = target.destination.as_ref().map(|path| Place {
        path: place(files, Some(path)),
        read: false,
    });
    source.into_iter().chain(destination).collect()
}

const BUSY: Plan = Plan::Refuse(
    StatusCode::LOCKED,
    "a copy is under way in it, or was interrupted",
);

const EXPORTED: Plan = Plan::Refuse(
    StatusCode::FORBIDDEN,
    "another export is in it, and stays where it is",
);

fn plan(files: &Files, target: &Target, moved: bool) -> FsResult<Plan> {
    let root = &files.root;
    // What is not served is not found.
    let Some(source) = target.path.as_ref().filter(|path| !path.is_internal()) else {
        return Ok(Plan::Plain);
    };
    let Some(meta) = found(Meta::shown(root, Some(source)))? else {
        return Ok(Plan::Plain);
    };
    let is_removed = target.destination.is_none() || moved;
    if is_removed && files.holds_export(source) {
        return Ok(EXPORTED);
    }
    // The library would stop in the middle at a directory that it can't have whole.
    let entries_max = if moved { usize::MAX } else { ENTRIES_MAX };
    match tree::is_busy(root, source, entries_max) {
        Ok(true) if is_removed => return Ok(BUSY),
        Err(FsError::TooLarge) if !moved => return Err(FsError::TooLarge),
        Err(error) if target.destination.is_none() => return Err(error),
        // What can't be looked at can be moved all the same, and a copy says what it left out.
        _ => {}
    }
    let Some(destination) = &target.destination else {
        return Ok(match meta.is_dir() {
            true => Plan::Plain,
            false => Plan::RemoveFile,
        });
    };
    let there = match Meta::replaceable(root, destination) {
        Err(FsError::Forbidden) => {
            let why = "a link or a device is at the destination, and stays";
            return Ok(Plan::Refuse(StatusCode::FORBIDDEN, why));
        }
        there => there?,
    };
    let above = |meta: &Meta, path| Ok(meta.is_dir() && is_above(root, meta, path)?);
    if above(&meta, destination)? || there.map_or(Ok(false), |there| above(&there, source))? {
        let why = "one of source and destination is in the other";
        return Ok(Plan::Refuse(StatusCode::FORBIDDEN, why));
    }
    let refused = there.map(|_| refuse_to_replace(files, destination, target.overwrites));
    if let Some(refused) = refused.transpose()?.flatten() {
        return Ok(refused);
    }
    let replacement = |new: RelPath| Replacement {
        root: root.clone(),
        changes: files.changes.clone(),
        new,
        destination: destination.clone(),
    };
    Ok(match (moved, there) {
        (true, _) => Plan::Move(replacement(source.clone())),
        (false, Some(_)) => Plan::Replace(source.clone(), replacement(temporary(destination)?)),
        (false, None) => Plan::Plain,
    })
}

/// Whether something stays at a destination.
fn refuse_to_replace(
    files: &Files,
    destination: &RelPath,
    overwrites: bool,
) -> FsResult<Option<Plan>> {
    if !overwrites {
        let why = "something is at the destination";
        return Ok(Some(Plan::Refuse(StatusCode::PRECONDITION_FAILED, why)));
    }
    if files.holds_export(destination) {
        return Ok(Some(EXPORTED));
    }
    Ok(tree::is_busy(&files.root, destination, usize::MAX)?.then_some(BUSY))
}

fn found(meta: FsResult<Meta>) -> FsResult<Option<Meta>> {
    match meta {
        Ok(meta) => Ok(Some(meta)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a directory is at a path or above it, by this name or another: a mount may give it two, and a file system
/// may not tell capitals.
fn is_above(root: &Root, directory: &Meta, path: &RelPath) -> FsResult<bool> {
    let mut at = Some(path.clone());
    loop {
        let meta = found(Meta::any(root, at.as_ref()))?;
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
    /// What is moved goes to its new name.
    async fn take_source(self, guard: Guard) -> Answer {
        let step = guard.clone();
        let moved = blocking(move || {
            let status = self.take_place(&step)?;
            self.changes.count_entry();
            Ok(status)
        });
        match (moved.await, guard.refused()) {
            (Ok(status), _) => bare(status),
            (Err(_), Some((status, why))) => said(status, why),
            (Err(error), None) => {
                let (status, why) = not_moved(&error);
                said(status, why)
            }
        }
    }

    /// What the library copies gets the name when all of it is there.
    async fn take_copy<B, F: Future<Output = Answer>>(
        self,
        files: Files,
        source: &RelPath,
        mut request: Request<B>,
        handle: impl Fn(Files, Request<B>) -> F,
    ) -> Answer {
        target::head_to(request.headers_mut(), &files.access.export, &self.new);
        target::keep_what_is_there(request.headers_mut());
        let files = files.staging(&self.new).copying(source, &self.new);
        let answer = whole(handle(files, request).await).await;
        let is_made = answer.status() == StatusCode::CREATED;
        match (is_made, blocking(move || self.end(is_made)).await) {
            (false, _) => answer,
            (true, Ok(())) => bare(StatusCode::NO_CONTENT),
            (true, Err(_)) => said(
                StatusCode::CONFLICT,
                "what is at the destination cannot be replaced",
            ),
        }
    }

    /// With what the library has made, or without.
    fn end(&self, is_made: bool) -> FsResult<()> {
        let replaced = match is_made {
            true => self.take_place(&Guard::default()).map(drop),
            false => Ok(()),
        };
        if !is_made || replaced.is_err() {
            self.discard(&self.new, &Changes::default());
        }
        replaced
    }

    fn take_place(&self, guard: &Guard) -> FsResult<StatusCode> {
        match guard.step(|| self.rename())? {
            Replaced::Nothing => return Ok(StatusCode::CREATED),
            Replaced::Removed => {}
            Replaced::Renamed(old) => self.discard(&old, &self.changes),
        }
        Ok(StatusCode::NO_CONTENT)
    }

    fn rename(&self) -> FsResult<Replaced> {
        let [new, old] =
            [&self.new, &self.destination].map(|path| found(Meta::any(&self.root, Some(path))));
        let (new, old) = (new?.ok_or(FsError::NotFound)?, old?);
        let Some(old) = old else {
            self.rename_to_new(&self.new, &self.destination)?;
            return Ok(Replaced::Nothing);
        };
        if new.is_dir() || old.is_dir() {
            return self.exchange().map(Replaced::Renamed);
        }
        let renamed = self.root.rename(&self.new, &self.destination);
        renamed.map_err(failed)?;
        match new.identity() == old.identity() {
            // Two names of one file: rename(2) leaves both.
            true => drop(self.root.remove(&self.new)),
            false => {
                self.changes.count_entry();
                self.changes.count_bytes(old.len());
            }
        }
        Ok(Replaced::Removed)
    }

    /// A directory is not replaced by rename(2): each gets the other's name. What the old contents are called then.
    fn exchange(&self) -> FsResult<RelPath> {
        match self.root.exchange(&self.new, &self.destination) {
            Err(failure) if failure.errno().is_some_and(lacks_rename_flags) => self.replace_aside(),
            exchanged => {
                exchanged.map_err(failed)?;
                Ok(self.hide().unwrap_or_else(|_| self.new.clone()))
            }
        }
    }

    /// What was moved is not at its old name any more.
    fn hide(&self) -> FsResult<RelPath> {
        if self.new.is_internal() {
            return Ok(self.new.clone());
        }
        let hidden = temporary(&self.new)?;
        self.rename_to_new(&self.new, &hidden)?;
        Ok(hidden)
    }

    /// Where the file system can't exchange names: the old contents go aside first. If the process ends then, they are
    /// there for whoever looks after the site.
    fn replace_aside(&self) -> FsResult<RelPath> {
        let aside = aside(&self.destination)?;
        self.rename_to_new(&self.destination, &aside)?;
        if let Err(error) = self.rename_to_new(&self.new, &self.destination) {
            self.rename_to_new(&aside, &self.destination)?;
            return Err(error);
        }
        Ok(aside)
    }

    fn rename_to_new(&self, from: &RelPath, to: &RelPath) -> FsResult<()> {
        self.root.rename_to_new(from, to).map_err(failed)
    }

    /// The request has its outcome already.
    fn discard(&self, path: &RelPath, changes: &Changes) {
        match tree::remove(&self.root, path, changes) {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => warn!("{path} is left, and can't be removed: {error:?}"),
        }
    }
}

/// Why a MOVE failed, or a COPY that came too late.
fn not_moved(error: &FsError) -> Rejection {
    match error {
        FsError::NotFound => (
            StatusCode::CONFLICT,
            "the directory that it is to be in is not there",
        ),
        FsError::Exists => (
            StatusCode::PRECONDITION_FAILED,
            "something is at the destination now",
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

/// The answer when all that is behind it is done: the library does the rest while its body is read.
async fn whole(answer: Answer) -> Answer {
    let (head, mut said_so_far) = answer.into_parts();
    let (mut bytes, mut fits) = (Vec::new(), true);
    while let Some(Ok(frame)) = said_so_far.frame().await {
        let data = frame.into_data().unwrap_or_default();
        fits &= bytes.len() + data.len() <= FAILURES_LEN_MAX;
        if fits {
            bytes.extend_from_slice(&data);
        }
    }
    match fits {
        true => Answer::from_parts(head, body(bytes)),
        false => said(
            StatusCode::INTERNAL_SERVER_ERROR,
            "more of it failed than can be listed",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// As on NFS.
    #[test]
    fn a_directory_is_replaced_where_names_cannot_be_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
        for (name, contents) in [("new", "new"), ("old", "old")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), contents).unwrap();
        }
        let replacement = Replacement {
            root: Arc::new(Root::open(folder.path()).unwrap()),
            changes: Changes::default(),
            new: path("new"),
            destination: path("old"),
        };
        let aside = replacement.replace_aside().unwrap();
        let read = |name: &str| fs::read_to_string(at(name).join("file")).unwrap();
        assert_eq!((read("old").as_str(), at("new").exists()), ("new", false));
        assert_eq!(read(&aside.to_string()), "old");
        assert!(!tree::is_orphaned(&replacement.root, &aside));
        // What is to be there is not: the old contents come back.
        assert!(replacement.replace_aside().is_err());
        assert_eq!(read("old"), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
