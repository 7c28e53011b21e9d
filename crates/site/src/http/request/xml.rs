// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on the XML of a request, checked before it is processed: depth, number of elements, and size once parsed.
//!
//! 64 KiB can name a long namespace a thousand times, or declare thousands of them for a thousand elements. The
//! tokenizer copies all of that with each element. The namespaces in scope are therefore bounded, too.

use xml::{EventReader, ParserConfig, namespace::Namespace, reader::XmlEvent};

/// Longest XML body, in bytes. A request holds it, up to ten times as much for its tree, and 2 MiB more while the
/// tree is built.
pub const BODY_LEN_MAX: usize = 64 << 10;

/// Deepest nesting of elements. RFC 4918 needs five; each costs some kilobytes of stack.
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

/// Checks a body. An empty one passes.
///
/// # Errors
/// The body is not XML, has a document type (RFC 4918 §20.6), or exceeds the bounds above.
pub fn check(body: &[u8]) -> Result<(), &'static str> {
    if body.is_empty() {
        Ok(())
    } else {
        read(body, |_| {})
    }
}

/// Parses a body into events.
///
/// # Errors
/// See [`check`]. An empty body is an error here.
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
            .map_err(|_| "the body is not XML, or has attributes that are too long")?;
        if let XmlEvent::EndDocument = event {
            return Ok(());
        }
        bounds.check(&event)?;
        take(event);
    }
}

/// Counts of a body so far.
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
    // Three are always in scope: "xml", "xmlns", and none.
    if declared.0.len() > NAMESPACES_MAX + 3 || len > NAMESPACES_LEN_MAX {
        Err("the body declares too many or too long namespaces")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        "<a>".repeat(depth) + &"</a>".repeat(depth)
    }

    #[test]
    fn refuses_deep_or_large_xml() {
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
}
