// SPDX-License-Identifier: MIT OR Apache-2.0
//! PROPFIND and PROPPATCH (RFC 4918 §9.1 and §9.2).
//!
//! dav-server leaves out what a client asked for and there is not, answers a question for some properties with all of those
//! that clients have set, and can't remove a displayname. So the site does both itself.

mod dead;
mod live;
mod multistatus;
mod names;

pub(super) use live::{Quota, Resource, content_type, http_date};
pub(super) use multistatus::answer;

use super::{
    answer::{Answer, said, xml},
    export::{
        files::{Entries, Files},
        meta::{Meta, within},
    },
    listing,
    request::{
        properties::{RequestedProperties, changes, on_a_thread},
        target::{Target, url_path},
    },
};
use bytes::Bytes;
use dav_server::fs::{DavMetaData, FsError};
use hyper::{Request, StatusCode, header::HeaderValue};
use longhaul_store::path::RelPath;

/// Answers a PROPFIND.
pub(super) async fn find(files: Files, target: Target, request: Request<Bytes>) -> Answer {
    let read = on_a_thread(request.body().clone(), RequestedProperties::read);
    let asked = match read.await {
        Ok(asked) => asked,
        Err((status, why)) => return said(status, why),
    };
    if is_infinite(&request) {
        return infinite();
    }
    let meta = match look(&files, &target).await {
        Ok(meta) => meta,
        Err(answer) => return answer,
    };
    let listed = match request.headers().get("depth") {
        Some(depth) if depth == "0" => Ok(None),
        _ => listing::entries(&files, &target).await,
    };
    let (entries, place) = match listed {
        Ok(listed) => listed.unzip(),
        Err((status, why)) => return said(status, why),
    };
    let itself = resource(&files, target.path.clone(), meta);
    let locks = files.access.locks.clone();
    let members = members(files, target.path, entries);
    let mut answer = answer(asked, locks, itself, members).await;
    // Until all of the answer is sent.
    if let Some(place) = place {
        answer.extensions_mut().insert(place);
    }
    answer
}

/// Whether a PROPFIND is for all that is below something, which may be any amount.
pub(super) fn is_infinite<B>(request: &Request<B>) -> bool {
    let depth = request.headers().get("depth").map(HeaderValue::as_bytes);
    depth == Some(b"infinity")
}

pub(super) fn infinite() -> Answer {
    let error = "<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>";
    xml(StatusCode::FORBIDDEN, error)
}

/// Answers a PROPPATCH.
pub(super) async fn patch(files: Files, target: Target, request: Request<Bytes>) -> Answer {
    if !files.access.writable {
        return said(StatusCode::FORBIDDEN, "this may only be read");
    }
    let changes = match on_a_thread(request.body().clone(), changes).await {
        Ok(changes) => changes,
        Err((status, why)) => return said(status, why),
    };
    let meta = match look(&files, &target).await {
        Ok(meta) => meta,
        Err(answer) => return answer,
    };
    let href = href(&files, target.path.as_ref(), &meta);
    let changed = tokio::task::spawn_blocking(move || {
        let statuses = dead::change(&files, target.path.as_ref(), &changes);
        multistatus::of_changes(&href, &changes, &statuses)
    });
    changed.await.unwrap_or_else(|_| {
        said(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site can't change it",
        )
    })
}

/// What is there.
async fn look(files: &Files, target: &Target) -> Result<Meta, Answer> {
    if target.path.as_ref().is_some_and(RelPath::is_internal) {
        return Err(said(StatusCode::NOT_FOUND, "not there"));
    }
    files
        .look(target.path.clone())
        .await
        .map_err(|error| match error {
            FsError::NotFound => said(StatusCode::NOT_FOUND, "not there"),
            FsError::Forbidden => said(StatusCode::FORBIDDEN, "the site can't look at it"),
            _ => said(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the site can't look at it",
            ),
        })
}

fn resource(files: &Files, path: Option<RelPath>, meta: Meta) -> Resource {
    Resource {
        href: href(files, path.as_ref(), &meta),
        files: Some(files.clone()),
        path,
        meta: Some(meta),
        quota: None,
    }
}

/// The URL of something; a directory's ends with a slash.
fn href(files: &Files, path: Option<&RelPath>, meta: &Meta) -> String {
    let url = url_path(&files.access.export, path);
    match meta.is_dir() && !url.ends_with('/') {
        true => url + "/",
        false => url,
    }
}

fn members(
    files: Files,
    path: Option<RelPath>,
    entries: Option<Entries>,
) -> impl Iterator<Item = Resource> + Send {
    let named = entries.into_iter().flat_map(Entries::into_names);
    // What has no path here is not in a listing.
    named.filter_map(move |(name, meta)| {
        let path = within(path.as_ref(), &name).ok()?;
        Some(resource(&files, Some(path), meta))
    })
}
