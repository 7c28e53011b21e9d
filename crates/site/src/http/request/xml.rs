// SPDX-License-Identifier: MIT OR Apache-2.0
//! The XML of a request, checked before anything is made of it: no deeper, and no larger once it is read, than it need be.
//!
//! 64 KiB can name a long namespace a thousand times, or declare thousands of them for a thousand elements, and the
//! tokenizer copies all of that with each element. So this bounds what holds for an element, too.

use xml::{EventReader, ParserConfig, namespace::Namespace, reader::XmlEvent};

/// Bytes of a body that is XML, at most. A request holds so many, up to ten times as many as a tree, and 2 MiB more while
/// that is made.
pub const BODY_LEN_MAX: usize = 64 << 10;

/// Elements in each other, at most. RFC 4918 needs five; each costs some kilobytes of stack.
pub const DEPTH_MAX: usize = 32;

/// Elements of a request, at most: a PROPFIND names each property that it wants, and gets an answer of some 100 bytes to
/// each for every file.
pub const ELEMENTS_MAX: usize = 1024;

/// Namespaces that hold for an element, at most.
pub const NAMESPACES_MAX: usize = 64;

/// Bytes of them and their prefixes together, at most.
pub const NAMESPACES_LEN_MAX: usize = 4 << 10;

/// Attributes of an element, at most, and bytes of each: until an element is read nobody sees how long the namespace is that
/// each of its attributes is given.
const ATTRIBUTES_MAX: usize = 128;
const ATTRIBUTE_LEN_MAX: usize = 8 << 10;

/// Checks a body. An empty one is none.
///
/// # Errors
/// It is no XML, has a document type (RFC 4918 §20.6), or is beyond the bounds above.
pub fn check(body: &[u8]) -> Result<(), &'static str> {
    match body.is_empty() {
        true => Ok(()),
        false => read(body, |_| {}),
    }
}

/// Reads a body bit by bit.
///
/// # Errors
/// As [`check`]; an empty one is no XML.
pub(super) fn read(body: &[u8], mut take: impl FnMut(XmlEvent)) -> Result<(), &'static str> {
    if body.len() > BODY_LEN_MAX {
        return Err("the body is too long");
    }
    let config = ParserConfig::new()
        .ignore_comments(false)
        .max_attributes(ATTRIBUTES_MAX)
        .max_attribute_length(ATTRIBUTE_LEN_MAX);
    let mut reader = EventReader::new_with_config(body, config);
    let mut bounds = Bounds::default();
    loop {
        let event = reader
            .next()
            .map_err(|_| "the body is no XML, or has too long attributes")?;
        if let XmlEvent::EndDocument = event {
            return Ok(());
        }
        bounds.check(&event)?;
        take(event);
    }
}

/// How much of a body is read.
#[derive(Default)]
struct Bounds {
    depth: usize,
    elements: usize,
}

impl Bounds {
    fn check(&mut self, event: &XmlEvent) -> Result<(), &'static str> {
        match event {
            XmlEvent::StartElement { namespace, .. } => {
                self.depth += 1;
                self.elements += 1;
                check_namespaces(namespace)?;
            }
            XmlEvent::EndElement { .. } => self.depth -= 1,
            XmlEvent::Doctype { .. } => return Err("the body has a document type"),
            _ => {}
        }
        match (self.depth > DEPTH_MAX, self.elements > ELEMENTS_MAX) {
            (true, _) => Err("the body has elements that are nested too deep"),
            (_, true) => Err("the body has too many elements"),
            _ => Ok(()),
        }
    }
}

fn check_namespaces(declared: &Namespace) -> Result<(), &'static str> {
    let len: usize = declared
        .iter()
        .map(|(prefix, uri)| prefix.len() + uri.len())
        .sum();
    // Three hold everywhere: "xml", "xmlns", and none.
    match declared.0.len() > NAMESPACES_MAX + 3 || len > NAMESPACES_LEN_MAX {
        true => Err("the body declares too many or too long namespaces"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        "<a>".repeat(depth) + &"</a>".repeat(depth)
    }

    #[test]
    fn refuses_what_is_deeper_or_larger_than_a_request_needs() {
        assert_eq!(check(b""), Ok(()));
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
    fn refuses_entities_and_what_is_no_xml() {
        let laughs = "<!DOCTYPE a [<!ENTITY b \"<c><c><c/></c></c>\">]><a>&b;&b;</a>";
        for body in [laughs, "<!DOCTYPE a><a/>", "x", "<a", "<a></b>", "\0"] {
            assert!(check(body.as_bytes()).is_err(), "{body}");
        }
    }

    /// The tokenizer copies all that hold for an element with it.
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

    /// Not everything that looks like a tag is one.
    #[test]
    fn counts_elements_and_no_comments() {
        let tags = "<a>".repeat(100);
        let body = format!("<a><!-- {tags} --><![CDATA[{tags}]]><?b {tags}?><c d=\"'>\"/></a>");
        assert_eq!(check(body.as_bytes()), Ok(()));
    }
}
