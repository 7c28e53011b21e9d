// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first head of an HTTP client, in a buffer of its own size: hyper would have some 25 KiB for a client
//! that has said nothing, and several times the head for one that says it slowly.

use crate::{
    records::counters::Direction,
    relay::Phase,
    session::{Session, http_memory::HEAD_LEN_MAX},
    transfer::{End, Side},
};
use bytes::Bytes;
use longhaul_protocol::failure::Failure;
use longhaul_transport::channel::read_some;
use std::io;
use tokio::{select, time::timeout};

/// The first part of the buffer, which doubles when it is full.
const BUFFER_LEN: usize = 512;

/// Reads until a head is complete, or can't become one: then hyper says what is wrong with it. The
/// end of a client that has said nothing is the end of all.
pub(super) async fn read(session: &Session) -> Result<Bytes, End> {
    let mut bytes = Vec::new();
    let limit = session.config.limits.handshake_timeout;
    let outcome = timeout(limit, read_into(session, &mut bytes)).await;
    session.http.set_head(0);
    match outcome {
        Ok(Ok(())) if bytes.is_empty() => Err(End::Finished),
        Ok(Ok(())) => Ok(bytes.into()),
        Ok(Err(error)) => Err(End::Broken(Side::Near, error)),
        Err(_) => Err(session.fail(Failure::HandshakeTimeout)),
    }
}

async fn read_into(session: &Session, bytes: &mut Vec<u8>) -> io::Result<()> {
    let near = session.near();
    let mut seen = 0;
    while !is_complete(bytes, seen) && !is_hopeless(bytes) && bytes.len() < HEAD_LEN_MAX {
        seen = bytes.len();
        if bytes.len() == bytes.capacity() {
            let more = bytes.len().clamp(BUFFER_LEN, HEAD_LEN_MAX - bytes.len());
            bytes.reserve_exact(more);
            session.http.set_head(bytes.capacity());
        }
        let room = bytes.capacity() - bytes.len();
        let room = room.min(session.limits().chunk(Direction::Up));
        let read = select! {
            read = read_some(&near, bytes, room) => read?,
            () = session.relay.drain.reached(Phase::Drain), if bytes.is_empty() => 0,
        };
        if read == 0 {
            return Ok(());
        }
        drop_empty_lines(bytes);
        session.count(Direction::Up, read);
        session.pace(Direction::Up, read).await;
    }
    Ok(())
}

/// Empty lines before a request do not count (RFC 9112 §2.2).
fn drop_empty_lines(bytes: &mut Vec<u8>) {
    let is_break = |byte: &u8| b"\r\n".contains(byte);
    let begin = bytes.iter().position(|byte| !is_break(byte));
    bytes.drain(..begin.unwrap_or(bytes.len()));
}

/// Whether it begins as no method does (RFC 9110 §5.6.2, token): what speaks another protocol would wait
/// for an answer as long as this relay for an end.
fn is_hopeless(bytes: &[u8]) -> bool {
    let is_of_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    bytes.first().is_some_and(|byte| !is_of_token(byte))
}

/// Whether there is an empty line, which is not among the first bytes that were `seen`. A line may end
/// without CR, as for hyper.
fn is_complete(bytes: &[u8], seen: usize) -> bool {
    let new = &bytes[seen.saturating_sub(2).min(bytes.len())..];
    let ends = |end: &[u8]| new.windows(end.len()).any(|window| window == end);
    ends(b"\n\r\n") || ends(b"\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_head(text: &str) -> bool {
        let mut bytes = text.as_bytes().to_vec();
        drop_empty_lines(&mut bytes);
        (0..bytes.len()).any(|seen| is_complete(&bytes[..=seen], seen))
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        for complete in ["GET / HTTP/1.1\r\n\r\n", "\r\n\r\nGET /\n\nmore", "x\n\r\n"] {
            assert!(is_head(complete), "{complete:?}");
        }
        for incomplete in ["", "\r\n\r\n", "GET / HTTP/1.1\r\n", "\n\n\nGET\r\n\r"] {
            assert!(!is_head(incomplete), "{incomplete:?}");
        }
    }

    #[test]
    fn another_protocol_never_becomes_a_head() {
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
}
