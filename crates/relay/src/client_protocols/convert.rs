// SPDX-License-Identifier: MIT OR Apache-2.0
//! Convert clients: other relays (RFC 8803), which may open connections ahead of requests.

use crate::{
    client_protocols::handshake::{
        LINGER_TIMEOUT, ParsedRequest, PeerMessage, ReadBuffer, ReadError, Rejection, ReplyFormat,
    },
    faults::{fault::Fault, misconfiguration::DenialReason},
    relay::Phase,
    route::set_dscp,
    session::Session,
    transfer::End,
};
use longhaul_protocol::convert::{ConvertError, FirstMessage, MESSAGE_LEN_MAX};
use longhaul_protocol::failure::Failure;
use std::future::poll_fn;
use tokio::{select, time::timeout};

/// Waits for the first byte of a request, up to the listener's `idle_timeout` or until the relay
/// drains: a pooled connection has no request yet. A connection that ends before is not a failure.
pub(super) async fn await_request(session: &Session) -> Result<(), End> {
    let limit = session.setup.config.limits.handshake_timeout;
    if let Err(failure) = session.tls_handshake(limit).await {
        // A refused relay first receives the TLS alert. UDT would drop the alert at a reset, so it
        // is flushed before.
        if session.client.stream.tcp().is_none() {
            let flushed = poll_fn(|cx| session.client.stream.poll_finish_sending(cx));
            let _ = timeout(LINGER_TIMEOUT, flushed).await;
        }
        session.client.stream.reset_on_close();
        return Err(session.fail(failure));
    }
    let downstream = session.client_leg();
    let first_byte = timeout(
        session.setup.listener_config.idle_timeout,
        downstream.wait_activity(),
    );
    select! {
        first_byte = first_byte => match first_byte {
            Ok(Ok(())) if !downstream.is_closed() => Ok(()),
            _ => Err(End::Finished),
        },
        () = session.relay.lifecycle.wait_for(Phase::Drain) => Err(End::Finished),
    }
}

pub(super) async fn read_message(session: &Session) -> Result<PeerMessage, Rejection> {
    let mut buffer = ReadBuffer::default();
    let encode_reply = |error: &ConvertError| error.answer().encode();
    let opening = buffer
        .read_message(&session.client_leg(), MESSAGE_LEN_MAX, FirstMessage::parse)
        .await;
    if let Err(ReadError::Malformed(error)) = &opening {
        report_foreign_protocol(session, error, buffer.unparsed());
    }
    let opening = opening.map_err(|error| Rejection::from_read_error(error, encode_reply))?;
    let rejection =
        |failure: Failure| Rejection::new(failure, Fault::from(failure).encode_convert());
    let request = match opening {
        FirstMessage::Request(request) if request.is_health_check() => {
            return Ok(PeerMessage::HealthCheck);
        }
        FirstMessage::Request(request) => request,
        FirstMessage::Join(join) => {
            return session
                .issue_ticket(join)
                .map(PeerMessage::Join)
                .map_err(rejection);
        }
    };
    set_dscp(
        &session.client_leg(),
        &session.setup.listener_config.profile,
        request.dscp,
    );
    if request.is_client_remote {
        session.set_acts_for_remote();
    }
    let early = buffer.into_remaining();
    if let Some(stripes) = request.stripes {
        session
            .register_group(stripes, early.len())
            .map_err(rejection)?;
    }
    Ok(PeerMessage::Request(ParsedRequest {
        request: (request, early).into(),
        reply_format: ReplyFormat::Convert,
    }))
}

/// Logs that the client does not use this version of Convert. Other malformed messages are bugs,
/// not mistakes of the operator.
fn report_foreign_protocol(session: &Session, error: &ConvertError, bytes: &[u8]) {
    let reason = match error {
        ConvertError::Magic => DenialReason::NotConvert(bytes.to_vec()),
        ConvertError::Version(version) => DenialReason::Version(*version),
        _ => return,
    };
    session.refuse(&reason);
}
