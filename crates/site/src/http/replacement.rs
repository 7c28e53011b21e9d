// SPDX-License-Identifier: MIT OR Apache-2.0
//! A DELETE, a COPY or a MOVE, checked before anything is touched; and what is at a destination, replaced when all that
//! comes in its place is there.
//!
//! RFC 4918 §9.8.4 has a server delete the destination first. If the copy then fails, neither is there. Here the
//! request is carried out to a name of our own beside the destination, which then takes its place.

use super::{
    answer::{Answer, bare, body, said},
    claims::{Claim, Place},
    export::{
        files::Files,
        meta::{Meta, blocking, failed},
        tree,
        upload::temporary,
    },
    request::target::{self, Target},
};
use dav_server::fs::{DavMetaData, FsError, FsResult};
use http_body_util::BodyExt;
use hyper::{Request, StatusCode};
use longhaul_command::note;
use longhaul_store::{path::RelPath, root::Root};
use std::sync::Arc;

/// Bytes of what the library says of a copy that failed in part, at most. Each failure costs some 200.
const FAILURES_LEN_MAX: usize = 256 << 10;

/// What a request is to do, as far as it is known before.
enum Plan {
    Plain,
    /// Something is at the destination.
    Replace(Arc<Replacement>),
    Refuse(StatusCode, &'static str),
}

struct Replacement {
    root: Arc<Root>,
    moved: bool,
    source: RelPath,
    destination: RelPath,
    /// Where the new contents are until they are complete.
    staged: RelPath,
}

/// Carries out a request that changes names; `handle` gives it to the library.
pub(super) async fn carry_out<B, F: Future<Output = Answer>>(
    files: Files,
    target: Target,
    mut request: Request<B>,
    handle: impl Fn(Files, Request<B>) -> F,
) -> Answer {
    if !files.access.writable {
        return said(StatusCode::FORBIDDEN, "this may only be read");
    }
    let moved = request.method().as_str() == "MOVE";
    let places = places(&files, &target, moved);
    let Some(_claim) = Claim::of(places).await else {
        return said(StatusCode::LOCKED, "another request is at it");
    };
    let files = match (&target.path, &target.destination, moved) {
        (Some(from), Some(to), false) => files.copying(from, to),
        _ => files,
    };
    let at = files.clone();
    let plan = blocking(move || plan(&at, &target, moved)).await;
    match plan {
        Err(_) => said(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site cannot look at what this would change",
        ),
        Ok(Plan::Refuse(status, why)) => said(status, why),
        Ok(Plan::Plain) => whole(handle(files, request).await).await,
        Ok(Plan::Replace(replacement)) => {
            let export = &files.access.export;
            target::head_to(request.headers_mut(), export, &replacement.staged);
            target::keep_what_is_there(request.headers_mut());
            let files = files.staging(&replacement.staged);
            let files = match moved {
                true => files,
                false => files.copying(&replacement.source, &replacement.staged),
            };
            let answer = whole(handle(files, request).await).await;
            let made = answer.status() == StatusCode::CREATED;
            let ended = blocking(move || replacement.end(made)).await;
            match (made, ended) {
                (false, _) => answer,
                (true, Ok(())) => bare(StatusCode::NO_CONTENT),
                (true, Err(_)) => said(
                    StatusCode::CONFLICT,
                    "what is at the destination cannot be replaced",
                ),
            }
        }
    }
}

/// What the request is at: all of what it changes, and what it reads.
fn places(files: &Files, target: &Target, moved: bool) -> Vec<Place> {
    let source = target.path.as_ref().map(|path| Place {
        path: files.place(path),
        read: target.destination.is_some() && !moved,
    });
    let destination = target.destination.as_ref().map(|path| Place {
        path: files.place(path),
        read: false,
    });
    source.into_iter().chain(destination).collect()
}

fn plan(files: &Files, target: &Target, moved: bool) -> FsResult<Plan> {
    let root = &files.root;
    // What is not served is not found.
    let Some(source) = target.path.as_ref().filter(|path| !path.is_own()) else {
        return Ok(Plan::Plain);
    };
    let Some(meta) = found(Meta::shown(root, Some(source)))? else {
        return Ok(Plan::Plain);
    };
    let busy = Plan::Refuse(
        StatusCode::LOCKED,
        "a copy is under way in it, or was interrupted",
    );
    let exported = Plan::Refuse(
        StatusCode::FORBIDDEN,
        "another export is in it, and stays where it is",
    );
    let is_removed = target.destination.is_none() || moved;
    if is_removed && files.holds_export(source) {
        return Ok(exported);
    }
    // What can't be looked at can be moved all the same.
    if moved && tree::is_busy(root, source).unwrap_or(false) {
        return Ok(busy);
    }
    let Some(destination) = &target.destination else {
        return Ok(match tree::is_busy(root, source)? {
            true => busy,
            false => Plan::Plain,
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
    if there.is_none() || !target.overwrites {
        return Ok(Plan::Plain);
    }
    if files.holds_export(destination) {
        return Ok(exported);
    }
    if tree::is_busy(root, destination)? {
        return Ok(busy);
    }
    Ok(Plan::Replace(Arc::new(Replacement {
        root: root.clone(),
        moved,
        source: source.clone(),
        destination: destination.clone(),
        staged: temporary(destination)?,
    })))
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
    /// With what the library has made, or without.
    fn end(&self, made: bool) -> FsResult<()> {
        let replaced = match made {
            true => self.replace(),
            false => Ok(()),
        };
        if !made || replaced.is_err() {
            self.undo();
        }
        replaced
    }

    fn replace(&self) -> FsResult<()> {
        let [new, old] =
            [&self.staged, &self.destination].map(|path| found(Meta::any(&self.root, Some(path))));
        let (new, old) = (new?, old?);
        let directory = |meta: Option<Meta>| meta.is_some_and(|meta| meta.is_dir());
        if old.is_some() && (directory(new) || directory(old)) {
            return self.replace_aside();
        }
        self.rename(&self.staged, &self.destination)?;
        // Two names of one file: rename(2) leaves both.
        self.discard(&self.staged);
        Ok(())
    }

    /// A directory is not replaced in one step: the old contents go aside first.
    fn replace_aside(&self) -> FsResult<()> {
        let aside = temporary(&self.destination)?;
        self.rename(&self.destination, &aside)?;
        if let Err(error) = self.rename(&self.staged, &self.destination) {
            self.rename(&aside, &self.destination)?;
            return Err(error);
        }
        self.discard(&aside);
        Ok(())
    }

    fn undo(&self) {
        if !self.moved {
            return self.discard(&self.staged);
        }
        // It may never have left.
        let has_left =
            found(Meta::any(&self.root, Some(&self.staged))).is_ok_and(|meta| meta.is_some());
        if has_left && let Err(error) = self.rename(&self.staged, &self.source) {
            let (staged, source) = (&self.staged, &self.source);
            note!("longhaul site: {source} is now {staged}, and can't be moved back: {error:?}");
        }
    }

    fn rename(&self, from: &RelPath, to: &RelPath) -> FsResult<()> {
        self.root.rename(from, to).map_err(failed)
    }

    /// The request has its outcome already.
    fn discard(&self, path: &RelPath) {
        match tree::remove(&self.root, path) {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => note!("longhaul site: {path} is left, and can't be removed: {error:?}"),
        }
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
