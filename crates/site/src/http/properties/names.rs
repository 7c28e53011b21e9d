// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the live properties (RFC 4918 §15, RFC 4331), which clients can't set.

use crate::http::request::element::Name;

/// Live properties that a PROPFIND for all returns (RFC 4331 §2: no quota).
pub(super) const ALLPROP_NAMES: [&str; 8] = [
    "resourcetype",
    "creationdate",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "supportedlock",
];

const QUOTA: [&str; 2] = ["quota-available-bytes", "quota-used-bytes"];

pub(super) const APACHE_NAMESPACE: &str = "http://apache.org/dav/props/";

/// Returns the name of Apache's property for executable files.
pub(super) fn executable() -> Name {
    Name::new(APACHE_NAMESPACE, "executable")
}

/// Returns the names of all live properties.
pub(super) fn live_names() -> Vec<Name> {
    let dav = ALLPROP_NAMES.iter().chain(&QUOTA);
    let mut names: Vec<_> = dav.map(|local| Name::new("DAV:", local)).collect();
    names.push(executable());
    names
}

/// Returns whether clients may set a property. Those in the DAV namespace are the site's, except two that are meant
/// for people.
pub(super) fn is_settable(name: &Name) -> bool {
    match name.in_dav() {
        Some(local) => ["displayname", "getcontentlanguage"].contains(&local),
        None => *name != executable(),
    }
}
