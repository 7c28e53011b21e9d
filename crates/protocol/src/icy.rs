// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status line of SHOUTcast servers: `ICY 200 OK` instead of `HTTP/1.0 200 OK`. The fields and the body behind it are as
//! in HTTP/1.0. No I/O.

/// Begin of the status line of SHOUTcast.
const ICY: &[u8] = b"ICY ";

/// First bytes of a response, until it is clear whether they are those of SHOUTcast.
#[derive(Debug, Default)]
pub struct ResponseStart(Vec<u8>);

impl ResponseStart {
    /// Takes the next bytes; none is the end of the stream. Returns all bytes so far, with the status line of HTTP/1.0,
    /// once that is clear.
    pub fn advance(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.0.extend(bytes);
        if let Some(rest) = self.0.strip_prefix(ICY) {
            return Some([b"HTTP/1.0 ", rest].concat());
        }
        let may_be_icy = !bytes.is_empty() && ICY.starts_with(&self.0);
        (!may_be_icy).then(|| std::mem::take(&mut self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that come out when these pieces go in.
    fn output(pieces: &[&str]) -> Option<String> {
        let mut start = ResponseStart::default();
        let bytes = pieces
            .iter()
            .find_map(|piece| start.advance(piece.as_bytes()));
        bytes.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn icy_becomes_http() {
        let want = Some("HTTP/1.0 200 OK\r\n".to_owned());
        assert_eq!(output(&["ICY 200 OK\r\n"]), want);
        assert_eq!(output(&["I", "CY", " 200 OK\r\n"]), want);
    }

    #[test]
    fn all_else_stays() {
        assert_eq!(output(&["HTTP/1.1 200"]).unwrap(), "HTTP/1.1 200");
        assert_eq!(output(&["IC", "E"]).unwrap(), "ICE");
        assert_eq!(output(&["ICY", ""]).unwrap(), "ICY");
        assert_eq!(output(&[""]).unwrap(), "");
        assert_eq!(output(&["ICY"]), None);
    }
}
