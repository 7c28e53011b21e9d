// SPDX-License-Identifier: MIT OR Apache-2.0
//! XML of requests: a reader with bounds on depth, number of elements and namespaces, and the elements that it finds.
//!
//! 64 KiB can name a long namespace a thousand times, or declare thousands of them for a thousand elements. The
//! tokenizer copies all of that with each element. The namespaces in scope are therefore bounded, too.

use std::iter;
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    /// Namespace; empty for none.
    pub(crate) namespace: String,
    pub(crate) local: String,
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
            namespace => format!("<{local}{}/>", declaration("", namespace)),
        }
    }
}

fn declaration(prefix: &str, namespace: &str) -> String {
    let namespace = escape_str_attribute(namespace);
    match prefix {
        "" => format!(" xmlns=\"{namespace}\""),
        _ => format!(" xmlns:{prefix}=\"{namespace}\""),
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
    let mut reader = EventReader::new_with_config(body, config);
    let (mut depth, mut elements) = (0, 0);
    loop {
        let event = reader
            .next()
            .map_err(|_| "the body is not XML, or has attributes that are too long")?;
        match &event {
            XmlEvent::EndDocument => return Ok(()),
            XmlEvent::Doctype { .. } => return Err("the body has a document type"),
            XmlEvent::StartElement { namespace, .. } => {
                check_namespaces(namespace)?;
                (depth, elements) = (depth + 1, elements + 1);
            }
            XmlEvent::EndElement { .. } => depth -= 1,
            _ => {}
        }
        match (depth > DEPTH_MAX, elements > ELEMENTS_MAX) {
            (true, _) => return Err("the body has elements that are nested too deep"),
            (_, true) => return Err("the body has too many elements"),
            _ => take(event),
        }
    }
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
/// root to it and, for those at the depth of `copied`, the element as XML with the namespaces in scope.
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
        let declared = scope
            .iter()
            .filter(is_new)
            .map(|(prefix, uri)| declaration(prefix, uri));
        let attributes = attributes.iter().map(|OwnedAttribute { name, value }| {
            format!(
                " {}=\"{}\"",
                name.borrow().repr_display(),
                escape_str_attribute(value)
            )
        });
        let begin = iter::once(format!("<{}", name.borrow().repr_display()));
        self.text.extend(
            begin
                .chain(declared)
                .chain(attributes)
                .chain([">".to_owned()]),
        );
        self.scopes.push(scope);
        self.is_empty = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8]) -> Result<(), &'static str> {
        read(body, |_| {})
    }

    fn nested(depth: usize) -> String {
        "<a>".repeat(depth) + &"</a>".repeat(depth)
    }

    #[test]
    fn refuses_deep_or_large_xml() {
        assert_eq!(check(nested(DEPTH_MAX).as_bytes()), Ok(()));
        for depth in [DEPTH_MAX + 1, 8000] {
            assert!(check(nested(depth).as_bytes()).is_err(), "{depth}");
        }
        let unclosed = "<a>".repeat(8000);
        assert!(check(unclosed.as_bytes()).is_err());
        let wide = |count: usize| format!("<a>{}</a>", "<b/>".repeat(count - 1));
        assert_eq!(check(wide(ELEMENTS_MAX).as_bytes()), Ok(()));
        assert!(check(wide(ELEMENTS_MAX + 1).as_bytes()).is_err());
        assert!(check(&b" ".repeat(BODY_LEN_MAX + 1)).is_err());
    }

    #[test]
    fn refuses_entities_and_invalid_xml() {
        let laughs = "<!DOCTYPE a [<!ENTITY b \"<c><c><c/></c></c>\">]><a>&b;&b;</a>";
        for body in [laughs, "<!DOCTYPE a><a/>", "x", "<a", "<a></b>", "\0"] {
            assert!(check(body.as_bytes()).is_err(), "{body}");
        }
    }

    /// The tokenizer copies all namespaces in scope with each element.
    #[test]
    fn refuses_many_or_long_namespaces() {
        let declared = |count: usize| {
            let declarations = (0..count).map(|at| format!(" xmlns:n{at}='u'"));
            format!("<a{}><b/></a>", declarations.collect::<String>())
        };
        assert_eq!(check(declared(NAMESPACES_MAX).as_bytes()), Ok(()));
        assert!(check(declared(NAMESPACES_MAX + 1).as_bytes()).is_err());
        let inner = format!("<a xmlns:x='{}'>", "x".repeat(200)).repeat(DEPTH_MAX);
        assert!(check((inner + &"</a>".repeat(DEPTH_MAX)).as_bytes()).is_ok());
        let long = |len: usize| format!("<x:a xmlns:x='{}'/>", "&gt;".repeat(len));
        assert_eq!(check(long(NAMESPACES_LEN_MAX / 2).as_bytes()), Ok(()));
        assert!(check(long(NAMESPACES_LEN_MAX).as_bytes()).is_err());
        let named = (0..6000).map(|at| format!(" x:a{at}=''"));
        let named = named.collect::<String>();
        assert!(check(format!("<a xmlns:x='x'{named}/>").as_bytes()).is_err());
        // Each element may declare its own.
        let each = "<b xmlns='urn:x'/>".repeat(ELEMENTS_MAX - 1);
        assert_eq!(check(format!("<a>{each}</a>").as_bytes()), Ok(()));
    }

    /// Comments, CDATA and processing instructions may contain text that resembles tags.
    #[test]
    fn counts_elements_but_not_comments() {
        let tags = "<a>".repeat(100);
        let body = format!("<a><!-- {tags} --><![CDATA[{tags}]]><?b {tags}?><c d=\"'>\"/></a>");
        assert_eq!(check(body.as_bytes()), Ok(()));
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
                    <c/><d xmlns=''><x:e xmlns='urn:b' f='\"'/></d></b></a>";
        let wanted = [
            "<c xmlns=\"urn:b\" xmlns:x=\"urn:&lt;\"/>",
            "<d xmlns:x=\"urn:&lt;\"><x:e xmlns=\"urn:b\" f=\"&quot;\"/></d>",
        ];
        assert_eq!(copies(body, &Name::new(DAV, "a"), 3), wanted);
        let mut names = Vec::new();
        let take = |open: &[Name], _: &str| names.extend(open.last().cloned());
        read_elements(body.as_bytes(), &Name::new(DAV, "a"), 9, take).unwrap();
        assert_eq!(
            names[..2],
            [Name::new("urn:b", "c"), Name::new("urn:<", "e")]
        );
    }
}
