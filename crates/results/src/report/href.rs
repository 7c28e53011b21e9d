// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links from one page to a file beside it or elsewhere on the disk.

use std::{fmt::Write, os::unix::ffi::OsStrExt, path::Path};

/// The relative URL of `file` for a page in the directory `from`; both are canonical.
pub(super) fn relative(from: &Path, file: &Path) -> String {
    let shared = from
        .components()
        .zip(file.components())
        .take_while(|(a, b)| a == b)
        .count();
    let up = "../".repeat(from.components().count() - shared);
    let down: std::path::PathBuf = file.components().skip(shared).collect();
    match up.is_empty() {
        true => format!("./{}", encoded(&down)),
        false => up + &encoded(&down),
    }
}

/// A path as part of a URL (RFC 3986, 2.3): all but unreserved bytes and `/` by their number.
pub(super) fn encoded(path: &Path) -> String {
    let mut url = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                url.push(char::from(*byte));
            }
            other => {
                let _ = write!(url, "%{other:02X}");
            }
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_go_down_or_up_and_down() {
        let link = |from, file| relative(Path::new(from), Path::new(file));
        assert_eq!(link("/a", "/a/b/report.html"), "./b/report.html");
        assert_eq!(link("/a/c", "/a/b/report.html"), "../b/report.html");
        assert_eq!(link("/", "/x?/50%.html"), "./x%3F/50%25.html");
    }
}
