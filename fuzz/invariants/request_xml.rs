// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks WebDAV bodies: for an accepted body a library builds a tree within the bounds of depth and size.
//!
//! The input is the body.

use longhaul_site::xml::{BODY_LEN_MAX, DEPTH_MAX, ELEMENTS_MAX, read};
use xmltree::{Element, XMLNode};

pub(crate) fn check(input: &[u8]) {
    if read(input, |_| {}).is_err() {
        return;
    }
    assert!(input.len() <= BODY_LEN_MAX);
    let nodes = Element::parse_all(input);
    let nodes = nodes.expect("the library reads what the check has read");
    let (mut elements, mut rest) = (0, vec![(1, nodes)]);
    while let Some((depth, nodes)) = rest.pop() {
        for node in nodes {
            if let XMLNode::Element(element) = node {
                assert!(depth <= DEPTH_MAX);
                elements += 1;
                rest.push((depth + 1, element.children));
            }
        }
    }
    assert!(elements <= ELEMENTS_MAX);
}
