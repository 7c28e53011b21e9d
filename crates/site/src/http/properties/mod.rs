// SPDX-License-Identifier: MIT OR Apache-2.0
//! PROPFIND and PROPPATCH (RFC 4918 §9.1 and §9.2).

mod dead;
mod live;

pub(super) use live::{Quota, Resource};

use super::{
    dav_request::{DavRequest, NO_LOCKS},
    listing::Listing,
    locks::{LockStore, LockTable},
    request::{
        collect_body,
        properties::{Change, RequestedProperties, parse_changes},
        target::Depth,
        xml::{DAV, Name},
    },
    response::{
        HttpResponse, Outcome, blocking, multistatus_response, response_element, status_element,
        xml_response,
    },
};
use hyper::body::Incoming;
use live::{ALLPROP_NAMES, is_settable, live_names};
use std::iter;

/// Responds to a PROPFIND.
pub(super) async fn propfind(request: DavRequest, body: &mut Incoming) -> Outcome {
    let requested = read_request(body).await?;
    let checked = blocking(move || {
        request.check_kind()?;
        request.check()?;
        let meta = request.meta()?;
        Ok((request, meta))
    });
    let (request, meta) = checked.await?;
    let (files, path) = (request.files, request.target.path);
    let listing = match request.target.depth {
        Some(Depth::Infinity) => return Ok(infinite_depth_error()),
        // Without Depth, the default of §9.1, infinity, has no bound.
        None | Some(Depth::One) if meta.is_dir() => {
            Some(Listing::read(&files, path.as_ref()).await?)
        }
        _ => None,
    };
    let (locks, itself) = (files.locks.clone(), Resource::new(&files, path, meta));
    let entries = listing.into_iter().flat_map(Listing::into_entries);
    let members = entries.map(move |entry| {
        let (path, meta) = entry?;
        Ok(Resource::new(&files, Some(path), meta))
    });
    multistatus(requested, locks, iter::once(Ok(itself)).chain(members)).await
}

/// Reads the body of a PROPFIND.
pub(super) async fn read_request(body: &mut Incoming) -> Outcome<RequestedProperties> {
    let body = collect_body(body).await?;
    blocking(move || RequestedProperties::read(&body)).await
}

/// Returns the response to a PROPFIND for a whole tree, whose size is unbounded.
pub(super) fn infinite_depth_error() -> HttpResponse {
    let error = "<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>";
    xml_response(403, error)
}

/// Responds to a PROPPATCH.
pub(super) fn proppatch(request: &DavRequest, body: &[u8]) -> Outcome {
    request.check()?;
    let (changes, meta) = (parse_changes(body)?, request.meta()?);
    let statuses = change(request, &changes);
    let parts = changes.iter().zip(statuses);
    let parts = parts.map(|(change, status)| propstat(&change.name.empty_element(), status));
    let href = request.files.href(request.path(), &meta);
    let element = response_element(&href, &parts.collect::<String>());
    Ok(multistatus_response(iter::once(Ok(element))))
}

/// Makes all changes or none. Returns the status of each.
fn change(request: &DavRequest, changes: &[Change]) -> Vec<u16> {
    let is_settable = |change: &Change| is_settable(&change.name);
    if !changes.iter().all(is_settable) {
        let status = |change| if is_settable(change) { 424 } else { 403 };
        return changes.iter().map(status).collect();
    }
    let changed = request.step(|| dead::change(&request.files, request.path(), changes));
    let status = changed.map_or_else(|rejection| rejection.0, |()| 200);
    vec![status; changes.len()]
}

/// Returns a response that streams the requested properties of resources. One that can't be read any more cuts the
/// response off.
pub(super) async fn multistatus(
    requested: RequestedProperties,
    locks: LockStore,
    resources: impl Iterator<Item = Outcome<Resource>> + Send + 'static,
) -> Outcome {
    let discovery = Name::new(DAV, "lockdiscovery");
    let wants_locks = match &requested {
        RequestedProperties::All(_) => true,
        RequestedProperties::Names => false,
        RequestedProperties::Named(names) => names.contains(&discovery),
    };
    let locks = if wants_locks {
        blocking(move || locks.read().map_err(|_| NO_LOCKS)).await?
    } else {
        LockTable::default()
    };
    let query = Query { requested, locks };
    Ok(multistatus_response(
        resources.map(move |resource| Ok(query.response(&resource?))),
    ))
}

/// Properties that are looked up in resources, with the locks of all of them.
struct Query {
    requested: RequestedProperties,
    locks: LockTable,
}

impl Query {
    /// Returns the `response` element of a resource.
    fn response(&self, resource: &Resource) -> String {
        let (present, missing) = match &self.requested {
            RequestedProperties::Named(names) => self.named(resource, names),
            RequestedProperties::All(more) => self.all(resource, more),
            RequestedProperties::Names => (self.names(resource), String::new()),
        };
        let mut parts = String::new();
        if !present.is_empty() || missing.is_empty() {
            parts += &propstat(&present, 200);
        }
        if !missing.is_empty() {
            parts += &propstat(&missing, 404);
        }
        response_element(&resource.href, &parts)
    }

    /// Returns the elements of named properties that a resource has, and of those that it does not have.
    fn named(&self, resource: &Resource, names: &[Name]) -> (String, String) {
        let dead = if names.iter().any(is_settable) {
            resource.dead_properties()
        } else {
            Vec::new()
        };
        let (mut present, mut missing) = (String::new(), String::new());
        for name in names {
            let set = || dead.iter().find(|dead| dead.name == *name);
            let live = resource.live_property(name, &self.locks);
            match live.or_else(|| Some(set()?.text.clone())) {
                Some(text) => present += &text,
                None => missing += &name.empty_element(),
            }
        }
        (present, missing)
    }

    /// Returns the usual properties of a resource and those that clients have set, with `more` live ones. The other
    /// elements are those of `more` that the resource does not have.
    fn all(&self, resource: &Resource, more: &[Name]) -> (String, String) {
        let usual = ALLPROP_NAMES.map(|local| Name::new(DAV, local));
        let mut more = more.to_vec();
        more.retain(|name| !usual.contains(name) && live_names().contains(name));
        let (more, missing) = self.named(resource, &more);
        let live = usual
            .iter()
            .filter_map(|name| resource.live_property(name, &self.locks));
        let dead = resource.dead_properties().into_iter().map(|dead| dead.text);
        (live.chain(dead).chain([more]).collect(), missing)
    }

    fn names(&self, resource: &Resource) -> String {
        let mut names = live_names();
        names.retain(|name| resource.live_property(name, &self.locks).is_some());
        names.extend(resource.dead_properties().into_iter().map(|dead| dead.name));
        names.iter().map(Name::empty_element).collect()
    }
}

fn propstat(properties: &str, status: u16) -> String {
    let status = status_element(status);
    format!("<D:propstat><D:prop>{properties}</D:prop>{status}</D:propstat>")
}
