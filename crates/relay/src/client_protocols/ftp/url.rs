// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser of `ftp://` URLs (RFC 1738 §3.2). No I/O.

use hyper::Uri;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

/// User, password and path of an `ftp://` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) user: String,
    pub(crate) password: String,
    /// Path, relative to the user's home directory unless it begins with a slash. RFC 1738
    /// prescribes a CWD for each part; a single path saves those round trips, and servers accept
    /// it.
    pub(crate) path: String,
    /// URL as written, without user and password, for redirects.
    without_user: String,
}

impl Url {
    /// Parses a request's URI. `given` is user and password from the Authorization field; those in
    /// the URI take precedence.
    pub(crate) fn new(uri: &Uri, credentials: Option<(Vec<u8>, Vec<u8>)>) -> Result<Self, String> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match (user_info, credentials) {
            ("", None) => ("anonymous".to_owned(), "anonymous@".to_owned()),
            ("", Some((user, password))) => (checked_text(user)?, checked_text(password)?),
            (info, _) => {
                let (user, password) = info.split_once(':').unwrap_or((info, ""));
                (percent_decoded(user)?, percent_decoded(password)?)
            }
        };
        let raw = uri.path().strip_prefix('/').unwrap_or_default();
        let raw = raw.split_once(";type=").map_or(raw, |(path, _)| path);
        Ok(Self {
            user,
            password,
            path: percent_decoded(raw)?,
            without_user: format!("ftp://{host}/{raw}"),
        })
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.path.is_empty() || self.path.ends_with('/')
    }

    /// URL with a final slash.
    pub(crate) fn as_directory(&self) -> String {
        format!("{}/", self.without_user)
    }

    /// Media type guessed from the file name extension; by default, a byte stream.
    pub(crate) fn content_type(&self) -> &'static str {
        let end = self.path.rsplit_once('.').map_or("", |(_, end)| end);
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

fn percent_decoded(text: &str) -> Result<String, String> {
    checked_text(percent_decode_str(text).collect())
}

/// Decodes UTF-8 and rejects line ends, which would begin another FTP command.
fn checked_text(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "the URL is not UTF-8".to_owned())?;
    match text.contains(['\r', '\n', '\0']) {
        true => Err("the URL has control characters".to_owned()),
        false => Ok(text),
    }
}

/// Formats seconds since 1970 as an HTTP date (RFC 9110 §5.6.7).
pub(crate) fn http_date(seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    Some(time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<Url, String> {
        Url::new(&text.parse().unwrap(), None)
    }

    #[test]
    fn decodes_user_and_path() {
        let found = url("ftp://m%40e:s%2Fc@h.test:2121/a%20b/c.txt;type=i").unwrap();
        assert_eq!(
            (found.user.as_str(), found.password.as_str()),
            ("m@e", "s/c")
        );
        assert_eq!(found.path, "a b/c.txt");
        assert_eq!(found.content_type(), "text/plain");
        assert_eq!(found.as_directory(), "ftp://h.test:2121/a%20b/c.txt/");
        assert_eq!(url("ftp://h.test/%2Fetc/").unwrap().path, "/etc/");
    }

    #[test]
    fn takes_user_from_field_or_anonymous() {
        assert_eq!(url("ftp://h.test/").unwrap().user, "anonymous");
        let credentials = Some((b"me".to_vec(), b"secret".to_vec()));
        let found = Url::new(&"ftp://h.test/".parse().unwrap(), credentials).unwrap();
        assert_eq!(
            (found.user.as_str(), found.password.as_str()),
            ("me", "secret")
        );
    }

    #[test]
    fn rejects_control_characters() {
        for bad in [
            "ftp://h/a%0d%0aDELE%20b",
            "ftp://a%0ab@h/",
            "ftp://h/%00",
            "ftp://h/%ff",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn formats_http_dates() {
        let date = http_date(784_111_777).unwrap();
        assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
