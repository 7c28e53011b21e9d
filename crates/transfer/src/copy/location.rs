// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a copy begins or ends: a path here, `HOST:PATH` over there, or what a site exports.

use crate::protocol::address::{Address, SCHEME};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// A path on this machine or on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// `None` is this machine.
    pub host: Option<Host>,
    /// At a site, it begins with the export's name.
    pub path: OsString,
}

/// Another machine, and what leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// What ssh is given: a host, `USER@HOST`, or a name from its configuration.
    Ssh(String),
    /// What `longhaul site` exports there.
    Site {
        /// Where it listens.
        address: Address,
        /// Which of its directories.
        export: String,
    },
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(host) => f.write_str(host),
            Self::Site { address, export } => write!(f, "{SCHEME}{address}/{export}"),
        }
    }
}

impl Location {
    /// As scp and rsync read it: a colon before any slash divides host and path. `[2001:db8::1]:path` is a host with
    /// colons in it; `./a:b` is a path. `longhaul://HOST[:PORT]/EXPORT/PATH` is at a site; the path is taken as it is.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        if let Some(rest) = bytes.strip_prefix(SCHEME.as_bytes()) {
            return parse_site_location(rest, &text.to_string_lossy());
        }
        if let Some(scheme) = scheme(bytes) {
            return Err(Refusal::usage(format!(
                "{:?}: unknown scheme {scheme:?} (want a path, HOST:PATH or {SCHEME}SITE/EXPORT/PATH)",
                text.to_string_lossy()
            )));
        }
        let (host, path) = match split_host(bytes) {
            None => (None, bytes),
            Some((host, path)) => (Some(host), path),
        };
        let shown = text.to_string_lossy();
        let host = host.map(|host| {
            let host = std::str::from_utf8(host).ok();
            let host = host.filter(|host| is_host_name(host));
            let host = host.map(|host| Host::Ssh(host.to_owned()));
            host.ok_or_else(|| {
                Refusal::usage(format!(
                    "{shown:?}: what is before the colon is no host (a path with a colon: ./{shown})"
                ))
            })
        });
        let host = host.transpose()?;
        let path = match host {
            Some(_) => strip_home(path).ok_or_else(|| {
                Refusal::usage(format!("{shown:?}: no other user's home: say its path"))
            })?,
            None => path,
        };
        let path = OsString::from_vec(path.to_vec());
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

    /// Hosts that share the path, divided by commas before it: `a1,a2:/data`, `longhaul://s1,s2:7000/export/path`.
    pub fn parse_list(text: &OsStr) -> Result<Vec<Self>> {
        let bytes = text.as_bytes();
        let (before, hosts, path) = match bytes.strip_prefix(SCHEME.as_bytes()) {
            Some(rest) => {
                let end = rest.iter().position(|byte| *byte == b'/');
                let (hosts, path) = rest.split_at(end.unwrap_or(rest.len()));
                (SCHEME.as_bytes(), hosts, path)
            }
            None => match split_host(bytes) {
                Some((hosts, path)) if !bytes.starts_with(b"[") => {
                    (&b""[..], hosts, &bytes[bytes.len() - path.len() - 1..])
                }
                _ => return Ok(vec![Self::parse(text)?]),
            },
        };
        let one = |host| Self::parse(OsStr::from_bytes(&[before, host, path].concat()));
        hosts.split(|byte| *byte == b',').map(one).collect()
    }

    /// The site that it is at.
    pub fn site_address(&self) -> Option<&Address> {
        match &self.host {
            Some(Host::Site { address, .. }) => Some(address),
            _ => None,
        }
    }
}

/// What is behind `longhaul://`.
fn parse_site_location(rest: &[u8], shown: &str) -> Result<Location> {
    let wrong = |why: &str| {
        Refusal::usage(format!(
            "{shown:?}: {why} (want {SCHEME}HOST[:PORT]/EXPORT/PATH)"
        ))
    };
    let slash = rest.iter().position(|byte| *byte == b'/');
    let (address, path) = rest.split_at(slash.unwrap_or(rest.len()));
    let address = std::str::from_utf8(address).map_err(|_| wrong("no host"))?;
    let address = address.parse().map_err(|why: String| wrong(&why))?;
    let export = path.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
    let export = std::str::from_utf8(export).ok();
    let export = export.filter(|export| !export.is_empty());
    let export = export.ok_or_else(|| wrong("no export"))?.to_owned();
    Ok(Location {
        host: Some(Host::Site { address, export }),
        path: OsString::from_vec(path.to_vec()),
    })
}

/// What stands before `://`, if it can be a scheme (RFC 3986 §3.1).
fn scheme(text: &[u8]) -> Option<&str> {
    let end = text.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&text[..end]).ok()?;
    let rest = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let first = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (first && scheme.chars().all(rest)).then_some(scheme)
}

fn split_host(text: &[u8]) -> Option<(&[u8], &[u8])> {
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

/// `~/` is where ssh begins; a shell over there would know other homes. `./~` is a name.
fn strip_home(path: &[u8]) -> Option<&[u8]> {
    match path {
        b"~" => Some(b""),
        [b'~', b'/', rest @ ..] => {
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            Some(&rest[slashes..])
        }
        [b'~', ..] => None,
        _ => Some(path),
    }
}

/// ssh takes what begins with a hyphen for an option.
fn is_host_name(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@._-:%+".contains(c);
    !host.is_empty() && !host.starts_with('-') && host.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, String)> {
        let place = Location::parse(OsStr::new(text)).ok()?;
        let host = place.host.map(|host| host.to_string());
        Some((host, place.path.into_string().unwrap()))
    }

    #[test]
    fn a_colon_before_any_slash_is_a_host_s() {
        let there = |host: &str, path: &str| Some((Some(host.to_owned()), path.to_owned()));
        let here = |path: &str| Some((None, path.to_owned()));
        assert_eq!(parsed("far:/data"), there("far", "/data"));
        assert_eq!(parsed("me@far:a:b"), there("me@far", "a:b"));
        for home in ["far:", "far:~", "far:~/", "far:~//"] {
            assert_eq!(parsed(home), there("far", "."));
        }
        assert_eq!(parsed("far:~/a"), there("far", "a"));
        assert_eq!(parsed("far:~you/a"), None);
        assert_eq!(parsed("far:./~a"), there("far", "./~a"));
        assert_eq!(parsed("~a"), here("~a"));
        assert_eq!(parsed("[2001:db8::1]:/data"), there("2001:db8::1", "/data"));
        assert_eq!(parsed("./a:b"), here("./a:b"));
        assert_eq!(parsed("/a:b"), here("/a:b"));
        assert_eq!(parsed("a/b:c"), here("a/b:c"));
        assert_eq!(parsed("[a"), here("[a"));
    }

    #[test]
    fn hosts_may_share_a_path() {
        let all = |text: &str| {
            let places = Location::parse_list(OsStr::new(text)).ok()?;
            let shown = |place: Location| {
                let host = place.host.map(|host| format!("{host} "));
                host.unwrap_or_default() + place.path.to_str().unwrap()
            };
            Some(places.into_iter().map(shown).collect::<Vec<_>>())
        };
        let some = |places: &[&str]| Some(places.iter().map(ToString::to_string).collect());
        assert_eq!(all("a1,me@a2:/x,y:z"), some(&["a1 /x,y:z", "me@a2 /x,y:z"]));
        assert_eq!(all("[::1]:/x"), some(&["::1 /x"]));
        assert_eq!(all("./a,b:c"), some(&["./a,b:c"]));
        let sites = ["longhaul://s1/e /e/f", "longhaul://s2:7000/e /e/f"];
        assert_eq!(all("longhaul://s1,s2:7000/e/f"), some(&sites));
        assert_eq!(all("a1,:/x"), None);
        assert_eq!(all(",a:/x"), None);
    }

    #[test]
    fn a_site_s_path_begins_with_its_export() {
        let at = |host: &str, path: &str| Some((Some(host.to_owned()), path.to_owned()));
        assert_eq!(
            parsed("longhaul://far/data"),
            at("longhaul://far/data", "/data")
        );
        assert_eq!(
            parsed("longhaul://[::1]:7000/data/a b%20/"),
            at("longhaul://[::1]:7000/data", "/data/a b%20/")
        );
        for text in [
            "",
            "far",
            "far/",
            "/data",
            "far:x/data",
            "me@far/data",
            "far//data",
        ] {
            assert_eq!(parsed(&format!("longhaul://{text}")), None, "{text}");
        }
        // Not the scheme, but a host that is called so.
        assert_eq!(parsed("longhaul:/data"), at("longhaul", "/data"));
    }

    #[test]
    fn a_scheme_that_is_not_known_is_no_host() {
        for text in [
            "s3://bucket/x",
            "https://h/x",
            "file:///x",
            "far://x",
            "LONGHAUL://h/e",
        ] {
            let why = Location::parse(OsStr::new(text)).unwrap_err().to_string();
            assert!(why.contains("unknown scheme"), "{why}");
            assert!(Location::parse_list(OsStr::new(text)).is_err(), "{text}");
        }
        assert!(Location::parse_list(OsStr::new("s3://a,b/x")).is_err());
        assert_eq!(parsed("./s3://x"), Some((None, "./s3://x".to_owned())));
        let there = Some((Some("me@far".to_owned()), "//x".to_owned()));
        assert_eq!(parsed("me@far://x"), there);
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_host() {
        for text in ["-oProxyCommand=x:/data", ":/data", "a b:/data", "a;b:c", ""] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
