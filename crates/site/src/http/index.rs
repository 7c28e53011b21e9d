// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is above all exports, `/`: a directory that has those in it that who asks may see. So all of them are in one mount.

use super::{
    access::{Access, Visitor},
    answer::{self, Answer, said},
    audit::Changes,
    dav,
    export::{files::Files, meta::Meta},
    locks::Locks,
    opening::open,
    properties::{self, Quota, Resource},
    request::{
        body::Received,
        properties::{RequestedProperties, on_a_thread},
        target::{Rejection, spell_depth},
    },
    room::Room,
};
use crate::config::Config;
use futures_util::future::join_all;
use hyper::{Method, Request};
use std::time::Duration;

/// How long an export may take to be opened: a mount of all of them is not to wait for one.
const OPEN_TIME: Duration = Duration::from_secs(5);

/// Whether a request is for it, and one that it has an answer to.
pub(super) fn is_asked<B>(request: &Request<B>) -> bool {
    match request.method() {
        &Method::GET | &Method::HEAD => request.uri().path() == "/",
        // Of the whole server.
        &Method::OPTIONS => ["/", "*"].contains(&request.uri().path()),
        method => method.as_str() == "PROPFIND" && request.uri().path() == "/",
    }
}

/// Answers it.
pub(super) async fn show(
    visitor: &Visitor,
    config: &Config,
    room: &Room,
    request: Request<Received>,
) -> Answer {
    match request.method().as_str() {
        "PROPFIND" => find(visitor, config, room, request).await,
        "OPTIONS" => answer::options_of_index(),
        _ => answer::index(&visitor.exports(config)),
    }
}

async fn find(
    visitor: &Visitor,
    config: &Config,
    room: &Room,
    mut request: Request<Received>,
) -> Answer {
    let read = async {
        spell_depth(request.headers_mut(), true)?;
        let request = dav::with_whole_body(request).await?;
        let body = request.body().clone();
        Ok::<_, Rejection>((on_a_thread(body, RequestedProperties::read).await?, request))
    };
    let (asked, request) = match read.await {
        Ok(read) => read,
        Err((status, why)) => return said(status, why),
    };
    if properties::is_infinite(&request) {
        return properties::infinite();
    }
    let names = visitor.exports(config).into_iter();
    let accesses: Vec<_> = names
        .filter_map(|name| visitor.enter(name, config, room).ok())
        .collect();
    let exports = join_all(accesses.into_iter().map(opened)).await;
    let itself = Resource {
        // Where there is most to be had.
        quota: exports.iter().filter_map(|(_, space)| *space).max(),
        ..Resource::unopened("/".to_owned())
    };
    let is_alone = request
        .headers()
        .get("depth")
        .is_some_and(|depth| depth == "0");
    let members = exports.into_iter().map(|(export, _)| export);
    let members = members.filter(move |_| !is_alone);
    properties::answer(asked, Locks::of(&config.state), itself, members).await
}

/// An export, and the space there. One that can't be opened in time is shown all the same.
async fn opened(access: Access) -> (Resource, Option<Quota>) {
    let href = format!("/{}/", access.export);
    let unopened = (Resource::unopened(href.clone()), None);
    let look = |files| export(href, files);
    let opened = open(access, Changes::default(), OPEN_TIME, look);
    opened.await.unwrap_or(unopened)
}

fn export(href: String, files: Files) -> (Resource, Option<Quota>) {
    let space = files
        .root
        .dir_fd(None)
        .ok()
        .and_then(|dir| Quota::of(&*dir));
    let export = Resource {
        meta: Meta::shown(&files.root, None).ok(),
        files: Some(files),
        ..Resource::unopened(href)
    };
    (export, space)
}
