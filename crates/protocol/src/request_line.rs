// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first line of an HTTP request (RFC 9112 §3) as people's programs send it. What no URL may hold is encoded where
//! it can mean one thing only; what may mean two is refused, with the reason. And where a head ends. No I/O.

use std::borrow::Cow;

/// Why a request line is refused, as a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestLineError {
    /// The line does not have exactly three words.
    #[error(
        "the request line has {0} words, and must have three: METHOD URL HTTP/1.1 (a space in a URL is %20)"
    )]
    Words(usize),
    /// The third word is not a version of HTTP/1.
    #[error("the request line ends with {0:?}, and this proxy takes HTTP/1.1 and HTTP/1.0")]
    Version(String),
    /// The URL has a character that some server takes for the end of a line or a word.
    #[error("the URL has the control character 0x{0:02x}; in a URL it is %{0:02X}")]
    Control(u8),
    /// A fragment, which is never sent, or a part of the path that was not encoded.
    #[error("the URL has a '#': in a path it is %23, and what is behind it is never sent")]
    Fragment,
}

/// Puts the request line at the beginning of `head` right: none if it is right as it is. What has to be encoded in a
/// path or query are `"`, `<`, `>` and the backtick, and bytes above 0x7f if they are not UTF-8.
pub fn encode_request_line(head: &[u8]) -> Result<Option<Vec<u8>>, RequestLineError> {
    let end = head.iter().position(|byte| *byte == b'\n');
    let line = &head[..end.unwrap_or(head.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let [method, url, version] = words[..] else {
        return Err(RequestLineError::Words(words.len()));
    };
    if ![&b"HTTP/1.1"[..], b"HTTP/1.0"].contains(&version) {
        let version = String::from_utf8_lossy(version).into_owned();
        return Err(RequestLineError::Version(version));
    }
    let encoded = encode_url(url)?;
    Ok(match encoded {
        Cow::Borrowed(_) => None,
        Cow::Owned(url) => Some(
            [
                method,
                b" ",
                &url,
                &head[method.len() + 1 + words[1].len()..],
            ]
            .concat(),
        ),
    })
}

fn encode_url(url: &[u8]) -> Result<Cow<'_, [u8]>, RequestLineError> {
    if let Some(control) = url.iter().find(|byte| byte.is_ascii_control()) {
        return Err(RequestLineError::Control(*control));
    }
    if url.contains(&b'#') {
        return Err(RequestLineError::Fragment);
    }
    let is_text = std::str::from_utf8(url).is_ok();
    let is_bad = |byte: u8| b"\"<>`".contains(&byte) || (!byte.is_ascii() && !is_text);
    let (host, path) = url.split_at(path_of(url));
    if !path.iter().any(|byte| is_bad(*byte)) {
        return Ok(Cow::Borrowed(url));
    }
    let encode = |byte: &u8| {
        if is_bad(*byte) {
            format!("%{byte:02X}").into_bytes()
        } else {
            vec![*byte]
        }
    };
    let path: Vec<u8> = path.iter().flat_map(encode).collect();
    Ok(Cow::Owned([host, &path].concat()))
}

/// Returns the position of path and query, after scheme and authority if there are any.
fn path_of(url: &[u8]) -> usize {
    let authority = url
        .windows(3)
        .position(|three| three == b"://")
        .map_or(0, |at| at + 3);
    let begin = url[authority..]
        .iter()
        .position(|byte| b"/?".contains(byte));
    begin.map_or(url.len(), |at| authority + at)
}

/// Bytes of empty lines before a request, which do not count (RFC 9112 §2.2).
#[must_use]
pub fn empty_lines(bytes: &[u8]) -> usize {
    let is_break = |byte: &u8| b"\r\n".contains(byte);
    let begin = bytes.iter().position(|byte| !is_break(byte));
    begin.unwrap_or(bytes.len())
}

/// Whether it begins as no method does (RFC 9110 §5.6.2, token): what speaks another protocol would wait for an answer
/// as long as its reader for an end.
#[must_use]
pub fn is_hopeless(bytes: &[u8]) -> bool {
    let is_of_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    bytes.first().is_some_and(|byte| !is_of_token(byte))
}

/// Returns the end of the empty line after a head. The first `seen` bytes were searched before. A line may end without
/// CR, as for hyper.
#[must_use]
pub fn end_of_head(bytes: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(2);
    let at = |end: &[u8]| {
        let mut windows = bytes.get(from..)?.windows(end.len());
        let found = windows.position(|window| window == end)?;
        Some(from + found + end.len())
    };
    at(b"\n\r\n").into_iter().chain(at(b"\n\n")).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Uri;
    use proptest::prelude::*;

    fn line(url: &[u8]) -> Vec<u8> {
        [b"GET ", url, b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat()
    }

    fn url_of(head: &[u8]) -> &[u8] {
        head.split(|byte| *byte == b' ').nth(1).unwrap()
    }

    #[test]
    fn accepts_printable_characters_in_path_and_query() {
        for byte in (0x21..0x7f).chain(0x80..=0xff).filter(|byte| *byte != b'#') {
            let urls = [
                &b"http://h.test/"[..],
                b"http://h.test/?",
                b"http://h.test?",
                b"/",
            ];
            for url in urls {
                let head = line(&[url, &[byte], b"z"].concat());
                let encoded = encode_request_line(&head).unwrap().unwrap_or(head);
                let url = url_of(&encoded).to_vec();
                Uri::from_maybe_shared(url.clone())
                    .unwrap_or_else(|_| panic!("{}", url.escape_ascii()));
                assert!(encoded.ends_with(b"z HTTP/1.1\r\nHost: x\r\n\r\n"));
            }
        }
    }

    #[test]
    fn encodes_only_what_must_be_encoded() {
        for (url, encoded) in [
            (
                &b"http://h.test/a<b>c`d\"e?f<g"[..],
                &b"http://h.test/a%3Cb%3Ec%60d%22e?f%3Cg"[..],
            ),
            (b"http://h.test/a%3Cb<c", b"http://h.test/a%3Cb%3Cc"),
            (b"http://h.test/\xe4<", b"http://h.test/%E4%3C"),
        ] {
            let head = encode_request_line(&line(url)).unwrap().unwrap();
            assert_eq!(head, line(encoded), "{}", url.escape_ascii());
        }
        for url in [
            "/a{b}|c^d\\e",
            "http://h.test/\u{e4}?[]",
            "h<.test:443",
            "*",
            "http://h.test/%",
        ] {
            assert_eq!(
                encode_request_line(&line(url.as_bytes())),
                Ok(None),
                "{url}"
            );
        }
    }

    #[test]
    fn rejects_ambiguous_request_lines() {
        use RequestLineError::*;
        for (head, error) in [
            (&b"GET http://h.test/a b HTTP/1.1\r\n"[..], Words(4)),
            (b"GET  http://h.test/ HTTP/1.1\r\n", Words(4)),
            (b"GET http://h.test/\r\n", Words(2)),
            (b"GET http://h.test/ HTTP/2.0\n", Version("HTTP/2.0".into())),
            (b"GET http://h.test/a\tb HTTP/1.1\r\n", Control(9)),
            (b"GET http://h.test/a\rb HTTP/1.1\r\n", Control(13)),
            (b"GET http://h.test/\x7f HTTP/1.1\r\n", Control(127)),
            (b"GET http://h.test/a#b HTTP/1.1\r\n", Fragment),
        ] {
            assert_eq!(
                encode_request_line(head),
                Err(error),
                "{}",
                head.escape_ascii()
            );
        }
    }

    /// The head's length when it comes byte by byte.
    fn head_len(text: &str) -> Option<usize> {
        let bytes = &text.as_bytes()[empty_lines(text.as_bytes())..];
        (0..bytes.len()).find_map(|seen| end_of_head(&bytes[..=seen], seen))
    }

    #[test]
    fn finds_the_empty_line_after_a_head() {
        for (complete, len) in [
            ("GET / HTTP/1.1\r\n\r\n", 18),
            ("\r\n\r\nGET /\n\nmore", 7),
            ("x\n\r\n", 4),
        ] {
            assert_eq!(head_len(complete), Some(len), "{complete:?}");
            let whole = complete.trim_start();
            assert_eq!(end_of_head(whole.as_bytes(), 0), Some(len), "{complete:?}");
        }
        for incomplete in ["", "\r\n\r\n", "GET / HTTP/1.1\r\n", "\n\n\nGET\r\n\r"] {
            assert_eq!(head_len(incomplete), None, "{incomplete:?}");
        }
    }

    #[test]
    fn rejects_other_protocols_at_once() {
        for other in [
            &b"\x16\x03\x01"[..],
            b"\x01\x05\x22\x63",
            b"\x05\x01\x00",
            b"\x80",
        ] {
            assert!(is_hopeless(other), "{other:?}");
        }
        for method in [&b"GET"[..], b"x", b"!", b""] {
            assert!(!is_hopeless(method), "{method:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(head in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = encode_request_line(&head);
            if let Ok(Some(encoded)) = encode_request_line(&line(&head)) {
                prop_assert_eq!(encode_request_line(&encoded), Ok(None));
            }
            let end = end_of_head(&head, 0);
            prop_assert!(end.is_none_or(|end| end <= head.len()));
        }
    }
}
