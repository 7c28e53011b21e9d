// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root of the URL space, `/`: a directory of the exports that the client may access. One mount thus shows all of
//! them.

use super::{
    access::{Access, Principal},
    audit::ChangeCounter,
    budget::RequestBudget,
    export::files::Files,
    locks::LockStore,
    page,
    properties::{self, Quota, Resource},
    request::target::{Depth, depth},
    response::{Outcome, options_response},
};
use crate::config::Config;
use futures_util::future::join_all;
use hyper::{Request, body::Incoming};
use std::{iter, sync::Arc, time::Duration};

/// Longest time to open an export. Short, because a mount of all exports should not wait for one.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns whether a request is for the index and has a method that it supports.
pub(super) fn is_index_request<B>(request: &Request<B>) -> bool {
    match (request.method().as_str(), request.uri().path()) {
        ("GET" | "HEAD" | "OPTIONS" | "PROPFIND", "/") => true,
        // The request is about the whole server.
        (method, path) => (method, path) == ("OPTIONS", "*"),
    }
}

/// Responds to a request for the index.
pub(super) async fn respond(
    principal: &Principal,
    config: &Arc<Config>,
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
    config: &Arc<Config>,
    budget: &RequestBudget,
    request: Request<&mut Incoming>,
) -> Outcome {
    let depth = depth(request.headers())?;
    let requested = properties::read_request(request.into_body()).await?;
    if depth == Some(Depth::Infinity) {
        return Ok(properties::infinite_depth_error());
    }
    let accesses = principal.exports(config).into_iter();
    let accesses = accesses.filter_map(|name| principal.authorize(name, config, budget).ok());
    let mut exports = join_all(accesses.map(open_export)).await;
    let index = Resource {
        href: "/".to_owned(),
        // The index reports the largest quota of all exports.
        quota: exports.iter().filter_map(|export| export.quota).max(),
        ..Resource::default()
    };
    if depth == Some(Depth::Zero) {
        exports.clear();
    }
    let resources = iter::once(index).chain(exports);
    let locks = LockStore::new(&config.state, 0);
    properties::multistatus(requested, locks, resources.map(Ok)).await
}

/// Opens an export and returns its properties. An export that can't be opened in time is still listed.
async fn open_export(access: Access) -> Resource {
    let unopened = Resource {
        href: format!("/{}/", access.export),
        ..Resource::default()
    };
    let inspect = |files: Files| {
        let top = files.root.dir_fd(None).ok()?;
        let export = Resource::new(&files, None, files.visible(None).ok()?);
        let quota = Quota::of(&*top);
        Some(Resource { quota, ..export })
    };
    let opened = Files::open(access, ChangeCounter::default(), OPEN_TIMEOUT, inspect);
    opened.await.flatten().unwrap_or(unopened)
}
