// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies of PROPFIND, PROPPATCH and LOCK (RFC 4918 §14).

use super::xml::{DAV, Name, read_elements};
use crate::http::response::{Outcome, Rejection};

/// Longest owner of a lock, in bytes.
const OWNER_LEN_MAX: usize = 1024;

/// Size of all property names in a request at most, in bytes, with their namespaces and new values. The response
/// repeats the names for each file.
const PROPERTIES_LEN_MAX: usize = 256 << 10;

const INVALID: Rejection = Rejection(400, "the body is not valid for the method");

/// Properties that a PROPFIND requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedProperties {
    /// The default ones, and these.
    All(Vec<Name>),
    /// Names without values.
    Names,
    Named(Vec<Name>),
}

impl RequestedProperties {
    /// Parses a PROPFIND. An empty body requests all properties.
    pub(crate) fn read(body: &[u8]) -> Outcome<Self> {
        if body.is_empty() {
            return Ok(Self::All(Vec::new()));
        }
        let (mut kinds, mut named, mut included) = (Vec::new(), Vec::new(), Vec::new());
        read_dav(body, "propfind", usize::MAX, |names, _| match names {
            [_, kind] => kinds.push(kind.in_dav().to_owned()),
            [_, kind, name] if kind.in_dav() == "prop" => named.push(name.clone()),
            [_, kind, name] if kind.in_dav() == "include" => included.push(name.clone()),
            _ => {}
        })?;
        let has = |kind: &str| kinds.iter().any(|one| one == kind);
        match () {
            () if has("prop") => Ok(Self::Named(without_duplicates(named)?)),
            () if has("propname") => Ok(Self::Names),
            () if has("allprop") => Ok(Self::All(without_duplicates(included)?)),
            () => Err(INVALID),
        }
    }
}

fn without_duplicates(names: Vec<Name>) -> Outcome<Vec<Name>> {
    let mut different = Vec::new();
    for name in names {
        if !different.contains(&name) {
            different.push(name);
        }
    }
    let elements = different.iter().map(Name::empty_element);
    check_len(elements.map(|element| element.len()).sum())?;
    Ok(different)
}

fn check_len(len: usize) -> Outcome<()> {
    const LONG: &str = "the properties and their namespaces are longer than 256 KiB";
    if len > PROPERTIES_LEN_MAX {
        Err(Rejection(413, LONG))
    } else {
        Ok(())
    }
}

/// Reads a body whose root element has this name of WebDAV.
fn read_dav(
    body: &[u8],
    root: &str,
    copied: usize,
    take: impl FnMut(&[Name], &str),
) -> Outcome<()> {
    read_elements(body, &Name::new(DAV, root), copied, take).map_err(|why| Rejection(400, why))
}

/// Change of a property: its new element, or `None` to remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) name: Name,
    pub(crate) text: Option<String>,
}

/// Parses a PROPPATCH into changes, in order.
pub(crate) fn parse_changes(body: &[u8]) -> Outcome<Vec<Change>> {
    let mut changes = Vec::new();
    read_dav(body, "propertyupdate", 4, |names, text| {
        let [_, action, prop, name] = names else {
            return;
        };
        let sets = action.in_dav() == "set";
        if prop.in_dav() == "prop" && (sets || action.in_dav() == "remove") {
            let (name, text) = (name.clone(), sets.then(|| text.to_owned()));
            changes.push(Change { name, text });
        }
    })?;
    let texts = changes.iter().map(|Change { name, text }| {
        let text = text.as_ref().map_or(0, String::len);
        name.empty_element().len() + text
    });
    check_len(texts.sum())?;
    if changes.is_empty() {
        Err(INVALID)
    } else {
        Ok(changes)
    }
}

/// Lock that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockInfo {
    pub(crate) shared: bool,
    /// Owner that the client sends: an XML element, or empty.
    pub(crate) owner: String,
}

impl LockInfo {
    pub(crate) fn read(body: &[u8]) -> Outcome<Self> {
        let (mut owner, mut found) = (None, Vec::new());
        read_dav(body, "lockinfo", 2, |names, text| match names {
            [_, name] if name.in_dav() == "owner" => {
                owner.get_or_insert_with(|| text.to_owned());
            }
            [_, of, value] => found.push(format!("{} {}", of.in_dav(), value.in_dav())),
            _ => {}
        })?;
        let has = |pair: &str| found.iter().any(|one| one == pair);
        let (exclusive, shared) = (has("lockscope exclusive"), has("lockscope shared"));
        let owner = owner.unwrap_or_default();
        if exclusive == shared || !has("locktype write") {
            Err(INVALID)
        } else if owner.len() > OWNER_LEN_MAX {
            Err(Rejection(413, "the owner is longer than 1,024 bytes"))
        } else {
            Ok(Self { shared, owner })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_requested_properties() {
        let find = |inner: &str| {
            let body = format!("<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'>{inner}</D:propfind>");
            RequestedProperties::read(body.as_bytes()).ok()
        };
        let (etag, foreign) = (Name::new("DAV:", "getetag"), Name::new("urn:x", "a"));
        let both = RequestedProperties::Named(vec![etag.clone(), foreign]);
        assert_eq!(find("<D:prop><D:getetag/><x:a/></D:prop>"), Some(both));
        assert_eq!(find("<D:propname/>"), Some(RequestedProperties::Names));
        let more = "<D:allprop/><D:include><D:getetag/></D:include>";
        assert_eq!(find(more), Some(RequestedProperties::All(vec![etag])));
        let all = RequestedProperties::All(Vec::new());
        assert_eq!(RequestedProperties::read(b""), Ok(all));
        for bad in ["", "<x:prop/>", "<D:x/>"] {
            assert_eq!(find(bad), None, "{bad}");
        }
        assert!(RequestedProperties::read(b"<propfind><prop/></propfind>").is_err());
    }

    #[test]
    fn refuses_long_names() {
        let long = ">".repeat(3000);
        let named: String = (0..500).map(|at| format!("<x:a{at}/>")).collect();
        for action in ["set", "remove"] {
            let action = format!("<{action}><prop>{named}</prop></{action}>");
            let body =
                format!("<propertyupdate xmlns='DAV:' xmlns:x='{long}'>{action}</propertyupdate>");
            assert_eq!(parse_changes(body.as_bytes()).unwrap_err().0, 413);
        }
    }

    #[test]
    fn parses_changes_in_order() {
        let body = "<p:propertyupdate xmlns:p='DAV:'><p:remove><p:prop><a/></p:prop></p:remove>\
                    <p:set><p:prop><a>1</a><b xmlns='urn:x'/></p:prop></p:set></p:propertyupdate>";
        let read = parse_changes(body.as_bytes()).unwrap();
        let names: Vec<_> = read.iter().map(|change| &*change.name.local).collect();
        assert_eq!(names, ["a", "a", "b"]);
        assert_eq!(read[0].text, None);
        assert!(read[1].text.as_ref().unwrap().ends_with(">1</a>"));
        assert!(parse_changes(b"<propertyupdate xmlns='DAV:'/>").is_err());
    }

    #[test]
    fn parses_lock_requests() {
        let lock = |scope: &str, owner: &str| {
            let inside = format!("<lockscope>{scope}</lockscope><locktype><write/></locktype>");
            let body = format!("<lockinfo xmlns='DAV:'>{inside}{owner}</lockinfo>");
            LockInfo::read(body.as_bytes())
        };
        let read = lock("<shared/>", "<owner><href>me</href></owner>").unwrap();
        assert_eq!(read.owner, "<owner xmlns=\"DAV:\"><href>me</href></owner>");
        assert!(read.shared && !lock("<exclusive/>", "").unwrap().shared);
        for bad in ["", "<shared/><exclusive/>", "<x/>"] {
            assert!(lock(bad, "").is_err(), "{bad}");
        }
        let long = format!("<owner>{}</owner>", "x".repeat(OWNER_LEN_MAX));
        assert_eq!(lock("<shared/>", &long).unwrap_err().0, 413);
    }
}
