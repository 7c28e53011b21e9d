// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request lines, recorded as they arrive. hyper drops a fragment ("#" and what follows), so a client that does not
//! escape "#" would have `a` removed when it names `a#b`.
//!
//! The line of a request that arrives before the response to the previous one is not recorded. A recorded line is
//! compared with the request that hyper has parsed, so that no other line is used for it.

use crate::http::response::{Outcome, Rejection};
use hyper::{Request, Uri};
use parking_lot::Mutex;
use std::sync::Arc;

/// Most bytes of a request line that are recorded. hyper allows some 64 KiB for a URI.
const LINE_LEN_MAX: usize = 66 << 10;

/// RFC 9112 §3.2 forbids a fragment.
const FRAGMENT: Rejection = Rejection(400, "\"#\" in a name must be %23 in a URL");

const PIPELINED: Rejection = Rejection(
    400,
    "want no request that changes something before the response to the previous one",
);

/// Recorded line of a connection's current request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLines(Arc<Mutex<Vec<u8>>>);

impl RequestLines {
    /// Starts recording the next request, once the current one is parsed.
    pub(crate) fn reset(&self) {
        self.0.lock().clear();
    }

    /// Checks that the request's name has not lost a fragment. A read may pass without a recorded line.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Outcome<()> {
        let line = self.0.lock();
        let words: Vec<_> = line.trim_ascii().split(|byte| *byte == b' ').collect();
        let (method, uri) = (request.method(), request.uri());
        match words[..] {
            [name, target, version]
                if name == method.as_str().as_bytes()
                    && version.starts_with(b"HTTP/")
                    && Uri::try_from(target).is_ok_and(|target| target == *uri) =>
            {
                if target.contains(&b'#') {
                    Err(FRAGMENT)
                } else {
                    Ok(())
                }
            }
            _ if method.is_safe() || method.as_str() == "PROPFIND" => Ok(()),
            _ => Err(PIPELINED),
        }
    }

    /// Records the line at the begin of what was received.
    pub(crate) fn record(&self, received: &[u8]) {
        let mut line = self.0.lock();
        for &byte in received {
            if line.ends_with(b"\n") || line.len() == LINE_LEN_MAX {
                return;
            }
            // Empty lines before a request are ignored (RFC 9112 §2.2).
            if !line.is_empty() || !b"\r\n".contains(&byte) {
                line.push(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_fragments_in_the_line_of_this_request() {
        let (whole, uri) = (Ok(()), "/a");
        let absolute = "DELETE http://h/a?b#c HTTP/1.1\r\n";
        for (pieces, uri, wanted) in [
            (
                &["DELETE /a#b HTTP/1.1\r\nHost: x\r\n"][..],
                uri,
                Err(FRAGMENT),
            ),
            (
                &["\r\nDELETE /a", "#b HT", "TP/1.1\r\n", "x"],
                uri,
                Err(FRAGMENT),
            ),
            (&[absolute], "http://h/a?b", Err(FRAGMENT)),
            (&["DELETE /a HTTP/1.1\r\nX: #\r\n"], uri, whole),
            (
                &["DELETE /a HTTP/1.1\r\n", "DELETE /a#b HTTP/1.1\r\n"],
                uri,
                whole,
            ),
            (&["DELETE * HTTP/1.1\r\n"], "*", whole),
            // Other requests.
            (&[], uri, Err(PIPELINED)),
            (&["b HTTP/1.1\r\n"], uri, Err(PIPELINED)),
            (
                &["a late body DELETE /a#b HTTP/1.1\r\n"],
                uri,
                Err(PIPELINED),
            ),
            (&["PUT /a HTTP/1.1\r\n"], uri, Err(PIPELINED)),
            (&["DELETE /b HTTP/1.1\r\n"], uri, Err(PIPELINED)),
            (&["DELETE /a x\r\n"], uri, Err(PIPELINED)),
        ] {
            let lines = RequestLines::default();
            pieces
                .iter()
                .for_each(|piece| lines.record(piece.as_bytes()));
            let request = Request::builder().method("DELETE").uri(uri).body(());
            let request = request.unwrap();
            assert_eq!(lines.check(&request), wanted, "{pieces:?}");
            lines.reset();
            assert_eq!(lines.check(&request), Err(PIPELINED));
        }
    }
}
