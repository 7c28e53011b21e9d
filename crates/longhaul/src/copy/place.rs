// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a copy begins or ends: a path here, or `HOST:PATH` over there.

use crate::exit::Refusal;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// A path on this machine or on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// What ssh is given: a host, `USER@HOST`, or a name from its configuration; `None` is this machine.
    pub(super) host: Option<String>,
    pub(super) path: OsString,
}

impl Place {
    /// As scp and rsync read it: a colon before any slash divides host and path. `[2001:db8::1]:path` is a host with
    /// colons in it; `./a:b` is a path.
    pub(super) fn parse(text: &OsStr) -> anyhow::Result<Self> {
        let bytes = text.as_bytes();
        let (host, path) = match split(bytes) {
            None => (None, bytes),
            Some((host, path)) => (Some(host), path),
        };
        let shown = text.to_string_lossy();
        let host = host.map(|host| {
            let host = std::str::from_utf8(host).ok();
            let host = host.filter(|host| is_host(host));
            host.map(str::to_owned).ok_or_else(|| {
                Refusal::usage(format!(
                    "{shown:?}: what is before the colon is no host (a path with a colon: ./{shown})"
                ))
            })
        });
        let (host, path) = (host.transpose()?, OsString::from_vec(path.to_vec()));
        match (&host, path.is_empty()) {
            (None, true) => Err(Refusal::usage("\"\": no path")),
            // ssh begins at home.
            (Some(_), true) => Ok(Self {
                host,
                path: ".".into(),
            }),
            _ => Ok(Self { host, path }),
        }
    }
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(rest) = text.strip_prefix(b"[") {
        let end = rest.windows(2).position(|two| two == b"]:")?;
        return Some((&rest[..end], &rest[end + 2..]));
    }
    let colon = text
        .iter()
        .position(|byte| matches!(byte, b':' | b'/'))
        .filter(|at| text[*at] == b':')?;
    Some((&text[..colon], &text[colon + 1..]))
}

/// ssh takes what begins with a hyphen for an option.
fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@._-:%+".contains(c);
    !host.is_empty() && !host.starts_with('-') && host.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, String)> {
        let place = Place::parse(OsStr::new(text)).ok()?;
        Some((place.host, place.path.into_string().unwrap()))
    }

    #[test]
    fn a_colon_before_any_slash_is_a_host_s() {
        let there = |host: &str, path: &str| Some((Some(host.to_owned()), path.to_owned()));
        let here = |path: &str| Some((None, path.to_owned()));
        assert_eq!(parsed("far:/data"), there("far", "/data"));
        assert_eq!(parsed("me@far:a:b"), there("me@far", "a:b"));
        assert_eq!(parsed("far:"), there("far", "."));
        assert_eq!(parsed("[2001:db8::1]:/data"), there("2001:db8::1", "/data"));
        assert_eq!(parsed("./a:b"), here("./a:b"));
        assert_eq!(parsed("/a:b"), here("/a:b"));
        assert_eq!(parsed("a/b:c"), here("a/b:c"));
        assert_eq!(parsed("[a"), here("[a"));
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_host() {
        for text in ["-oProxyCommand=x:/data", ":/data", "a b:/data", "a;b:c", ""] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
