// SPDX-License-Identifier: MIT OR Apache-2.0
//! The XML of a request, checked before a library builds a tree of it: that calls itself for each element in an element,
//! and would run out of stack.
//!
//! This uses the tokenizer that the library uses, so that both see the same elements.

use xml::{EventReader, ParserConfig, reader::XmlEvent};

/// Bytes of a body that is XML, at most. A request holds so many, and up to ten times as many as a tree.
pub const BODY_LEN_MAX: usize = 64 << 10;

/// Elements in each other, at most. RFC 4918 needs five; each costs some kilobytes of stack.
pub const DEPTH_MAX: usize = 32;

/// Elements of a request, at most: a PROPFIND names each property that it wants, and gets an answer of some 100 bytes to
/// each for every file.
pub const ELEMENTS_MAX: usize = 1024;

/// Checks a body. An empty one is none.
///
/// # Errors
/// It is no XML, has a document type (RFC 4918 §20.6), or is larger or deeper than the bounds above.
pub fn check(body: &[u8]) -> Result<(), &'static str> {
    if body.is_empty() {
        return Ok(());
    }
    if body.len() > BODY_LEN_MAX {
        return Err("the body is too long");
    }
    let config = ParserConfig::new().ignore_comments(false);
    let mut reader = EventReader::new_with_config(body, config);
    let (mut depth, mut elements) = (0, 0);
    loop {
        match reader.next() {
            Ok(XmlEvent::StartElement { .. }) => (depth, elements) = (depth + 1, elements + 1),
            Ok(XmlEvent::EndElement { .. }) => depth -= 1,
            Ok(XmlEvent::Doctype { .. }) => return Err("the body has a document type"),
            Ok(XmlEvent::EndDocument) => return Ok(()),
            Ok(_) => {}
            Err(_) => return Err("the body is no XML"),
        }
        if depth > DEPTH_MAX {
            return Err("the body has too many elements in each other");
        }
        if elements > ELEMENTS_MAX {
            return Err("the body has too many elements");
        }
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

    /// Not everything that looks like a tag is one.
    #[test]
    fn counts_elements_and_no_comments() {
        let tags = "<a>".repeat(100);
        let body = format!("<a><!-- {tags} --><![CDATA[{tags}]]><?b {tags}?><c d=\"'>\"/></a>");
        assert_eq!(check(body.as_bytes()), Ok(()));
    }
}
