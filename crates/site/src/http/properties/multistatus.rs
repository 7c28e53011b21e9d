// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multistatus responses to PROPFIND and PROPPATCH (RFC 4918 §13): the properties found and missing, by resource.

use super::{
    live::Resource,
    names::{ALLPROP_NAMES, is_settable, live_names},
};
use crate::http::{
    locks::{LockStore, LockTable},
    request::{
        element::Name,
        properties::{Change, RequestedProperties},
    },
    response::{
        Body, HttpResponse, XML_DECLARATION, XML_TYPE, text_response, typed_response, xml_response,
    },
};
use bytes::Bytes;
use dav_server::fs::{FsError, FsResult};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    StatusCode,
    body::Frame,
    header::{CACHE_CONTROL, HeaderValue},
};
use std::{io, sync::Arc};

/// Most resources in a batch, and bytes of text that end a batch early. A resource may have some 16 KiB of
/// properties, 256 KiB of missing ones, and 1 MiB of locks.
const BATCH: usize = 128;
const BATCH_LEN: usize = 256 << 10;

const BEGIN: &str = "<D:multistatus xmlns:D=\"DAV:\">";
const END: &str = "</D:multistatus>";

/// Returns a response that streams the requested properties of a resource and of its members. A member that can't be
/// read any more cuts the response off.
pub(in crate::http) async fn multistatus_response(
    requested: RequestedProperties,
    locks: LockStore,
    target: Resource,
    members: impl Iterator<Item = FsResult<Resource>> + Send + 'static,
) -> HttpResponse {
    let query = tokio::task::spawn_blocking(move || PropfindQuery {
        locks: locks_for(&requested, &locks),
        requested,
    });
    let Ok(query) = query.await.map(Arc::new) else {
        return text_response(StatusCode::INTERNAL_SERVER_ERROR, "the site can't read it");
    };
    let resources = Some(std::iter::once(Ok(target)).chain(members));
    let batches = stream::unfold(resources, move |resources| batch(query.clone(), resources));
    let head = stream::once(async { Ok(format!("{XML_DECLARATION}{BEGIN}")) });
    let tail = stream::once(async { Ok(format!("{END}\n")) });
    let frames = head.chain(batches).chain(tail);
    let frames =
        frames.map(|text: io::Result<String>| text.map(|text| Frame::data(Bytes::from(text))));
    let body: Body = BodyExt::boxed_unsync(StreamBody::new(frames));
    let mut response = typed_response(XML_TYPE, String::new()).map(|_| body);
    *response.status_mut() = StatusCode::MULTI_STATUS;
    let always = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(CACHE_CONTROL, always);
    response
}

/// Returns the text of the next resources, and the remaining ones.
async fn batch<I: Iterator<Item = FsResult<Resource>> + Send + 'static>(
    query: Arc<PropfindQuery>,
    resources: Option<I>,
) -> Option<(io::Result<String>, Option<I>)> {
    let mut resources = resources?;
    let looked = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        for resource in resources.by_ref().take(BATCH) {
            text += &query.response(&resource?);
            if text.len() >= BATCH_LEN {
                break;
            }
        }
        Ok::<_, FsError>((text, resources))
    });
    match looked.await {
        Ok(Ok((text, _))) if text.is_empty() => None,
        Ok(Ok((text, resources))) => Some((Ok(text), Some(resources))),
        Ok(Err(error)) => Some((Err(io::Error::other(error)), None)),
        Err(error) => Some((Err(io::Error::other(error)), None)),
    }
}

/// Reads the locks once for all resources, if they are requested. Returns an empty table if they can't be read.
fn locks_for(requested: &RequestedProperties, locks: &LockStore) -> LockTable {
    let discovery = Name::new("DAV:", "lockdiscovery");
    let wanted = match requested {
        RequestedProperties::All(_) => true,
        RequestedProperties::Names => false,
        RequestedProperties::Named(names) => names.contains(&discovery),
    };
    let read = wanted.then(|| locks.read());
    read.and_then(Result::ok).unwrap_or_default()
}

struct PropfindQuery {
    requested: RequestedProperties,
    locks: LockTable,
}

/// Elements of the properties found and missing.
#[derive(Default)]
struct PropertyResults {
    present: String,
    missing: String,
}

impl PropfindQuery {
    fn response(&self, resource: &Resource) -> String {
        let mut found = PropertyResults::default();
        match &self.requested {
            RequestedProperties::Named(names) => self.collect(resource, names, &mut found),
            RequestedProperties::All(more) => {
                let usual = ALLPROP_NAMES.map(|local| Name::new("DAV:", local));
                let live = usual
                    .iter()
                    .filter_map(|name| resource.live_property(name, &self.locks));
                found.present.extend(live);
                found
                    .present
                    .extend(resource.dead_properties().into_iter().map(|dead| dead.text));
                let mut more = more.clone();
                more.retain(|name| !usual.contains(name) && live_names().contains(name));
                self.collect(resource, &more, &mut found);
            }
            RequestedProperties::Names => {
                let mut live = live_names();
                live.retain(|name| resource.live_property(name, &self.locks).is_some());
                let dead = resource
                    .dead_properties()
                    .into_iter()
                    .map(|dead| dead.name());
                found.present.extend(
                    live.into_iter()
                        .chain(dead)
                        .map(|name| name.empty_element()),
                );
            }
        }
        found.response(&resource.href)
    }

    fn collect(&self, resource: &Resource, names: &[Name], found: &mut PropertyResults) {
        let dead = if names.iter().any(is_settable) {
            resource.dead_properties()
        } else {
            Vec::new()
        };
        for name in names {
            let set = || dead.iter().find(|dead| dead.is_named(name));
            let present = resource.live_property(name, &self.locks);
            match present.or_else(|| set().map(|dead| dead.text.clone())) {
                Some(text) => found.present += &text,
                None => found.missing += &name.empty_element(),
            }
        }
    }
}

impl PropertyResults {
    fn response(&self, href: &str) -> String {
        let mut parts = String::new();
        if !self.present.is_empty() || self.missing.is_empty() {
            parts += &propstat(&self.present, StatusCode::OK);
        }
        if !self.missing.is_empty() {
            parts += &propstat(&self.missing, StatusCode::NOT_FOUND);
        }
        response(href, &parts)
    }
}

/// Returns a `response` element. A URL's path is escaped, and contains no XML characters.
fn response(href: &str, parts: &str) -> String {
    format!("<D:response><D:href>{href}</D:href>{parts}</D:response>")
}

fn propstat(properties: &str, status: StatusCode) -> String {
    format!(
        "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
    )
}

/// Returns the response with the status of each change.
pub(super) fn of_changes(href: &str, changes: &[Change], statuses: &[StatusCode]) -> HttpResponse {
    let all = changes.iter().zip(statuses);
    let parts: String = all
        .map(|(change, status)| propstat(&change.name.empty_element(), *status))
        .collect();
    let response = response(href, &parts);
    xml_response(StatusCode::MULTI_STATUS, &format!("{BEGIN}{response}{END}"))
}
