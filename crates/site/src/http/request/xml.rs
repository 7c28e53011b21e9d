// SPDX-License-Identifier: MIT OR Apache-2.0
//! XML of requests: a reader with bounds on depth, number of elements and namespaces, and the elements that it finds.
//!
//! 64 KiB can name a long namespace a thousand times, or declare thousands of them for a thousand elements. The
//! tokenizer copies all of that with each element. The namespaces in scope are therefore bounded, too.

use serde::{Deserialize, Serialize};
use xml::{
    EventReader, ParserConfig,
    attribute::OwnedAttribute,
    escape::{escape_str_attribute, escape_str_pcdata},
    name::OwnedName,
    namespace::{NS_XML_PREFIX, NS_XMLNS_PREFIX, Namespace},
    reader::XmlEvent,
};

/// Longest XML body, in bytes.
pub const BODY_LEN_MAX: usize = 64 << 10;

/// Deepest nesting of elements. RFC 4918 needs five. The namespaces in scope of each are held.
pub const DEPTH_MAX: usize = 32;

/// Most elements in a request. A PROPFIND names each property, and each costs some 100 bytes of the response for
/// every file.
pub const ELEMENTS_MAX: usize = 1024;

/// Most namespaces in scope of an element.
pub const NAMESPACES_MAX: usize = 64;

/// Total length of these namespaces and their prefixes at most, in bytes.
pub const NAMESPACES_LEN_MAX: usize = 4 << 10;

/// Most attributes of an element, and the longest value in bytes. The namespace that the tokenizer copies for each
/// attribute is known only when the whole element is parsed.
const ATTRIBUTES_MAX: usize = 128;
const ATTRIBUTE_LEN_MAX: usize = 8 << 10;

/// Namespace of WebDAV.
pub(crate) const DAV: &str = "DAV:";

/// Qualified name of an element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Name {
    /// Local name. It comes first because a comparison of many names is faster then.
    #[serde(rename = "name")]
    pub(crate) local: String,
    /// Namespace; empty for none.
    pub(crate) namespace: String,
}

impl Name {
    pub(crate) fn new(namespace: &str, local: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            local: local.to_owned(),
        }
    }

    /// Returns the local name, if the namespace is WebDAV's; otherwise an empty one.
    pub(crate) fn in_dav(&self) -> &str {
        if self.namespace == DAV {
            &self.local
        } else {
            ""
        }
    }

    /// Returns the element without a value. The prefix "D" is WebDAV's namespace.
    pub(crate) fn empty_element(&self) -> String {
        let local = &self.local;
        match &*self.namespace {
            DAV => format!("<D:{local}/>"),
            "" => format!("<{local}/>"),
            namespace => {
                let namespace = escape_str_attribute(namespace);
                format!("<{local} xmlns=\"{namespace}\"/>")
            }
        }
    }
}

/// Parses a body into events.
///
/// # Errors
/// The body is not XML, has a document type (RFC 4918 §20.6), or exceeds the bounds above.
pub fn read(body: &[u8], mut take: impl FnMut(XmlEvent)) -> Result<(), &'static str> {
    if body.len() > BODY_LEN_MAX {
        return Err("the body is too long");
    }
    let config = ParserConfig::new()
        .ignore_comments(false)
        .max_attributes(ATTRIBUTES_MAX)
        .max_attribute_length(ATTRIBUTE_LEN_MAX);
    let (mut depth, mut elements) = (0, 0);
    for event in EventReader::new_with_config(body, config) {
        let event =
            event.map_err(|_| "the body is not XML, or has attributes that are too long")?;
        match &event {
            XmlEvent::Doctype { .. } => return Err("the body has a document type"),
            XmlEvent::StartElement { namespace, .. } => {
                check_namespaces(namespace)?;
                (depth, elements) = (depth + 1, elements + 1);
            }
            XmlEvent::EndElement { .. } => depth -= 1,
            _ => {}
        }
        if depth > DEPTH_MAX || elements > ELEMENTS_MAX {
            return Err("the body has too many elements, or they are nested too deep");
        }
        take(event);
    }
    Ok(())
}

fn check_namespaces(declared: &Namespace) -> Result<(), &'static str> {
    let lengths = declared
        .iter()
        .map(|(prefix, uri)| prefix.len() + uri.len());
    // Three are always in scope: "xml", "xmlns", and none.
    if declared.0.len() > NAMESPACES_MAX + 3 || lengths.sum::<usize>() > NAMESPACES_LEN_MAX {
        Err("the body declares too many or too long namespaces")
    } else {
        Ok(())
    }
}

/// Reads a body with one root element of this name. Passes each element to `take` when it ends: the names from the
/// root to it and, for those at the depth of `copied` (`usize::MAX` for none), the element as XML with the namespaces in
/// scope.
///
/// # Errors
/// Those of [`read`], or there is another root element.
pub(crate) fn read_elements(
    body: &[u8],
    root: &Name,
    copied: usize,
    mut take: impl FnMut(&[Name], &str),
) -> Result<(), &'static str> {
    let (mut open, mut copy, mut roots) = (Vec::new(), ElementCopy::default(), Vec::new());
    read(body, |event| {
        if let XmlEvent::StartElement { name, .. } = &event {
            let namespace = name.namespace_ref().unwrap_or_default();
            open.push(Name::new(namespace, &name.local_name));
        }
        let is_end = matches!(event, XmlEvent::EndElement { .. });
        if open.len() >= copied {
            copy.push(event);
        }
        if is_end {
            take(&open, if open.len() == copied { &copy.text } else { "" });
            if open.len() == copied {
                copy = ElementCopy::default();
            }
            roots.extend(open.pop().filter(|_| open.is_empty()));
        }
    })?;
    // The tokenizer accepts several elements at the top.
    match &roots[..] {
        [top] if top == root => Ok(()),
        _ => Err("the body has another root element"),
    }
}

/// Copy of an element that declares the namespaces in scope itself.
#[derive(Default)]
struct ElementCopy {
    text: String,
    /// Namespaces in scope of each open element.
    scopes: Vec<Namespace>,
    is_empty: bool,
}

impl ElementCopy {
    fn push(&mut self, event: XmlEvent) {
        let was_empty = std::mem::take(&mut self.is_empty);
        match event {
            XmlEvent::StartElement {
                name,
                attributes,
                namespace,
            } => {
                self.begin(&name, &attributes, namespace);
            }
            XmlEvent::EndElement { .. } if was_empty => {
                self.text.insert(self.text.len() - 1, '/');
                self.scopes.pop();
            }
            XmlEvent::EndElement { name } => {
                self.text += &format!("</{}>", name.borrow().repr_display());
                self.scopes.pop();
            }
            // What is between elements.
            _ if self.scopes.is_empty() => {}
            XmlEvent::Characters(text) | XmlEvent::Whitespace(text) => {
                self.text += &escape_str_pcdata(&text);
            }
            XmlEvent::CData(text) => self.text += &format!("<![CDATA[{text}]]>"),
            _ => self.is_empty = was_empty,
        }
    }

    fn begin(&mut self, name: &OwnedName, attributes: &[OwnedAttribute], scope: Namespace) {
        let outer = self.scopes.last();
        let is_new = |(prefix, uri): &(&str, &str)| match outer.and_then(|outer| outer.get(*prefix))
        {
            Some(before) => before != *uri,
            None => !uri.is_empty() && ![NS_XML_PREFIX, NS_XMLNS_PREFIX].contains(prefix),
        };
        self.text += &format!("<{}", name.borrow().repr_display());
        for (prefix, uri) in scope.iter().filter(is_new) {
            let colon = if prefix.is_empty() { "" } else { ":" };
            let uri = escape_str_attribute(uri);
            self.text += &format!(" xmlns{colon}{prefix}=\"{uri}\"");
        }
        for OwnedAttribute { name, value } in attributes {
            let value = escape_str_attribute(value);
            self.text += &format!(" {}=\"{value}\"", name.borrow().repr_display());
        }
        self.text.push('>');
        self.scopes.push(scope);
        self.is_empty = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_elements_and_namespaces() {
        let nested = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
        let wide = |count: usize| format!("<a>{}</a>", "<b xmlns='urn:x'/>".repeat(count - 1));
        let declared = |count: usize| {
            let declarations = (0..count).map(|at| format!(" xmlns:n{at}='u'"));
            format!("<a{}><b/></a>", declarations.collect::<String>())
        };
        let long = |len: usize| format!("<x:a xmlns:x='{}'/>", "&gt;".repeat(len));
        // Comments, CDATA and processing instructions may contain text that resembles tags.
        let tags = "<a>".repeat(100);
        let text = format!("<a><!-- {tags} --><![CDATA[{tags}]]><?b {tags}?><c d=\"'>\"/></a>");
        for good in [
            nested(DEPTH_MAX),
            wide(ELEMENTS_MAX),
            declared(NAMESPACES_MAX),
            long(NAMESPACES_LEN_MAX / 2),
            text,
        ] {
            assert_eq!(read(good.as_bytes(), |_| {}), Ok(()), "{good}");
        }
        let attributes: String = (0..6000).map(|at| format!(" x:a{at}=''")).collect();
        for bad in [
            nested(DEPTH_MAX + 1),
            "<a>".repeat(8000),
            wide(ELEMENTS_MAX + 1),
            declared(NAMESPACES_MAX + 1),
            long(NAMESPACES_LEN_MAX),
            format!("<a xmlns:x='x'{attributes}/>"),
            " ".repeat(BODY_LEN_MAX + 1),
            "<!DOCTYPE a [<!ENTITY b \"<c/>\">]><a>&b;</a>".to_owned(),
            "<!DOCTYPE a><a/>".to_owned(),
            "<a></b>".to_owned(),
        ] {
            assert!(read(bad.as_bytes(), |_| {}).is_err(), "{bad}");
        }
    }

    /// Returns the elements at a depth as XML.
    fn copies(body: &str, root: &Name, depth: usize) -> Vec<String> {
        let mut copies = Vec::new();
        let take = |names: &[Name], text: &str| {
            copies.extend((names.len() == depth).then(|| text.to_owned()));
        };
        read_elements(body.as_bytes(), root, depth, take).unwrap();
        copies
    }

    #[test]
    fn copies_an_element_unchanged() {
        let body = "<?xml version='1.0'?><a xmlns='DAV:' xmlns:x='urn:x'><!-- no --><b/> \
                    <x:c xml:lang='de'>t &amp; <x:d y='1'/>\u{10000}</x:c></a>";
        let xml = copies(body, &Name::new(DAV, "a"), 2).pop().unwrap();
        assert_eq!(copies(&xml, &Name::new("urn:x", "c"), 1), [&*xml]);
        assert!(
            xml.contains("xml:lang=\"de\"") && xml.contains("t &amp; "),
            "{xml}"
        );
        assert!(xml.contains("<x:d y=\"1\"/>\u{10000}"), "{xml}");
        for other in ["b", "x"] {
            assert!(read_elements(body.as_bytes(), &Name::new(DAV, other), 9, |_, _| {}).is_err());
        }
        let twice = b"<a xmlns='DAV:'/><a xmlns='DAV:'/>";
        assert!(read_elements(twice, &Name::new(DAV, "a"), 9, |_, _| {}).is_err());
    }

    #[test]
    fn copies_declare_the_namespaces_in_scope() {
        let body = "<a xmlns='DAV:' xmlns:x='urn:x'><b xmlns='urn:b' xmlns:x='urn:&lt;'>\
                    <c/><d xmlns=''><x:e xmlns='urn:b' f='\"'><g xmlns=''/></x:e></d></b></a>";
        let wanted = [
            "<c xmlns=\"urn:b\" xmlns:x=\"urn:&lt;\"/>",
            "<d xmlns:x=\"urn:&lt;\"><x:e xmlns=\"urn:b\" f=\"&quot;\"><g xmlns=\"\"/></x:e></d>",
        ];
        assert_eq!(copies(body, &Name::new(DAV, "a"), 3), wanted);
        // Below another meaning of a prefix, its former one is declared again.
        for element in [
            "<x:a xmlns:x=\"u1\"><x:b xmlns:x=\"u2\"><x:c xmlns:x=\"u1\"/></x:b></x:a>",
            "<d xmlns=\"u1\"><e xmlns=\"\"><f xmlns=\"u1\"/></e></d>",
        ] {
            let body = format!("<a>{element}</a>");
            assert_eq!(copies(&body, &Name::new("", "a"), 2), [element]);
        }
    }
}
