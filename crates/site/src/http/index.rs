// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is above all exports, `/`: a directory that has those in it that who asks may see. So all of them are in one mount.

use super::{
    access::{Access, Visitor},
    answer::{self, Answer, said},
    audit::Changes,
    dav,
    export::{files::Files, meta::Meta},
    locks::Locks,
    properties::{self, Quota, Resource},
    request::{properties::Asked, target::spell_depth},
    room::Room,
};
use crate::config::Config;
use hyper::{Method, Request, StatusCode, body::Incoming};

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
    request: Request<Incoming>,
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
    mut request: Request<Incoming>,
) -> Answer {
    let asked = match spell_depth(request.headers_mut(), true) {
        Ok(()) => dav::with_whole_body(request).await,
        Err(wrong) => Err(wrong),
    };
    let read = asked.and_then(|request| Ok((Asked::read(request.body())?, request)));
    let (asked, request) = match read {
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
    let opened =
        tokio::task::spawn_blocking(move || accesses.into_iter().map(export).collect::<Vec<_>>());
    let Ok(exports) = opened.await else {
        return said(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site can't look at its exports",
        );
    };
    let itself = Resource {
        href: "/".to_owned(),
        files: None,
        path: None,
        meta: None,
        // Where there is most to be had.
        quota: exports.iter().filter_map(space).max(),
    };
    let is_alone = request
        .headers()
        .get("depth")
        .is_some_and(|depth| depth == "0");
    let members = exports.into_iter().filter(move |_| !is_alone);
    properties::answer(asked, &Locks::of(&config.state), itself, members)
}

fn export(access: Access) -> Resource {
    let href = format!("/{}/", access.export);
    let files = Files::of(access, Changes::default()).ok();
    let meta = files
        .as_ref()
        .and_then(|files| Meta::shown(&files.root, None).ok());
    Resource {
        href,
        files,
        path: None,
        meta,
        quota: None,
    }
}

fn space(export: &Resource) -> Option<Quota> {
    let files = export.files.as_ref()?;
    Quota::of(&*files.root.dir(None).ok()?)
}
