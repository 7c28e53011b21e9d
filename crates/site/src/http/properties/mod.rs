// SPDX-License-Identifier: MIT OR Apache-2.0
//! PROPFIND and PROPPATCH (RFC 4918 §9.1 and §9.2).
//!
//! dav-server omits requested properties that do not exist, returns all dead properties when some are requested, and
//! can't remove a displayname. The site therefore implements both methods itself.

mod dead;
mod live;
mod multistatus;
mod names;

pub(super) use live::{Quota, Resource, content_type, http_date};
pub(super) use multistatus::multistatus_response;

use super::{
    export::{
        files::{Entries, Files},
        meta::{Meta, within},
    },
    listing,
    request::{
        properties::{RequestedProperties, parse_blocking, parse_changes},
        target::{Rejection, Target, url_path},
    },
    response::{HttpResponse, text_response, xml_response},
};
use bytes::Bytes;
use dav_server::fs::{DavMetaData, FsError, FsResult};
use hyper::{Request, StatusCode, header::HeaderValue};
use longhaul_store::path::RelPath;

/// Responds to a PROPFIND.
pub(super) async fn propfind(
    files: Files,
    target: Target,
    request: Request<Bytes>,
) -> HttpResponse {
    let read = parse_blocking(request.body().clone(), RequestedProperties::read);
    let requested = match read.await {
        Ok(requested) => requested,
        Err((status, why)) => return text_response(status, why),
    };
    if has_infinite_depth(&request) {
        return infinite_depth_error();
    }
    let meta = match stat_target(&files, &target).await {
        Ok(meta) => meta,
        Err((status, why)) => return text_response(status, why),
    };
    let listed = match request.headers().get("depth") {
        Some(depth) if depth == "0" => Ok(None),
        _ => listing::entries(&files, &target).await,
    };
    let (entries, reservation) = match listed {
        Ok(listed) => listed.unzip(),
        Err((status, why)) => return text_response(status, why),
    };
    let itself = resource(&files, target.path.clone(), meta);
    let locks = files.access.locks.clone();
    let members = members(files, target.path, entries);
    let mut response = multistatus_response(requested, locks, itself, members).await;
    // The reservation is held until the response is sent.
    if let Some(reservation) = reservation {
        response.extensions_mut().insert(reservation);
    }
    response
}

/// Returns whether a PROPFIND requests a whole tree, whose size is unbounded.
pub(super) fn has_infinite_depth<B>(request: &Request<B>) -> bool {
    let depth = request.headers().get("depth").map(HeaderValue::as_bytes);
    depth == Some(b"infinity")
}

pub(super) fn infinite_depth_error() -> HttpResponse {
    let error = "<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>";
    xml_response(StatusCode::FORBIDDEN, error)
}

/// Responds to a PROPPATCH.
pub(super) async fn proppatch(
    files: Files,
    target: Target,
    request: Request<Bytes>,
) -> HttpResponse {
    if !files.access.writable {
        return text_response(StatusCode::FORBIDDEN, "it is read-only");
    }
    let changes = match parse_blocking(request.body().clone(), parse_changes).await {
        Ok(changes) => changes,
        Err((status, why)) => return text_response(status, why),
    };
    let meta = match stat_target(&files, &target).await {
        Ok(meta) => meta,
        Err((status, why)) => return text_response(status, why),
    };
    let href = href(&files, target.path.as_ref(), &meta);
    let changed = tokio::task::spawn_blocking(move || {
        let statuses = dead::change(&files, target.path.as_ref(), &changes);
        multistatus::of_changes(&href, &changes, &statuses)
    });
    changed.await.unwrap_or_else(|_| {
        text_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site can't change it",
        )
    })
}

/// Returns the metadata of the target.
async fn stat_target(files: &Files, target: &Target) -> Result<Meta, Rejection> {
    if target.path.as_ref().is_some_and(RelPath::is_internal) {
        return Err((StatusCode::NOT_FOUND, "not found"));
    }
    files
        .stat(target.path.clone())
        .await
        .map_err(|error| match error {
            FsError::NotFound => (StatusCode::NOT_FOUND, "not found"),
            FsError::Forbidden => (StatusCode::FORBIDDEN, "the site can't read it"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "the site can't read it"),
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

/// Returns the URL path of a resource. A directory's ends with a slash.
fn href(files: &Files, path: Option<&RelPath>, meta: &Meta) -> String {
    let url = url_path(&files.access.export, path);
    if meta.is_dir() && !url.ends_with('/') {
        url + "/"
    } else {
        url
    }
}

fn members(
    files: Files,
    path: Option<RelPath>,
    entries: Option<Entries>,
) -> impl Iterator<Item = FsResult<Resource>> + Send {
    entries.into_iter().flatten().map(move |entry| {
        let entry = entry?;
        let path = within(path.as_ref(), &entry.name)?;
        Ok(resource(&files, Some(path), entry.meta))
    })
}
