// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of a body that is XML, checked before (`xml`): what they are called, what is in them, and their text for those
//! that are kept as they came.

use xml::{EmitterConfig, EventReader, name::OwnedName, reader::XmlEvent};

/// The namespace of WebDAV itself.
pub(crate) const DAV: &str = "DAV:";

/// What an element is called.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl From<&OwnedName> for Name {
    fn from(name: &OwnedName) -> Self {
        Self::new(name.namespace_ref().unwrap_or_default(), &name.local_name)
    }
}

/// All that is in a body, in order.
#[derive(Debug)]
pub(crate) struct Document(Vec<XmlEvent>);

impl Document {
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let is_content = |event: &XmlEvent| {
            !matches!(
                event,
                XmlEvent::StartDocument { .. }
                    | XmlEvent::EndDocument
                    | XmlEvent::ProcessingInstruction { .. }
            )
        };
        let events: Result<Vec<_>, _> = EventReader::new(body).into_iter().collect();
        Some(Self(events.ok()?.into_iter().filter(is_content).collect()))
    }

    /// The element that all others are in, if it is this one. The tokenizer lets more than one stand beside each other.
    pub(crate) fn top(&self, name: &Name) -> Option<Element<'_>> {
        match elements(&self.0)[..] {
            [top] if top.name() == *name => Some(top),
            _ => None,
        }
    }
}

/// From its start to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element<'e>(&'e [XmlEvent]);

impl<'e> Element<'e> {
    pub(crate) fn name(&self) -> Name {
        match self.0.first() {
            Some(XmlEvent::StartElement { name, .. }) => name.into(),
            _ => Name::new("", ""),
        }
    }

    /// The elements in it.
    pub(crate) fn children(&self) -> Vec<Element<'e>> {
        elements(&self.0[1..self.0.len() - 1])
    }

    /// Those of them that WebDAV calls so.
    pub(crate) fn named(&self, local: &str) -> Vec<Element<'e>> {
        let mut children = self.children();
        children.retain(|child| child.name().in_dav() == Some(local));
        children
    }

    /// It and all that is in it, with the namespaces that it needs.
    pub(crate) fn text(&self) -> Option<String> {
        let config = EmitterConfig::new()
            .write_document_declaration(false)
            .pad_self_closing(false);
        let mut writer = config.create_writer(Vec::new());
        for event in self.0.iter().filter_map(XmlEvent::as_writer_event) {
            writer.write(event).ok()?;
        }
        String::from_utf8(writer.into_inner()).ok()
    }
}

/// Those that are in no other of these.
fn elements(events: &[XmlEvent]) -> Vec<Element<'_>> {
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, event) in events.iter().enumerate() {
        match event {
            XmlEvent::StartElement { .. } => {
                if depth == 0 {
                    begin = at;
                }
                depth += 1;
            }
            XmlEvent::EndElement { .. } => {
                depth -= 1;
                if depth == 0 {
                    found.push(Element(&events[begin..=at]));
                }
            }
            _ => {}
        }
    }
    found
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
        let kept = top.children()[1].text().unwrap();
        let again = Document::read(kept.as_bytes()).unwrap();
        let again = again.top(&Name::new("urn:x", "c")).unwrap();
        assert_eq!(again.text().unwrap(), kept);
        assert!(
            kept.contains("xml:lang=\"de\"") && kept.contains("t &amp; "),
            "{kept}"
        );
        assert!(kept.contains("\u{10000}"), "{kept}");
    }
}
