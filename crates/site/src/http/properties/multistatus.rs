// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answers to PROPFIND and PROPPATCH (RFC 4918 §13): of each resource which properties there are, and which are not.

use super::{
    live::Resource,
    names::{USUAL, is_free, names},
};
use crate::http::{
    answer::{Answer, Body, XML, XML_HEAD, of_kind, said, xml},
    locks::{Locks, Table},
    request::{
        element::Name,
        properties::{Change, RequestedProperties},
    },
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    StatusCode,
    body::Frame,
    header::{CACHE_CONTROL, HeaderValue},
};
use std::{io, sync::Arc};

/// Resources that are looked at at once, and bytes of the answer that are enough meanwhile: each may have some 16 KiB of
/// properties, 256 KiB that it has not, and 1 MiB of locks.
const BATCH: usize = 128;
const BATCH_LEN: usize = 256 << 10;

const BEGIN: &str = "<D:multistatus xmlns:D=\"DAV:\">";
const END: &str = "</D:multistatus>";

/// What was asked for of a resource and those in it, bit by bit.
pub(in crate::http) async fn answer(
    asked: RequestedProperties,
    locks: Locks,
    itself: Resource,
    members: impl Iterator<Item = Resource> + Send + 'static,
) -> Answer {
    let question = tokio::task::spawn_blocking(move || Question {
        locks: locks_for(&asked, &locks),
        asked,
    });
    let Ok(question) = question.await.map(Arc::new) else {
        return said(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the site can't look at it",
        );
    };
    let resources = Some(std::iter::once(itself).chain(members));
    let batches = stream::unfold(resources, move |resources| {
        batch(question.clone(), resources)
    });
    let head = stream::once(async { Ok(format!("{XML_HEAD}{BEGIN}")) });
    let tail = stream::once(async { Ok(format!("{END}\n")) });
    let frames = head.chain(batches).chain(tail);
    let frames =
        frames.map(|text: io::Result<String>| text.map(|text| Frame::data(Bytes::from(text))));
    let body: Body = BodyExt::boxed_unsync(StreamBody::new(frames));
    let mut answer = of_kind(XML, String::new()).map(|_| body);
    *answer.status_mut() = StatusCode::MULTI_STATUS;
    let always = HeaderValue::from_static("no-cache");
    answer.headers_mut().insert(CACHE_CONTROL, always);
    answer
}

/// The text of the next resources, and the rest.
async fn batch<I: Iterator<Item = Resource> + Send + 'static>(
    question: Arc<Question>,
    resources: Option<I>,
) -> Option<(io::Result<String>, Option<I>)> {
    let mut resources = resources?;
    let looked = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        for resource in resources.by_ref().take(BATCH) {
            text += &question.response(&resource);
            if text.len() >= BATCH_LEN {
                break;
            }
        }
        (text, resources)
    });
    match looked.await {
        Ok((text, _)) if text.is_empty() => None,
        Ok((text, resources)) => Some((Ok(text), Some(resources))),
        Err(error) => Some((Err(io::Error::other(error)), None)),
    }
}

/// They are read once for all resources, if they are asked for; none if they can't be.
fn locks_for(asked: &RequestedProperties, locks: &Locks) -> Table {
    let discovery = Name::new("DAV:", "lockdiscovery");
    let wanted = match asked {
        RequestedProperties::All(_) => true,
        RequestedProperties::Names => false,
        RequestedProperties::These(names) => names.contains(&discovery),
    };
    let read = wanted.then(|| locks.read());
    read.and_then(Result::ok).unwrap_or_default()
}

struct Question {
    asked: RequestedProperties,
    locks: Table,
}

/// Elements of properties, by what became of them.
#[derive(Default)]
struct Found {
    there: String,
    missing: String,
}

impl Question {
    fn response(&self, resource: &Resource) -> String {
        let mut found = Found::default();
        match &self.asked {
            RequestedProperties::These(names) => self.look_for(resource, names, &mut found),
            RequestedProperties::All(more) => {
                let usual = USUAL.map(|local| Name::new("DAV:", local));
                let live = usual
                    .iter()
                    .filter_map(|name| resource.live(name, &self.locks));
                found.there.extend(live);
                found
                    .there
                    .extend(resource.dead().into_iter().map(|dead| dead.text));
                let mut more = more.clone();
                more.retain(|name| !usual.contains(name) && names().contains(name));
                self.look_for(resource, &more, &mut found);
            }
            RequestedProperties::Names => {
                let mut live = names();
                live.retain(|name| resource.live(name, &self.locks).is_some());
                let dead = resource.dead().into_iter().map(|dead| dead.name());
                found.there.extend(
                    live.into_iter()
                        .chain(dead)
                        .map(|name| name.empty_element()),
                );
            }
        }
        found.response(&resource.href)
    }

    fn look_for(&self, resource: &Resource, names: &[Name], found: &mut Found) {
        let dead = match names.iter().any(is_free) {
            true => resource.dead(),
            false => Vec::new(),
        };
        for name in names {
            let set = || dead.iter().find(|dead| dead.is_named(name));
            let there = resource.live(name, &self.locks);
            match there.or_else(|| set().map(|dead| dead.text.clone())) {
                Some(text) => found.there += &text,
                None => found.missing += &name.empty_element(),
            }
        }
    }
}

impl Found {
    fn response(&self, href: &str) -> String {
        let mut parts = String::new();
        if !self.there.is_empty() || self.missing.is_empty() {
            parts += &propstat(&self.there, StatusCode::OK);
        }
        if !self.missing.is_empty() {
            parts += &propstat(&self.missing, StatusCode::NOT_FOUND);
        }
        response(href, &parts)
    }
}

/// A URL's path is escaped, and has nothing in it that XML means.
fn response(href: &str, parts: &str) -> String {
    format!("<D:response><D:href>{href}</D:href>{parts}</D:response>")
}

fn propstat(properties: &str, status: StatusCode) -> String {
    format!(
        "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
    )
}

/// What came of each change.
pub(super) fn of_changes(href: &str, changes: &[Change], statuses: &[StatusCode]) -> Answer {
    let all = changes.iter().zip(statuses);
    let parts: String = all
        .map(|(change, status)| propstat(&change.name.empty_element(), *status))
        .collect();
    let response = response(href, &parts);
    xml(StatusCode::MULTI_STATUS, &format!("{BEGIN}{response}{END}"))
}
