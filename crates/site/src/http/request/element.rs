// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of a body that is XML: what they are called, what is in them, and their text for those that are kept as they
//! came.

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

/// The namespace of WebDAV itself.
pub(crate) const DAV: &str = "DAV:";

/// What an element is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    /// Empty is none.
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

    /// Its name in WebDAV's own namespace, if it is one of those.
    pub(crate) fn in_dav(&self) -> Option<&str> {
        (self.namespace == DAV).then_some(&*self.local)
    }

    /// Its element without a value, where "D" stands for WebDAV's own namespace.
    pub(crate) fn empty_element(&self) -> String {
        let local = &self.local;
        match self.in_dav() {
            Some(local) => format!("<D:{local}/>"),
            None if self.namespace.is_empty() => format!("<{local}/>"),
            None => format!("<{local}{}/>", declaration(("", &self.namespace))),
        }
    }
}

/// All that is in a body, written anew, and where its elements are in that. Elements share the texts of their namespaces,
/// and have only those that they declare themselves: more would be a multiple of the body.
#[derive(Debug, Default)]
pub(crate) struct Document {
    text: String,
    /// In order; one comes before those that are in it.
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    namespace: Arc<str>,
    local: String,
    /// What it is in.
    parent: Option<usize>,
    /// In the text: from its start to its end, and where its name ends.
    begin: usize,
    name_end: usize,
    end: usize,
    /// Prefixes and namespaces that are other ones from here on.
    declared: Vec<(String, Arc<str>)>,
}

impl Document {
    /// None: it is no XML, or beyond the bounds of [`xml`].
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut builder = Builder::default();
        xml::read(body, |event| builder.take(event)).ok()?;
        Some(builder.document)
    }

    /// The element that all others are in, if it is this one. The tokenizer lets more than one stand beside each other.
    pub(crate) fn top(&self, name: &Name) -> Option<Element<'_>> {
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

/// An element of a document.
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

    /// The elements in it.
    pub(crate) fn children(&self) -> Vec<Element<'d>> {
        self.document.children(Some(self.at))
    }

    /// Those of them that WebDAV calls so.
    pub(crate) fn named(&self, local: &str) -> Vec<Element<'d>> {
        let mut children = self.children();
        children.retain(|child| &*child.node.namespace == DAV && child.node.local == local);
        children
    }

    /// It and all that is in it, with the namespaces that hold there.
    pub(crate) fn text(&self) -> String {
        let text = &self.document.text;
        let (begin, rest) = (
            &text[self.node.begin..self.node.name_end],
            &text[self.node.name_end..self.node.end],
        );
        let declared: String = self.inherited().into_iter().map(declaration).collect();
        format!("{begin}{declared}{rest}")
    }

    /// What is declared around it, and not by itself.
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

/// What is read of a document.
#[derive(Default)]
struct Builder {
    document: Document,
    /// The elements that have not ended, and all namespaces that hold in them.
    open: Vec<(usize, Namespace)>,
    namespaces: HashSet<Arc<str>>,
}

impl Builder {
    fn take(&mut self, event: XmlEvent) {
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
        let namespace = self.shared(name.namespace_ref().unwrap_or_default());
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
        match text.len() == nodes[at].end {
            // Nothing is in it.
            true => text.insert(text.len() - 1, '/'),
            false => *text += &format!("</{}>", name.borrow().repr_display()),
        }
        nodes[at].end = text.len();
    }

    /// Of the namespaces that hold for an element, those that did not before.
    fn declared(&mut self, holding: &Namespace) -> Vec<(String, Arc<str>)> {
        let around = self.open.last().map(|(_, around)| around);
        let is_new = |prefix: &str, namespace: &str| match around
            .and_then(|around| around.get(prefix))
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
        let shared = |(prefix, namespace): (String, String)| (prefix, self.shared(&namespace));
        new.into_iter().map(shared).collect()
    }

    fn shared(&mut self, namespace: &str) -> Arc<str> {
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
    fn keeps_an_element_as_it_came() {
        let body = "<?xml version='1.0'?><a xmlns='DAV:' xmlns:x='urn:x'><!-- no --><b/>\
                    <x:c xml:lang='de'>t &amp; <x:d y='1'/>\u{10000}</x:c></a>";
        let document = Document::read(body.as_bytes()).unwrap();
        assert!(document.top(&Name::new(DAV, "b")).is_none());
        let top = document.top(&Name::new(DAV, "a")).unwrap();
        assert_eq!(top.named("b").len(), 1);
        let kept = top.children()[1].text();
        let again = Document::read(kept.as_bytes()).unwrap();
        let again = again.top(&Name::new("urn:x", "c")).unwrap();
        assert_eq!(again.text(), kept);
        assert!(
            kept.contains("xml:lang=\"de\"") && kept.contains("t &amp; "),
            "{kept}"
        );
        assert!(kept.contains("\u{10000}"), "{kept}");
    }

    #[test]
    fn an_element_has_the_namespaces_that_hold_in_it() {
        let body = "<a xmlns='DAV:' xmlns:x='urn:x'><b xmlns='urn:b' xmlns:x='urn:&lt;'>                    <c/><d xmlns=''><x:e xmlns='urn:b' f='\"'/></d></b></a>";
        let document = Document::read(body.as_bytes()).unwrap();
        let top = document.top(&Name::new(DAV, "a")).unwrap();
        let inner = &top.children()[0].children();
        assert_eq!(inner[0].name(), Name::new("urn:b", "c"));
        assert_eq!(inner[0].text(), "<c xmlns=\"urn:b\" xmlns:x=\"urn:&lt;\"/>");
        assert_eq!(
            inner[1].text(),
            "<d xmlns:x=\"urn:&lt;\" xmlns=\"\"><x:e xmlns=\"urn:b\" f=\"&quot;\"/></d>"
        );
        assert_eq!(inner[1].children()[0].name(), Name::new("urn:<", "e"));
    }

    /// Ten times as much as the body is, at most.
    #[test]
    fn a_document_is_no_multiple_of_its_body() {
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
