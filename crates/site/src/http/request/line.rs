// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request lines, recorded as they arrive. hyper drops a fragment ("#" and what follows), so a client that does not
//! escape "#" would have `a` removed when it names `a#b`.
//!
//! The line of a request that arrives before the response to the previous one is not recorded. A recorded line is
//! compared with the request that hyper has parsed, so that no other line is used for it.

use hyper::{Request, Uri};
use parking_lot::Mutex;
use std::sync::Arc;

/// Most bytes of a request line that are recorded. hyper allows some 64 KiB for a URI.
const LINE_LEN_MAX: usize = 66 << 10;

/// Result of the check of a request's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineCheck {
    Complete,
    /// The line has a fragment, which RFC 9112 §3.2 forbids.
    WithFragment,
    /// The line was not recorded: it arrived before the response to the previous request.
    Unknown,
}

/// Recorded line of a connection's current request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLines(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl RequestLines {
    /// Starts recording the next request, once the current one is parsed.
    pub(crate) fn reset(&self) {
        *self.0.lock() = Line::default();
    }

    /// Returns the result for this request.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> LineCheck {
        let line = self.0.lock();
        let words: Vec<_> = line
            .bytes
            .trim_ascii()
            .split(|byte| *byte == b' ')
            .collect();
        let [method, target, version] = words[..] else {
            return LineCheck::Unknown;
        };
        let is_same_request = method == request.method().as_str().as_bytes()
            && Uri::try_from(target).is_ok_and(|uri| uri == *request.uri())
            && version.starts_with(b"HTTP/");
        match (is_same_request, target.contains(&b'#')) {
            (false, _) => LineCheck::Unknown,
            (true, false) => LineCheck::Complete,
            (true, true) => LineCheck::WithFragment,
        }
    }

    /// Records the line at the begin of what was received.
    pub(crate) fn record(&self, received: &[u8]) {
        let mut line = self.0.lock();
        for &byte in received {
            if line.is_whole {
                return;
            }
            // Empty lines before a request are ignored (RFC 9112 §2.2).
            let is_before = line.bytes.is_empty() && b"\r\n".contains(&byte);
            if !is_before {
                line.bytes.push(byte);
                line.is_whole = byte == b'\n' || line.bytes.len() == LINE_LEN_MAX;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pieces: &[&str], method: &str, uri: &str) -> LineCheck {
        let lines = RequestLines::default();
        for piece in pieces {
            lines.record(piece.as_bytes());
        }
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(()).unwrap();
        let seen = lines.check(&request);
        lines.reset();
        assert_eq!(lines.check(&request), LineCheck::Unknown);
        seen
    }

    #[test]
    fn finds_fragments_in_the_request_line_only() {
        for (pieces, wanted) in [
            (
                &["DELETE /a#b HTTP/1.1\r\nHost: x\r\n"][..],
                LineCheck::WithFragment,
            ),
            (
                &["\r\nDELETE /a", "#b HT", "TP/1.1\r\n", "x"],
                LineCheck::WithFragment,
            ),
            (&["DELETE /a HTTP/1.1\r\nX: #\r\n"], LineCheck::Complete),
            (
                &["DELETE /a HTTP/1.1\r\n", "DELETE /a#b HTTP/1.1\r\n"],
                LineCheck::Complete,
            ),
        ] {
            assert_eq!(seen(pieces, "DELETE", "/a"), wanted, "{pieces:?}");
        }
        let absolute = ["DELETE http://h/a?b#c HTTP/1.1\r\n"];
        assert_eq!(
            seen(&absolute, "DELETE", "http://h/a?b"),
            LineCheck::WithFragment
        );
        assert_eq!(
            seen(&["OPTIONS * HTTP/1.1\r\n"], "OPTIONS", "*"),
            LineCheck::Complete
        );
    }

    #[test]
    fn ignores_lines_of_other_requests() {
        for pieces in [
            &[][..],
            &["b HTTP/1.1\r\n"],
            &["a body that came late DELETE /a#b HTTP/1.1\r\n"],
            &["PUT /a HTTP/1.1\r\n"],
            &["DELETE /b HTTP/1.1\r\n"],
            &["DELETE /a x\r\n"],
        ] {
            assert_eq!(
                seen(pieces, "DELETE", "/a"),
                LineCheck::Unknown,
                "{pieces:?}"
            );
        }
    }
}
