// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading handshakes.

use longhaul_protocol::failure::Failure;
use longhaul_transport::channel::{Channel, read_some};

/// What a client has sent and no parser has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

/// Bytes asked for in one read of a handshake: a request and some early data.
const READ_LEN: usize = 4096;

impl Inbox {
    /// Reads until `parse` has a whole message, and takes it out. A message that the parser calls
    /// incomplete although more than `len_max` bytes are there is a bad request.
    pub(crate) async fn message<T, E>(
        &mut self,
        stream: &impl Channel,
        len_max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<T, Unread<E>> {
        loop {
            if let Some((message, len)) = parse(&self.0).map_err(Unread::Malformed)? {
                self.0.drain(..len);
                return Ok(message);
            }
            if self.0.len() >= len_max {
                return Err(Unread::Failed(Failure::BadRequest));
            }
            match read_some(stream, &mut self.0, READ_LEN).await {
                Ok(1..) => {}
                _ => return Err(Unread::Failed(Failure::ClientGone)),
            }
        }
    }

    /// What no message was found in.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.0
    }

    /// What came behind the last message.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.0
    }
}

/// Why there is no message.
#[derive(Debug)]
pub(crate) enum Unread<E> {
    /// The parser says so.
    Malformed(E),
    /// The client left, or never came to an end.
    Failed(Failure),
}
