// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of an XML body: their names, children, and text for those that are stored unchanged.

use super::xml;
use ::xml::{
    attribute::OwnedAttribute,
    escape::{escape_str_attribute, escape_str_pcdata},
    name::OwnedName,
    namespace::{NS_XML_PREFIX, NS_XMLNS_PREFIX, Namespace},
    reader::XmlEvent,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

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

    /// Returns the local name, if the namespace is WebDAV's.
    pub(crate) fn in_dav(&self) -> Option<&str> {
        (self.namespace == DAV).then_some(&*self.local)
    }

    /// Returns the element without a value. The prefix "D" is WebDAV's namespace.
    pub(crate) fn empty_element(&self) -> String {
        let local = &self.local;
        match self.in_dav() {
            Some(local) => format!("<D:{local}/>"),
            None if self.namespace.is_empty() => format!("<{local}/>"),
            None => format!("<{local}{}/>", declaration(("", &self.namespace))),
        }
    }
}

/// Parsed body, serialized again, with the positions of its elements. Elements share the text of their namespaces,
/// and store only the declarations that they make themselves. Otherwise memory would be a multiple of the body.
#[derive(Debug, Default)]
pub(crate) struct Document {
    text: String,
    /// Elements in document order: a parent precedes its children.
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    namespace: Arc<str>,
    local: String,
    /// Index of the parent.
    parent: Option<usize>,
    /// Positions in the text: the start, the end of the name, and the end.
    begin: usize,
    name_end: usize,
    end: usize,
    /// Prefixes whose namespace changes at this element.
    declared: Vec<(String, Arc<str>)>,
}

impl Document {
    /// Parses a body. Returns `None` if it is not XML, or exceeds the bounds of [`xml`].
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut builder = Builder::default();
        xml::read(body, |event| builder.push(event)).ok()?;
        Some(builder.document)
    }

    /// Returns the root element, if it has this name. The tokenizer accepts several elements at the top.
    pub(crate) fn root_element(&self, name: &Name) -> Option<Element<'_>> {
        match self.children(None)[..] {
            [top] if top.name() == *name => Some(top),
            _ => None,
        }
    }

    fn children(&self, parent: Option<usize>) -> Vec<Element<'_>> {
        let all = self.nodes.iter().enumerate();
        let inside = all.filter(|(_, node)| node.parent == parent);
        let element = |(at, node)| Element {
            document: self,
            node,
            at,
        };
        inside.map(element).collect()
    }
}

/// Element of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element<'d> {
    document: &'d Document,
    node: &'d Node,
    at: usize,
}

impl<'d> Element<'d> {
    pub(crate) fn name(&self) -> Name {
        Name::new(&self.node.namespace, &self.node.local)
    }

    /// Returns the child elements.
    pub(crate) fn children(&self) -> Vec<Element<'d>> {
        self.document.children(Some(self.at))
    }

    /// Returns the children with this name in WebDAV's namespace.
    pub(crate) fn dav_children(&self, local: &str) -> Vec<Element<'d>> {
        let mut children = self.children();
        children.retain(|child| &*child.node.namespace == DAV && child.node.local == local);
        children
    }

    /// Returns the element as XML, with the namespaces that are in scope.
    pub(crate) fn xml_text(&self) -> String {
        let text = &self.document.text;
        let (begin, rest) = (
            &text[self.node.begin..self.node.name_end],
            &text[self.node.name_end..self.node.end],
        );
        let declared: String = self.inherited().into_iter().map(declaration).collect();
        format!("{begin}{declared}{rest}")
    }

    /// Returns the declarations in scope that the element does not make itself.
    fn inherited(&self) -> BTreeMap<&'d str, &'d str> {
        let mut inherited = BTreeMap::new();
        let mut at = Some(self.at);
        while let Some(node) = at.map(|at| &self.document.nodes[at]) {
            for (prefix, namespace) in &node.declared {
                inherited.entry(&**prefix).or_insert(&**namespace);
            }
            at = node.parent;
        }
        let own = |prefix: &str| {
            self.node
                .declared
                .iter()
                .any(|(declared, _)| declared == prefix)
        };
        inherited.retain(|prefix, namespace| !own(prefix) && !namespace.is_empty());
        inherited
    }
}

fn declaration((prefix, namespace): (&str, &str)) -> String {
    let namespace = escape_str_attribute(namespace);
    match prefix {
        "" => format!(" xmlns=\"{namespace}\""),
        _ => format!(" xmlns:{prefix}=\"{namespace}\""),
    }
}

/// Document under construction.
#[derive(Default)]
struct Builder {
    document: Document,
    /// Open elements, and the namespaces in scope in each.
    open: Vec<(usize, Namespace)>,
    namespaces: HashSet<Arc<str>>,
}

impl Builder {
    fn push(&mut self, event: XmlEvent) {
        let text = &mut self.document.text;
        match event {
            XmlEvent::StartElement {
                name,
                attributes,
                namespace,
            } => self.begin(&name, &attributes, namespace),
            XmlEvent::EndElement { name } => self.end(&name),
            XmlEvent::Characters(more) | XmlEvent::Whitespace(more) => {
                *text += &escape_str_pcdata(&more);
            }
            XmlEvent::CData(more) => *text += &format!("<![CDATA[{more}]]>"),
            _ => {}
        }
    }

    fn begin(&mut self, name: &OwnedName, attributes: &[OwnedAttribute], holding: Namespace) {
        let declared = self.declared(&holding);
        let namespace = self.intern(name.namespace_ref().unwrap_or_default());
        let text = &mut self.document.text;
        let begin = text.len();
        *text += &format!("<{}", name.borrow().repr_display());
        let name_end = text.len();
        text.extend(
            declared
                .iter()
                .map(|(prefix, namespace)| declaration((prefix, namespace))),
        );
        for OwnedAttribute { name, value } in attributes {
            let (name, value) = (name.borrow(), escape_str_attribute(value));
            *text += &format!(" {}=\"{value}\"", name.repr_display());
        }
        text.push('>');
        let at = self.document.nodes.len();
        self.document.nodes.push(Node {
            namespace,
            local: name.local_name.clone(),
            parent: self.open.last().map(|(parent, _)| *parent),
            begin,
            name_end,
            end: text.len(),
            declared,
        });
        self.open.push((at, holding));
    }

    fn end(&mut self, name: &OwnedName) {
        let Some((at, _)) = self.open.pop() else {
            return;
        };
        let Document { text, nodes } = &mut self.document;
        if text.len() == nodes[at].end {
            text.insert(text.len() - 1, '/');
        } else {
            *text += &format!("</{}>", name.borrow().repr_display());
        }
        nodes[at].end = text.len();
    }

    /// Returns the namespaces in scope that were not in scope before.
    fn declared(&mut self, holding: &Namespace) -> Vec<(String, Arc<str>)> {
        let outer = self.open.last().map(|(_, outer)| outer);
        let is_new = |prefix: &str, namespace: &str| match outer.and_then(|outer| outer.get(prefix))
        {
            Some(before) => before != namespace,
            None => !namespace.is_empty() && ![NS_XML_PREFIX, NS_XMLNS_PREFIX].contains(&prefix),
        };
        let new = holding
            .iter()
            .filter(|(prefix, namespace)| is_new(prefix, namespace));
        let new: Vec<_> = new
            .map(|(prefix, namespace)| (prefix.to_owned(), namespace.to_owned()))
            .collect();
        let shared = |(prefix, namespace): (String, String)| (prefix, self.intern(&namespace));
        new.into_iter().map(shared).collect()
    }

    fn intern(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(namespace) {
            return known.clone();
        }
        let new: Arc<str> = namespace.into();
        self.namespaces.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serializes_an_element_unchanged() {
        let body = "<?xml version='1.0'?><a xmlns='DAV:' xmlns:x='urn:x'><!-- no --><b/>\
                    <x:c xml:lang='de'>t &amp; <x:d y='1'/>\u{10000}</x:c></a>";
        let document = Document::read(body.as_bytes()).unwrap();
        assert!(document.root_element(&Name::new(DAV, "b")).is_none());
        let top = document.root_element(&Name::new(DAV, "a")).unwrap();
        assert_eq!(top.dav_children("b").len(), 1);
        let xml = top.children()[1].xml_text();
        let again = Document::read(xml.as_bytes()).unwrap();
        let again = again.root_element(&Name::new("urn:x", "c")).unwrap();
        assert_eq!(again.xml_text(), xml);
        assert!(
            xml.contains("xml:lang=\"de\"") && xml.contains("t &amp; "),
            "{xml}"
        );
        assert!(xml.contains("\u{10000}"), "{xml}");
    }

    #[test]
    fn serializes_namespaces_in_scope() {
        let body = "<a xmlns='DAV:' xmlns:x='urn:x'><b xmlns='urn:b' xmlns:x='urn:&lt;'>                    <c/><d xmlns=''><x:e xmlns='urn:b' f='\"'/></d></b></a>";
        let document = Document::read(body.as_bytes()).unwrap();
        let top = document.root_element(&Name::new(DAV, "a")).unwrap();
        let inner = &top.children()[0].children();
        assert_eq!(inner[0].name(), Name::new("urn:b", "c"));
        assert_eq!(
            inner[0].xml_text(),
            "<c xmlns=\"urn:b\" xmlns:x=\"urn:&lt;\"/>"
        );
        assert_eq!(
            inner[1].xml_text(),
            "<d xmlns:x=\"urn:&lt;\" xmlns=\"\"><x:e xmlns=\"urn:b\" f=\"&quot;\"/></d>"
        );
        assert_eq!(inner[1].children()[0].name(), Name::new("urn:<", "e"));
    }

    /// A document takes at most ten times the size of its body.
    #[test]
    fn bounds_the_size_of_a_document() {
        let long = ">".repeat(xml::NAMESPACES_LEN_MAX - 100);
        for inner in ["<x:b/>", "<x:b x:c='' x:d=''/>", "<b xmlns='urn:x'/>"] {
            let body = format!(
                "<a xmlns:x='{long}'>{}</a>",
                inner.repeat(xml::ELEMENTS_MAX - 1)
            );
            let document = Document::read(body.as_bytes()).unwrap();
            let of_node = |node: &Node| {
                size_of::<Node>()
                    + node.local.len()
                    + node.declared.len() * size_of::<(String, Arc<str>)>()
            };
            let nodes: usize = document.nodes.iter().map(of_node).sum();
            let len = document.text.len() + nodes;
            assert!(len <= 10 * xml::BODY_LEN_MAX, "{inner}: {len}");
        }
    }
}
