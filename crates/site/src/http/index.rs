// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root of the URL space, `/`: a directory of the exports that the client may access. One mount thus shows all of
//! them.

use super::{
    access::{Access, Principal},
    audit::ChangeCounter,
    budget::RequestBudget,
    dav::collect_body,
    export::{files::Files, meta::Meta},
    locks::LockStore,
    page,
    properties::{self, Quota, Resource},
    request::{
        properties::RequestedProperties,
        target::{Depth, depth},
    },
    response::{Outcome, blocking, options_response},
};
use crate::config::Config;
use futures_util::future::join_all;
use hyper::{Method, Request, body::Incoming};
use std::{iter, time::Duration};

/// Longest time to open an export. Short, because a mount of all exports should not wait for one.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns whether a request is for the index and has a method that it supports.
pub(super) fn is_index_request<B>(request: &Request<B>) -> bool {
    match request.method() {
        &Method::GET | &Method::HEAD => request.uri().path() == "/",
        // The request is about the whole server.
        &Method::OPTIONS => ["/", "*"].contains(&request.uri().path()),
        method => method.as_str() == "PROPFIND" && request.uri().path() == "/",
    }
}

/// Responds to a request for the index.
pub(super) async fn respond(
    principal: &Principal,
    config: &Config,
    budget: &RequestBudget,
    request: Request<&mut Incoming>,
) -> Outcome {
    match request.method().as_str() {
        "PROPFIND" => propfind(principal, config, budget, request).await,
        "OPTIONS" => Ok(options_response(&["OPTIONS", "GET", "HEAD", "PROPFIND"])),
        _ => Ok(page::exports(&principal.exports(config))),
    }
}

async fn propfind(
    principal: &Principal,
    config: &Config,
    budget: &RequestBudget,
    request: Request<&mut Incoming>,
) -> Outcome {
    let depth = depth(request.headers())?;
    let body = collect_body(request.into_body()).await?;
    let requested = blocking(move || RequestedProperties::read(&body)).await?;
    if depth == Some(Depth::Infinity) {
        return Ok(properties::infinite_depth_error());
    }
    let accesses = principal.exports(config).into_iter();
    let accesses = accesses.filter_map(|name| principal.authorize(name, config, budget).ok());
    let exports = join_all(accesses.map(open_export)).await;
    let index = Resource {
        // The index reports the largest quota of all exports.
        quota: exports.iter().filter_map(|(_, space)| *space).max(),
        ..Resource::unopened("/".to_owned())
    };
    let exports = exports
        .into_iter()
        .filter(move |_| depth != Some(Depth::Zero));
    let resources = iter::once(index).chain(exports.map(|(export, _)| export));
    properties::multistatus(requested, LockStore::new(&config.state), resources.map(Ok)).await
}

/// Opens an export and returns its properties and its quota. An export that can't be opened in time is still listed.
async fn open_export(access: Access) -> (Resource, Option<Quota>) {
    let href = format!("/{}/", access.export);
    let unopened = (Resource::unopened(href.clone()), None);
    let inspect = |files| export_resource(href, files);
    let opened = Files::open(access, ChangeCounter::default(), OPEN_TIMEOUT, inspect);
    opened.await.unwrap_or(unopened)
}

fn export_resource(href: String, files: Files) -> (Resource, Option<Quota>) {
    let space = files
        .root
        .dir_fd(None)
        .ok()
        .and_then(|dir| Quota::of(&*dir));
    let export = Resource {
        meta: Meta::visible(&files.root, None).ok(),
        files: Some(files),
        ..Resource::unopened(href)
    };
    (export, space)
}
