// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks relative paths: an accepted path names an entry below a directory, also after joining with another. All
//! others are refused with an error of bounded length.
//!
//! The input is the length of the first path (16 bits), and both paths.

use longhaul_store::path::{NAME_LEN_MAX, PATH_LEN_MAX, RelPath};
use std::path::{Component, Path};

/// Maximum length of an error: 200 bytes, each escaped in the longest form, and the reason.
const ERROR_LEN_MAX: usize = 200 * 10 + 200;

pub(crate) fn check(input: &[u8]) {
    let Some((length, bytes)) = input.split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_be_bytes(*length)).min(bytes.len());
    let (one, other) = bytes.split_at(length);
    for bytes in [one, other, bytes] {
        check_parsed(bytes);
    }
    if let Ok(dir) = RelPath::parse(one) {
        check_joined(&dir, other);
    }
}

/// Parses a path, and compares the outcome with an independent check.
fn check_parsed(bytes: &[u8]) -> Option<RelPath> {
    let parsed = RelPath::parse(bytes);
    assert_eq!(parsed.is_ok(), is_plain(bytes), "{parsed:?}");
    assert_eq!(RelPath::try_from(bytes.to_vec()), parsed);
    match parsed {
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.len() <= ERROR_LEN_MAX && is_one_line(&message),
                "{message}"
            );
            None
        }
        Ok(path) => {
            check_containment(&path);
            check_round_trip(&path, bytes);
            Some(path)
        }
    }
}

fn is_plain(bytes: &[u8]) -> bool {
    let has_invalid_end = bytes.is_empty() || bytes.starts_with(b"/") || bytes.ends_with(b"/");
    let has = |part: &[u8]| {
        let slashed = [b"/", bytes, b"/"].concat();
        slashed.windows(part.len()).any(|window| window == part)
    };
    let has_long_name = bytes
        .split(|byte| *byte == b'/')
        .any(|name| name.len() > NAME_LEN_MAX);
    let has_invalid_component = [&b"//"[..], b"/./", b"/../", b"\0"].into_iter().any(has);
    !(has_invalid_end || has_long_name || has_invalid_component || bytes.len() > PATH_LEN_MAX)
}

/// Checks with the standard library that a path stays below its directory.
fn check_containment(path: &RelPath) {
    let top = Path::new("/top/of/it");
    let normal = |component: Component<'_>| matches!(component, Component::Normal(_));
    assert!(path.as_path().components().all(normal));
    let full = top.join(path.as_path());
    assert_eq!(full.strip_prefix(top), Ok(path.as_path()));
    let names = path.as_path().components().count();
    assert_eq!(names, path.components().count());
    assert!(path.as_bytes().len() <= PATH_LEN_MAX && !path.as_bytes().contains(&0));
}

fn check_round_trip(path: &RelPath, bytes: &[u8]) {
    assert_eq!(path.as_bytes(), bytes);
    assert_eq!(path.components().collect::<Vec<_>>().join(&b'/'), bytes);
    assert_eq!(postcard_of(path).as_ref(), Ok(path));
    let whole = match path.parent() {
        Some(parent) => parent.join(path.name()).unwrap(),
        None => RelPath::parse(path.name()).unwrap(),
    };
    assert_eq!(whole, *path);
    assert!(is_one_line(&path.to_string()));
}

/// Encodes and decodes a path as the endpoints of a copy do.
fn postcard_of(path: &RelPath) -> Result<RelPath, postcard::Error> {
    postcard::from_bytes(&postcard::to_stdvec(path)?)
}

fn check_joined(dir: &RelPath, name: &[u8]) {
    let whole = [dir.as_bytes(), b"/", name].concat();
    let Ok(path) = dir.join(name) else {
        assert!(!is_plain(&whole));
        return;
    };
    assert_eq!(path.as_bytes(), whole);
    check_containment(&path);
    let below = RelPath::parse(name).unwrap();
    assert_eq!(path.strip_prefix(dir), Some(below.clone()));
    assert_eq!(dir.join_path(&below), Ok(path.clone()));
    assert!(*dir < path, "a directory comes before what is in it");
    assert_eq!(path.is_internal(), dir.is_internal() || below.is_internal());
}

fn is_one_line(message: &str) -> bool {
    !message.contains(char::is_control)
}
