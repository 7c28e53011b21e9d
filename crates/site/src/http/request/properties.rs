// SPDX-License-Identifier: MIT OR Apache-2.0
//! What bodies of PROPFIND, PROPPATCH and LOCK ask for (RFC 4918 §14).

use super::{
    element::{DAV, Document, Element, Name},
    target::Wrong,
};
use hyper::StatusCode;

/// Bytes of a lock's owner, at most.
const OWNER_LEN_MAX: usize = 1024;

/// Which properties a PROPFIND is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The usual ones, and these.
    All(Vec<Name>),
    /// What there is, without values.
    Names,
    These(Vec<Name>),
}

fn senseless() -> Wrong {
    (
        StatusCode::BAD_REQUEST,
        "the body is not what the method wants",
    )
}

impl Asked {
    /// No body is one for all.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Wrong> {
        if body.is_empty() {
            return Ok(Self::All(Vec::new()));
        }
        let document = Document::read(body).ok_or_else(senseless)?;
        let top = document
            .top(&Name::new(DAV, "propfind"))
            .ok_or_else(senseless)?;
        let names = |local| {
            let children = top.named(local);
            let children = children.iter().flat_map(Element::children);
            children.map(|child| child.name()).collect()
        };
        if !top.named("prop").is_empty() {
            return Ok(Self::These(names("prop")));
        }
        if !top.named("propname").is_empty() {
            return Ok(Self::Names);
        }
        match top.named("allprop").is_empty() {
            false => Ok(Self::All(names("include"))),
            true => Err(senseless()),
        }
    }
}

/// A property to be set to this, the whole of its element; none: to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) name: Name,
    pub(crate) text: Option<String>,
}

/// Reads a PROPPATCH, in its order.
pub(crate) fn changes(body: &[u8]) -> Result<Vec<Change>, Wrong> {
    let document = Document::read(body).ok_or_else(senseless)?;
    let top = document
        .top(&Name::new(DAV, "propertyupdate"))
        .ok_or_else(senseless)?;
    let mut changes = Vec::new();
    for action in top.children() {
        let action_name = action.name();
        let sets = match action_name.in_dav() {
            Some("set") => true,
            Some("remove") => false,
            _ => continue,
        };
        for property in action.named("prop").iter().flat_map(Element::children) {
            let text = match sets {
                true => Some(property.text().ok_or_else(senseless)?),
                false => None,
            };
            let name = property.name();
            changes.push(Change { name, text });
        }
    }
    match changes.is_empty() {
        true => Err(senseless()),
        false => Ok(changes),
    }
}

/// A lock that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockInfo {
    pub(crate) shared: bool,
    /// Who holds it, as the client says it: an element, or nothing.
    pub(crate) owner: String,
}

impl LockInfo {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Wrong> {
        let document = Document::read(body).ok_or_else(senseless)?;
        let top = document
            .top(&Name::new(DAV, "lockinfo"))
            .ok_or_else(senseless)?;
        let has = |local, value| {
            let found = top.named(local);
            found.iter().any(|element| !element.named(value).is_empty())
        };
        let (exclusive, shared) = (has("lockscope", "exclusive"), has("lockscope", "shared"));
        if exclusive == shared || !has("locktype", "write") {
            return Err(senseless());
        }
        let owner = top.named("owner").first().and_then(Element::text);
        let owner = owner.unwrap_or_default();
        match owner.len() > OWNER_LEN_MAX {
            true => Err((
                StatusCode::PAYLOAD_TOO_LARGE,
                "the owner is longer than 1,024 bytes",
            )),
            false => Ok(Self { shared, owner }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_asked_for() {
        let find = |inner: &str| {
            let body = format!("<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'>{inner}</D:propfind>");
            Asked::read(body.as_bytes()).ok()
        };
        let (etag, foreign) = (Name::new("DAV:", "getetag"), Name::new("urn:x", "a"));
        let both = vec![etag.clone(), foreign];
        assert_eq!(
            find("<D:prop><D:getetag/><x:a/></D:prop>"),
            Some(Asked::These(both))
        );
        assert_eq!(find("<D:propname/>"), Some(Asked::Names));
        let more = "<D:allprop/><D:include><D:getetag/></D:include>";
        assert_eq!(find(more), Some(Asked::All(vec![etag])));
        assert_eq!(Asked::read(b""), Ok(Asked::All(Vec::new())));
        for bad in ["", "<x:prop/>", "<D:x/>"] {
            assert_eq!(find(bad), None, "{bad}");
        }
        assert!(Asked::read(b"<propfind><prop/></propfind>").is_err());
    }

    #[test]
    fn reads_changes_in_their_order() {
        let body = "<p:propertyupdate xmlns:p='DAV:'><p:remove><p:prop><a/></p:prop></p:remove>\
                    <p:set><p:prop><a>1</a><b xmlns='urn:x'/></p:prop></p:set></p:propertyupdate>";
        let read = changes(body.as_bytes()).unwrap();
        let names: Vec<_> = read.iter().map(|change| &*change.name.local).collect();
        assert_eq!(names, ["a", "a", "b"]);
        assert_eq!(read[0].text, None);
        assert!(read[1].text.as_ref().unwrap().ends_with(">1</a>"));
        assert!(changes(b"<propertyupdate xmlns='DAV:'/>").is_err());
    }

    #[test]
    fn reads_locks() {
        let lock = |scope: &str, owner: &str| {
            LockInfo::read(
                format!(
                    "<lockinfo xmlns='DAV:'><lockscope>{scope}</lockscope><locktype><write/></locktype>{owner}</lockinfo>"
                )
                .as_bytes(),
            )
        };
        let read = lock("<shared/>", "<owner><href>me</href></owner>").unwrap();
        assert!(
            read.shared && read.owner.contains("<href>me</href>"),
            "{read:?}"
        );
        assert!(!lock("<exclusive/>", "").unwrap().shared);
        for bad in ["", "<shared/><exclusive/>", "<x/>"] {
            assert!(lock(bad, "").is_err(), "{bad}");
        }
        let long = format!("<owner>{}</owner>", "x".repeat(OWNER_LEN_MAX));
        assert_eq!(
            lock("<shared/>", &long).unwrap_err().0,
            StatusCode::PAYLOAD_TOO_LARGE
        );
    }
}
