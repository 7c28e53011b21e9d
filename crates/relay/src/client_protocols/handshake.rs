// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of clients: reading them, replying, and closing a refused connection.

use crate::{
    faults::fault::Fault,
    route::{request::Request, upstream_leg::UpstreamLeg},
    session::Session,
    stripe::incoming_groups::JoinTicket,
    transfer::End,
};
use longhaul_protocol::{convert::Answer, failure::Failure, socks4, socks5::Reply};
use longhaul_transport::{
    channel::{Channel, read_some, write_all},
    leg::Leg,
    transport::TransportStream,
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::timeout;

/// A client's request, and the format of the reply.
pub(crate) struct ParsedRequest {
    pub(crate) request: Request,
    pub(crate) reply_format: ReplyFormat,
}

/// First message of another relay.
pub(crate) enum PeerMessage {
    /// A new connection.
    Request(ParsedRequest),
    /// A further leg of a striped connection.
    Join(JoinTicket),
    /// A health check: would a request be served?
    HealthCheck,
}

/// Bytes received and not parsed yet.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer(Vec<u8>);

/// Bytes of one read during a handshake: a request and some early data.
const READ_LEN: usize = 4096;

impl ReadBuffer {
    /// Reads until `parse` returns a message, and removes the message from the buffer. A message
    /// that is still incomplete after `len_max` bytes is a bad request.
    pub(crate) async fn read_message<T, E>(
        &mut self,
        stream: &impl Channel,
        len_max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<T, ReadError<E>> {
        loop {
            if let Some((message, len)) = parse(&self.0).map_err(ReadError::Malformed)? {
                self.0.drain(..len);
                return Ok(message);
            }
            if self.0.len() >= len_max {
                return Err(ReadError::Failed(Failure::BadRequest));
            }
            match read_some(stream, &mut self.0, READ_LEN).await {
                Ok(1..) => {}
                _ => return Err(ReadError::Failed(Failure::ClientGone)),
            }
        }
    }

    /// Bytes received and not parsed.
    pub(crate) fn unparsed(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes behind the last message.
    pub(crate) fn into_remaining(self) -> Vec<u8> {
        self.0
    }
}

/// Error while reading a message.
#[derive(Debug)]
pub(crate) enum ReadError<E> {
    /// The parser rejects it.
    Malformed(E),
    /// The client left, or the message is too long.
    Failed(Failure),
}

/// Format of replies to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyFormat {
    /// SOCKS5 replies.
    Socks5,
    /// SOCKS4 replies.
    Socks4,
    /// Convert answers.
    Convert,
    /// No reply: relayed bytes, or RST.
    Tcp,
}

impl ReplyFormat {
    pub(crate) fn success(self, upstream: &UpstreamLeg) -> Vec<u8> {
        match self {
            // The reply contains the local address of the upstream leg (RFC 1928 §6).
            Self::Socks5 | Self::Socks4 => {
                self.reply(Reply::Succeeded, upstream.leg.transport().local_addr().ok())
            }
            Self::Convert => Answer::Accepted.encode(),
            Self::Tcp => Vec::new(),
        }
    }

    pub(crate) fn failure(self, fault: &Fault) -> Vec<u8> {
        match self {
            Self::Socks5 | Self::Socks4 => self.reply(fault.socks5_reply(), None),
            Self::Convert => fault.encode_convert(),
            Self::Tcp => Vec::new(),
        }
    }

    /// Encodes a SOCKS reply, of version 4 or 5.
    pub(crate) fn reply(self, reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
        match self {
            Self::Socks4 => socks4::reply(reply, bound),
            _ => reply.encode(bound),
        }
    }

    /// Rejection of a SOCKS request that failed.
    pub(crate) fn rejection(self, failure: Failure) -> Rejection {
        Rejection::new(failure, self.reply(failure.socks5(), None))
    }

    /// Rejection of a SOCKS command that is not supported, here or on this route.
    pub(crate) fn unsupported(self) -> Rejection {
        let reply = self.reply(Reply::CommandNotSupported, None);
        Rejection::new(Failure::BadRequest, reply)
    }
}

/// Refusal of a client's request.
pub(crate) struct Rejection {
    pub(crate) failure: Failure,
    /// Last bytes to the client; if empty, the connection is reset.
    pub(crate) reply: Vec<u8>,
}

impl Rejection {
    pub(crate) fn new(failure: Failure, reply: impl Into<Vec<u8>>) -> Self {
        let reply = reply.into();
        Self { failure, reply }
    }

    /// Rejection after a read error; `encode_reply` encodes the reply to a malformed message.
    pub(crate) fn from_read_error<E>(
        read_error: ReadError<E>,
        encode_reply: impl FnOnce(&E) -> Vec<u8>,
    ) -> Self {
        match read_error {
            ReadError::Malformed(error) => Self::new(Failure::BadRequest, encode_reply(&error)),
            ReadError::Failed(failure) => Self::new(failure, []),
        }
    }
}

/// Replies with the failure in the client's protocol, and closes.
pub(crate) async fn refuse(session: &Session, fault: Fault, reply_format: ReplyFormat) -> End {
    Box::pin(reply_and_close(
        &session.client_leg(),
        &reply_format.failure(&fault),
    ))
    .await;
    session.fail(fault)
}

/// Returns the client's request if it arrives within the handshake time-out.
pub(crate) async fn with_handshake_timeout<T>(
    session: &Session,
    reading: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    let limit = session.setup.config.limits.handshake_timeout;
    let timed_out = |_| Err(Rejection::new(Failure::HandshakeTimeout, []));
    let parsed = Box::pin(timeout(limit, reading)).await;
    parsed.unwrap_or_else(timed_out)
}

pub(crate) async fn reject(session: &Session, rejection: Rejection) -> End {
    let Rejection { failure, reply } = rejection;
    Box::pin(reply_and_close(&session.client_leg(), &reply)).await;
    session.fail(failure)
}

/// Time for a client to read a refusal. RFC 1928 §6 allows 10 s.
pub(crate) const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes that are read and discarded meanwhile.
const LINGER_BYTES_MAX: usize = 1 << 20;

/// Sends `reply` and lets the client close first: a close with unread bytes would send RST, which
/// can destroy the answer in flight. Without an answer, resets the connection.
pub(crate) async fn reply_and_close(client: &Leg, reply: &[u8]) {
    if reply.is_empty() {
        client.transport().reset_on_close();
        return;
    }
    let sending = async {
        write_all(client, reply).await?;
        client.finish_sending().await?;
        discard_input(client).await
    };
    // After an error the client is gone, so no answer is needed.
    let _ = timeout(LINGER_TIMEOUT, sending).await;
}

/// Lets the client close first; it has its answer and may still be sending.
pub(crate) async fn lingering_close(client: &Leg) {
    let _ = timeout(LINGER_TIMEOUT, discard_input(client)).await;
}

async fn discard_input(client: &Leg) -> std::io::Result<()> {
    let mut discarded = Vec::new();
    let mut total = 0;
    while total < LINGER_BYTES_MAX {
        discarded.clear();
        match read_some(client, &mut discarded, 1 << 16).await? {
            0 => break,
            read => total += read,
        }
    }
    Ok(())
}

/// Local address of the client's connection.
pub(crate) fn local_address(client: &TransportStream) -> Result<SocketAddr, Rejection> {
    client
        .local_addr()
        .map_err(|_| Rejection::new(Failure::ClientGone, []))
}
