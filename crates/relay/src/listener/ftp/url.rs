// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an `ftp://` URL asks for (RFC 1738 §3.2). No I/O.

use hyper::Uri;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

/// Who asks for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) user: String,
    pub(crate) password: String,
    /// Relative to where the server puts the user, unless it begins with a slash. RFC 1738 wants a
    /// CWD for each part; all at once saves as many round trips, and servers know it.
    pub(crate) path: String,
    /// As the client wrote it, for redirections; without user and password.
    written: String,
}

impl Url {
    /// From a request's URI. `given` is the user and password of its Authorization field, if any;
    /// those in the URI come first.
    pub(crate) fn new(uri: &Uri, given: Option<(Vec<u8>, Vec<u8>)>) -> Result<Self, String> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match (user_info, given) {
            ("", None) => ("anonymous".to_owned(), "anonymous@".to_owned()),
            ("", Some((user, password))) => (clean(user)?, clean(password)?),
            (info, _) => {
                let (user, password) = info.split_once(':').unwrap_or((info, ""));
                (decoded(user)?, decoded(password)?)
            }
        };
        let raw = uri.path().strip_prefix('/').unwrap_or_default();
        let raw = raw.split_once(";type=").map_or(raw, |(path, _)| path);
        Ok(Self {
            user,
            password,
            path: decoded(raw)?,
            written: format!("ftp://{host}/{raw}"),
        })
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.path.is_empty() || self.path.ends_with('/')
    }

    /// The same place with a final slash.
    pub(crate) fn as_directory(&self) -> String {
        format!("{}/", self.written)
    }

    /// A guess from the name's end; in doubt, bytes.
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

fn decoded(text: &str) -> Result<String, String> {
    clean(percent_decode_str(text).collect())
}

/// A line end would begin another FTP command.
fn clean(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "the URL is not UTF-8".to_owned())?;
    match text.contains(['\r', '\n', '\0']) {
        true => Err("the URL has control characters".to_owned()),
        false => Ok(text),
    }
}

/// RFC 9110 §5.6.7, from seconds since 1970.
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
    fn users_and_paths_are_decoded() {
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
    fn without_a_user_it_is_the_field_s_or_nobody() {
        assert_eq!(url("ftp://h.test/").unwrap().user, "anonymous");
        let given = Some((b"me".to_vec(), b"secret".to_vec()));
        let found = Url::new(&"ftp://h.test/".parse().unwrap(), given).unwrap();
        assert_eq!(
            (found.user.as_str(), found.password.as_str()),
            ("me", "secret")
        );
    }

    #[test]
    fn no_url_smuggles_a_command() {
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
    fn dates_are_those_of_http() {
        let date = http_date(784_111_777).unwrap();
        assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
