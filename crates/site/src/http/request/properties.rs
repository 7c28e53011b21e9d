// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies of PROPFIND, PROPPATCH and LOCK (RFC 4918 §14).

use super::{
    element::{DAV, Document, Element, Name},
    target::Rejection,
};
use bytes::Bytes;
use hyper::StatusCode;
use std::collections::HashSet;

/// Longest owner of a lock, in bytes.
const OWNER_LEN_MAX: usize = 1024;

/// Size of all property names in a request at most, in bytes, with their namespaces and new values. The response
/// repeats the names for each file.
const PROPERTIES_LEN_MAX: usize = 256 << 10;

/// Properties that a PROPFIND requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedProperties {
    /// The default ones, and these.
    All(Vec<Name>),
    /// Names without values.
    Names,
    Named(Vec<Name>),
}

fn bad_request() -> Rejection {
    (
        StatusCode::BAD_REQUEST,
        "the body is not valid for the method",
    )
}

/// Parses a body on a blocking thread: 64 KiB take some milliseconds.
pub(crate) async fn parse_blocking<T: Send + 'static>(
    body: Bytes,
    read: fn(&[u8]) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let done = tokio::task::spawn_blocking(move || read(&body)).await;
    done.unwrap_or_else(|_| Err(bad_request()))
}

/// Total length of names and values so far, in bytes.
#[derive(Default)]
struct LengthBudget(usize);

impl LengthBudget {
    fn add(&mut self, name: &Name, text: usize) -> Result<(), Rejection> {
        self.0 += name.empty_element().len() + text;
        if self.0 > PROPERTIES_LEN_MAX {
            Err((
                StatusCode::PAYLOAD_TOO_LARGE,
                "the properties and their namespaces are longer than 256 KiB",
            ))
        } else {
            Ok(())
        }
    }
}

/// Returns the names of elements without duplicates.
fn names<'d>(elements: impl IntoIterator<Item = Element<'d>>) -> Result<Vec<Name>, Rejection> {
    let (mut names, mut seen, mut lengths) = (Vec::new(), HashSet::new(), LengthBudget::default());
    for name in elements.into_iter().map(|element| element.name()) {
        if seen.insert(name.clone()) {
            lengths.add(&name, 0)?;
            names.push(name);
        }
    }
    Ok(names)
}

impl RequestedProperties {
    /// Parses a PROPFIND. An empty body requests all properties.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Rejection> {
        if body.is_empty() {
            return Ok(Self::All(Vec::new()));
        }
        let document = Document::read(body).ok_or_else(bad_request)?;
        let top = document
            .root_element(&Name::new(DAV, "propfind"))
            .ok_or_else(bad_request)?;
        let names_in = |local| {
            let children = top.dav_children(local);
            names(children.iter().flat_map(Element::children))
        };
        if !top.dav_children("prop").is_empty() {
            return Ok(Self::Named(names_in("prop")?));
        }
        if !top.dav_children("propname").is_empty() {
            return Ok(Self::Names);
        }
        if !top.dav_children("allprop").is_empty() {
            Ok(Self::All(names_in("include")?))
        } else {
            Err(bad_request())
        }
    }
}

/// Change of a property: its new element, or `None` to remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) name: Name,
    pub(crate) text: Option<String>,
}

/// Parses a PROPPATCH into changes, in order.
pub(crate) fn parse_changes(body: &[u8]) -> Result<Vec<Change>, Rejection> {
    let document = Document::read(body).ok_or_else(bad_request)?;
    let top = document
        .root_element(&Name::new(DAV, "propertyupdate"))
        .ok_or_else(bad_request)?;
    let (mut changes, mut lengths) = (Vec::new(), LengthBudget::default());
    for action in top.children() {
        let action_name = action.name();
        let sets = match action_name.in_dav() {
            Some("set") => true,
            Some("remove") => false,
            _ => continue,
        };
        for property in action
            .dav_children("prop")
            .iter()
            .flat_map(Element::children)
        {
            let (name, text) = (property.name(), sets.then(|| property.xml_text()));
            lengths.add(&name, text.as_ref().map_or(0, String::len))?;
            changes.push(Change { name, text });
        }
    }
    if changes.is_empty() {
        Err(bad_request())
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
    pub(crate) fn read(body: &[u8]) -> Result<Self, Rejection> {
        let document = Document::read(body).ok_or_else(bad_request)?;
        let top = document
            .root_element(&Name::new(DAV, "lockinfo"))
            .ok_or_else(bad_request)?;
        let has = |local, value| {
            let found = top.dav_children(local);
            found
                .iter()
                .any(|element| !element.dav_children(value).is_empty())
        };
        let (exclusive, shared) = (has("lockscope", "exclusive"), has("lockscope", "shared"));
        if exclusive == shared || !has("locktype", "write") {
            return Err(bad_request());
        }
        let owner = top.dav_children("owner").first().map(Element::xml_text);
        let owner = owner.unwrap_or_default();
        if owner.len() > OWNER_LEN_MAX {
            Err((
                StatusCode::PAYLOAD_TOO_LARGE,
                "the owner is longer than 1,024 bytes",
            ))
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
        let both = vec![etag.clone(), foreign];
        assert_eq!(
            find("<D:prop><D:getetag/><x:a/></D:prop>"),
            Some(RequestedProperties::Named(both))
        );
        assert_eq!(find("<D:propname/>"), Some(RequestedProperties::Names));
        let more = "<D:allprop/><D:include><D:getetag/></D:include>";
        assert_eq!(find(more), Some(RequestedProperties::All(vec![etag])));
        assert_eq!(
            RequestedProperties::read(b""),
            Ok(RequestedProperties::All(Vec::new()))
        );
        for bad in ["", "<x:prop/>", "<D:x/>"] {
            assert_eq!(find(bad), None, "{bad}");
        }
        assert!(RequestedProperties::read(b"<propfind><prop/></propfind>").is_err());
    }

    #[test]
    fn removes_duplicate_properties() {
        for question in ["<prop>{}</prop>", "<allprop/><include>{}</include>"] {
            let again = "<getetag/><a xmlns='urn:x'/>".repeat(500);
            let question = question.replace("{}", &again);
            let body = format!("<propfind xmlns='DAV:'>{question}</propfind>");
            let names = match RequestedProperties::read(body.as_bytes()).unwrap() {
                RequestedProperties::All(names) | RequestedProperties::Named(names) => names,
                RequestedProperties::Names => Vec::new(),
            };
            let wanted = [Name::new("DAV:", "getetag"), Name::new("urn:x", "a")];
            assert_eq!(names, wanted);
        }
    }

    #[test]
    fn refuses_long_names_and_values() {
        let long = ">".repeat(3000);
        let named: String = (0..500).map(|at| format!("<x:a{at}/>")).collect();
        let find =
            format!("<propfind xmlns='DAV:' xmlns:x='{long}'><prop>{named}</prop></propfind>");
        let refused = RequestedProperties::read(find.as_bytes()).unwrap_err();
        assert_eq!(refused.0, StatusCode::PAYLOAD_TOO_LARGE);
        for action in ["set", "remove"] {
            let body = format!(
                "<propertyupdate xmlns='DAV:' xmlns:x='{long}'><{action}><prop>{named}</prop></{action}></propertyupdate>"
            );
            let refused = parse_changes(body.as_bytes()).unwrap_err();
            assert_eq!(refused.0, StatusCode::PAYLOAD_TOO_LARGE, "{action}");
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
