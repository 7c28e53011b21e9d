// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the properties that the site knows by itself (RFC 4918 §15, RFC 4331), which clients can't set.

use crate::http::request::element::Name;

/// What a PROPFIND for all gets (RFC 4331 §2: no quota).
pub(super) const USUAL: [&str; 7] = [
    "resourcetype",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "supportedlock",
];

const QUOTA: [&str; 2] = ["quota-available-bytes", "quota-used-bytes"];

pub(super) const APACHE: &str = "http://apache.org/dav/props/";

/// Whether a file may be run, as Apache calls it.
pub(super) fn executable() -> Name {
    Name::new(APACHE, "executable")
}

/// All that may be there.
pub(super) fn names() -> Vec<Name> {
    let dav = USUAL.iter().chain(&QUOTA);
    let mut names: Vec<_> = dav.map(|local| Name::new("DAV:", local)).collect();
    names.push(executable());
    names
}

/// Whether clients may set it: what WebDAV itself defines is the site's, but for what people read.
pub(super) fn is_free(name: &Name) -> bool {
    match name.in_dav() {
        Some(local) => ["displayname", "getcontentlanguage"].contains(&local),
        None => *name != executable(),
    }
}
