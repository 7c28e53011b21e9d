// SPDX-License-Identifier: MIT OR Apache-2.0
//! Location of a source or a target: a local path, `HOST:PATH`, or a path in an export of a site.

use crate::protocol::address::{Address, SCHEME};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Path on this machine or on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Host of the path; `None` for this machine.
    pub host: Option<Host>,
    /// Path on the host. At a site it starts with the name of the export.
    pub path: OsString,
}

/// Remote machine, and the method to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// Argument of ssh: a host, `USER@HOST`, or a name from its configuration.
    Ssh(String),
    /// Export of a `longhaul site`.
    Site {
        /// Address of the site.
        address: Address,
        /// Name of the export.
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
    /// Parses a location as scp and rsync do: a colon before any slash separates host and path. `[2001:db8::1]:path` has a
    /// host with colons, and `./a:b` is a path. `longhaul://HOST[:PORT]/EXPORT/PATH` is at a site, and its path is taken
    /// literally.
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
        let display = text.to_string_lossy();
        if host.is_some() && path.starts_with(b":") {
            return Err(Refusal::usage(format!(
                "{display:?}: this is a module of an rsync daemon (want HOST:PATH; a path with a colon: HOST:./:…)"
            )));
        }
        let host = host.map(|host| {
            let host = std::str::from_utf8(host).ok();
            let host = host.filter(|host| is_host_name(host));
            let host = host.map(|host| Host::Ssh(host.to_owned()));
            host.ok_or_else(|| {
                Refusal::usage(format!(
                    "{display:?}: the text before the colon is not a host name (a path with a colon: ./{display})"
                ))
            })
        });
        let host = host.transpose()?;
        let path = match host {
            Some(_) => strip_home(path).ok_or_else(|| {
                Refusal::usage(format!(
                    "{display:?}: homes of other users are not supported: give the path"
                ))
            })?,
            None => path,
        };
        let path = OsString::from_vec(path.to_vec());
        match (&host, path.is_empty()) {
            (None, true) => Err(Refusal::usage("\"\": no path")),
            // An empty path is the home directory, where ssh starts.
            (Some(_), true) => Ok(Self {
                host,
                path: ".".into(),
            }),
            _ => Ok(Self { host, path }),
        }
    }

    /// Parses a path with a comma-separated list of hosts: `a1,a2:/data`, `longhaul://s1,s2:7000/export/path`.
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
        let parse_one = |host| Self::parse(OsStr::from_bytes(&[before, host, path].concat()));
        hosts.split(|byte| *byte == b',').map(parse_one).collect()
    }

    /// Returns the address of the site, if the location is at a site.
    pub fn site_address(&self) -> Option<&Address> {
        match &self.host {
            Some(Host::Site { address, .. }) => Some(address),
            _ => None,
        }
    }
}

/// Parses the rest of a URL after `longhaul://`.
fn parse_site_location(rest: &[u8], text: &str) -> Result<Location> {
    let invalid = |why: &str| {
        Refusal::usage(format!(
            "{text:?}: {why} (want {SCHEME}HOST[:PORT]/EXPORT/PATH)"
        ))
    };
    let slash = rest.iter().position(|byte| *byte == b'/');
    let (address, path) = rest.split_at(slash.unwrap_or(rest.len()));
    let address = std::str::from_utf8(address).map_err(|_| invalid("no host"))?;
    let address = address.parse().map_err(|why: String| invalid(&why))?;
    let export = path.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
    let export = std::str::from_utf8(export).ok();
    let export = export.filter(|export| !export.is_empty());
    let export = export.ok_or_else(|| invalid("no export"))?.to_owned();
    Ok(Location {
        host: Some(Host::Site { address, export }),
        path: OsString::from_vec(path.to_vec()),
    })
}

/// Returns the text before `://`, if it is a valid scheme (RFC 3986 §3.1).
fn scheme(text: &[u8]) -> Option<&str> {
    let end = text.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&text[..end]).ok()?;
    let rest = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let first = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (first && scheme.chars().all(rest)).then_some(scheme)
}

/// Splits a location into host and path.
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

/// Removes `~/`, the home directory, in which ssh starts. `None` for the home of another user, which only a remote shell
/// could find. `./~` is a plain name.
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

/// Whether the text is a plausible host. ssh would take a leading hyphen for an option.
fn is_host_name(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@._-:%+".contains(c);
    !host.is_empty() && !host.starts_with('-') && host.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, String)> {
        let location = Location::parse(OsStr::new(text)).ok()?;
        let host = location.host.map(|host| host.to_string());
        Some((host, location.path.into_string().unwrap()))
    }

    #[test]
    fn splits_host_and_path_at_a_colon_before_any_slash() {
        let remote = |host: &str, path: &str| Some((Some(host.to_owned()), path.to_owned()));
        let local = |path: &str| Some((None, path.to_owned()));
        assert_eq!(parsed("far:/data"), remote("far", "/data"));
        assert_eq!(parsed("me@far:a:b"), remote("me@far", "a:b"));
        for home in ["far:", "far:~", "far:~/", "far:~//"] {
            assert_eq!(parsed(home), remote("far", "."));
        }
        assert_eq!(parsed("far:~/a"), remote("far", "a"));
        assert_eq!(parsed("far:~you/a"), None);
        assert_eq!(parsed("far:./~a"), remote("far", "./~a"));
        assert_eq!(parsed("~a"), local("~a"));
        assert_eq!(
            parsed("[2001:db8::1]:/data"),
            remote("2001:db8::1", "/data")
        );
        assert_eq!(parsed("./a:b"), local("./a:b"));
        assert_eq!(parsed("/a:b"), local("/a:b"));
        assert_eq!(parsed("a/b:c"), local("a/b:c"));
        assert_eq!(parsed("[a"), local("[a"));
    }

    #[test]
    fn parses_comma_separated_hosts() {
        let all = |text: &str| {
            let locations = Location::parse_list(OsStr::new(text)).ok()?;
            let describe = |location: Location| {
                let host = location.host.map(|host| format!("{host} "));
                host.unwrap_or_default() + location.path.to_str().unwrap()
            };
            Some(locations.into_iter().map(describe).collect::<Vec<_>>())
        };
        let some = |locations: &[&str]| Some(locations.iter().map(ToString::to_string).collect());
        assert_eq!(all("a1,me@a2:/x,y:z"), some(&["a1 /x,y:z", "me@a2 /x,y:z"]));
        assert_eq!(all("[::1]:/x"), some(&["::1 /x"]));
        assert_eq!(all("./a,b:c"), some(&["./a,b:c"]));
        let sites = ["longhaul://s1/e /e/f", "longhaul://s2:7000/e /e/f"];
        assert_eq!(all("longhaul://s1,s2:7000/e/f"), some(&sites));
        assert_eq!(all("a1,:/x"), None);
        assert_eq!(all(",a:/x"), None);
    }

    #[test]
    fn site_paths_start_with_the_export() {
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
        // A host with the name of the scheme.
        assert_eq!(parsed("longhaul:/data"), at("longhaul", "/data"));
    }

    #[test]
    fn rejects_unknown_schemes() {
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
        let remote = Some((Some("me@far".to_owned()), "//x".to_owned()));
        assert_eq!(parsed("me@far://x"), remote);
    }

    #[test]
    fn rejects_hosts_that_ssh_would_take_for_options() {
        for text in ["-oProxyCommand=x:/data", ":/data", "a b:/data", "a;b:c", ""] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
