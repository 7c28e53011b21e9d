// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root of the URL space, `/`: a directory of the exports that the client may access. One mount thus shows all of
//! them.

use super::{
    access::{Access, Principal},
    audit::ChangeCounter,
    budget::RequestBudget,
    dav,
    export::{files::Files, meta::Meta},
    locks::LockStore,
    opening::open,
    properties::{self, Quota, Resource},
    request::{
        body::RequestBody,
        properties::{RequestedProperties, parse_blocking},
        target::{Rejection, normalize_depth},
    },
    response::{self, HttpResponse, text_response},
};
use crate::config::Config;
use futures_util::future::join_all;
use hyper::{Method, Request};
use std::time::Duration;

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
    request: Request<RequestBody>,
) -> HttpResponse {
    match request.method().as_str() {
        "PROPFIND" => propfind(principal, config, budget, request).await,
        "OPTIONS" => response::index_options(),
        _ => response::index_page(&principal.exports(config)),
    }
}

async fn propfind(
    principal: &Principal,
    config: &Config,
    budget: &RequestBudget,
    mut request: Request<RequestBody>,
) -> HttpResponse {
    let read = async {
        normalize_depth(request.headers_mut(), true)?;
        let request = dav::collect_body(request).await?;
        let body = request.body().clone();
        Ok::<_, Rejection>((
            parse_blocking(body, RequestedProperties::read).await?,
            request,
        ))
    };
    let (requested, request) = match read.await {
        Ok(read) => read,
        Err((status, why)) => return text_response(status, why),
    };
    if properties::has_infinite_depth(&request) {
        return properties::infinite_depth_error();
    }
    let names = principal.exports(config).into_iter();
    let accesses: Vec<_> = names
        .filter_map(|name| principal.authorize(name, config, budget).ok())
        .collect();
    let exports = join_all(accesses.into_iter().map(open_export)).await;
    let index = Resource {
        // The index reports the largest quota of all exports.
        quota: exports.iter().filter_map(|(_, space)| *space).max(),
        ..Resource::unopened("/".to_owned())
    };
    let is_alone = request
        .headers()
        .get("depth")
        .is_some_and(|depth| depth == "0");
    let members = exports.into_iter().map(|(export, _)| export);
    let members = members.filter(move |_| !is_alone).map(Ok);
    properties::multistatus_response(requested, LockStore::new(&config.state), index, members).await
}

/// Opens an export and returns its properties and its quota. An export that can't be opened in time is still listed.
async fn open_export(access: Access) -> (Resource, Option<Quota>) {
    let href = format!("/{}/", access.export);
    let unopened = (Resource::unopened(href.clone()), None);
    let inspect = |files| export_resource(href, files);
    let opened = open(access, ChangeCounter::default(), OPEN_TIMEOUT, inspect);
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
