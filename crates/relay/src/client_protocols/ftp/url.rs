// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser of `ftp://` URLs (RFC 1738 §3.2). No I/O.

use hyper::Uri;
use jiff::civil::DateTime;
use longhaul_protocol::ftp::{Argument, ControlCharacter};
use percent_encoding::percent_decode_str;

/// User, password and path of an `ftp://` URL: bytes in whatever character set the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) user: Argument,
    pub(crate) password: Argument,
    /// Path, relative to the user's home directory unless it begins with a slash. RFC 1738
    /// prescribes a CWD for each part; a single path saves those round trips, and servers accept
    /// it.
    pub(crate) path: Argument,
    /// URL as written, without user and password, for redirects.
    without_user: String,
}

impl Url {
    /// Parses a request's URI. `given` is user and password from the Authorization field; those in
    /// the URI take precedence.
    pub(crate) fn new(uri: &Uri, credentials: Option<(Vec<u8>, Vec<u8>)>) -> Result<Self, String> {
        Self::parse(uri, credentials).map_err(|error| format!("the URL: {error}"))
    }

    fn parse(uri: &Uri, credentials: Option<(Vec<u8>, Vec<u8>)>) -> Result<Self, ControlCharacter> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match (user_info, credentials) {
            ("", None) => (Argument::new("anonymous")?, Argument::new("anonymous@")?),
            ("", Some((user, password))) => (Argument::new(user)?, Argument::new(password)?),
            (info, _) => {
                let (user, password) = info.split_once(':').unwrap_or((info, ""));
                (percent_decoded(user)?, percent_decoded(password)?)
            }
        };
        // An ftp:// URL has no query: a question mark is part of the name.
        let raw = uri.path_and_query().map_or("", |path| path.as_str());
        let raw = raw.strip_prefix('/').unwrap_or(raw);
        let raw = raw.split_once(";type=").map_or(raw, |(path, _)| path);
        Ok(Self {
            user,
            password,
            path: percent_decoded(raw)?,
            without_user: format!("ftp://{host}/{raw}"),
        })
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.path.as_bytes(), [] | [.., b'/'])
    }

    /// URL with a final slash.
    pub(crate) fn as_directory(&self) -> String {
        format!("{}/", self.without_user)
    }

    /// Media type guessed from the file name extension; by default, a byte stream.
    pub(crate) fn content_type(&self) -> &'static str {
        let path = String::from_utf8_lossy(self.path.as_bytes());
        let end = path.rsplit_once('.').map_or("", |(_, end)| end);
        match end.to_ascii_lowercase().as_str() {
            "html" | "htm" => "text/html",
            "txt" | "md" | "asc" => "text/plain",
            "css" => "text/css",
            "js" => "text/javascript",
            "json" => "application/json",
            "xml" => "application/xml",
            "pdf" => "application/pdf",
            "png" => "image/png",
            "jpg" | "jpeg" => "image/jpeg",
            "gif" => "image/gif",
            "svg" => "image/svg+xml",
            "zip" => "application/zip",
            "gz" | "tgz" => "application/gzip",
            _ => "application/octet-stream",
        }
    }
}

fn percent_decoded(text: &str) -> Result<Argument, ControlCharacter> {
    Argument::new(percent_decode_str(text).collect::<Vec<_>>())
}

/// Formats a time in UTC as an HTTP date (RFC 9110 §5.6.7).
pub(crate) fn http_date(time: DateTime) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<Url, String> {
        Url::new(&text.parse().unwrap(), None)
    }

    fn bytes(argument: &Argument) -> &[u8] {
        argument.as_bytes()
    }

    #[test]
    fn decodes_user_and_path() {
        let found = url("ftp://m%40e:s%2Fc@h.test:2121/a%20b/c.txt;type=i").unwrap();
        assert_eq!(
            (bytes(&found.user), bytes(&found.password)),
            (&b"m@e"[..], &b"s/c"[..])
        );
        assert_eq!(bytes(&found.path), b"a b/c.txt");
        assert_eq!(found.content_type(), "text/plain");
        assert_eq!(found.as_directory(), "ftp://h.test:2121/a%20b/c.txt/");
        assert_eq!(bytes(&url("ftp://h.test/%2Fetc/").unwrap().path), b"/etc/");
    }

    #[test]
    fn keeps_bytes_of_any_character_set() {
        for (text, path) in [
            ("ftp://h/%93%FA%96%7B.txt", &b"\x93\xfa\x96{.txt"[..]),
            ("ftp://h/%C9t%E9.txt", b"\xc9t\xe9.txt"),
            ("ftp://h/%20lead%20", b" lead "),
            ("ftp://h/a?b%3f", b"a?b?"),
        ] {
            assert_eq!(bytes(&url(text).unwrap().path), path, "{text}");
        }
        assert_eq!(bytes(&url("ftp://%E9:%FF@h/").unwrap().user), b"\xe9");
        assert_eq!(
            url("ftp://h/a%93.txt").unwrap().content_type(),
            "text/plain"
        );
    }

    #[test]
    fn takes_user_from_field_or_anonymous() {
        assert_eq!(bytes(&url("ftp://h.test/").unwrap().user), b"anonymous");
        let credentials = Some((b"me".to_vec(), b"secret".to_vec()));
        let found = Url::new(&"ftp://h.test/".parse().unwrap(), credentials).unwrap();
        assert_eq!(
            (bytes(&found.user), bytes(&found.password)),
            (&b"me"[..], &b"secret"[..])
        );
        let two_commands = Some((b"me\r\nDELE a".to_vec(), Vec::new()));
        assert!(Url::new(&"ftp://h/".parse().unwrap(), two_commands).is_err());
    }

    #[test]
    fn rejects_control_characters() {
        for bad in ["ftp://h/a%0d%0aDELE%20b", "ftp://a%0ab@h/", "ftp://h/%00"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn formats_http_dates() {
        let date = http_date(jiff::civil::date(1994, 11, 6).at(8, 49, 37, 0));
        assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
