// SPDX-License-Identifier: MIT OR Apache-2.0
//! Convert clients: other relays (RFC 8803), which may open connections ahead of requests.

use crate::{
    client_protocols::language::{Asked, FAREWELL_TIME, Heard, Inbox, Language, Rejection, Unread},
    faults::{disagreement::Stranger, fault::Fault},
    relay::Phase,
    route::set_dscp,
    session::Session,
    transfer::End,
};
use longhaul_protocol::convert::{ConvertError, MESSAGE_LEN_MAX, Opening};
use longhaul_protocol::failure::Failure;
use std::future::poll_fn;
use tokio::{select, time::timeout};

/// Waits for the first byte of a request, up to the listener's `idle_timeout` or until the relay
/// drains: a pooled connection has no request yet. A connection that ends before is not a failure.
pub(super) async fn await_request(session: &Session) -> Result<(), End> {
    let limit = session.config.limits.handshake_timeout;
    if let Err(failure) = session.protect(limit).await {
        // A refused relay first receives the TLS alert. UDT would drop the alert at a reset, so it
        // is flushed before.
        if session.client.tcp().is_none() {
            let said = poll_fn(|cx| session.client.poll_finish_sending(cx));
            let _ = timeout(FAREWELL_TIME, said).await;
        }
        session.client.reset_on_close();
        return Err(session.fail(failure));
    }
    let near = session.near();
    let first = timeout(session.listener_config.idle_timeout, near.disturbed());
    select! {
        first = first => match first {
            Ok(Ok(())) if !near.is_abandoned() => Ok(()),
            _ => Err(End::Finished),
        },
        () = session.relay.drain.wait_for(Phase::Drain) => Err(End::Finished),
    }
}

pub(super) async fn ask(session: &Session) -> Result<Heard, Rejection> {
    let mut inbox = Inbox::default();
    let answer = |error: &ConvertError| error.answer().encode();
    let opening = inbox
        .message(&session.near(), MESSAGE_LEN_MAX, Opening::parse)
        .await;
    if let Err(Unread::Malformed(error)) = &opening {
        say_what_is_foreign(session, error, inbox.unread());
    }
    let opening = opening.map_err(|unread| Rejection::unread(unread, answer))?;
    let refused = |failure: Failure| Rejection::new(failure, Fault::from(failure).convert());
    let request = match opening {
        Opening::Request(request) if request.is_check() => return Ok(Heard::Checks),
        Opening::Request(request) => request,
        Opening::Join(join) => return session.join(join).map(Heard::Joins).map_err(refused),
    };
    set_dscp(
        &session.near(),
        &session.listener_config.profile,
        request.dscp,
    );
    if request.from_elsewhere {
        session.asks_for_others();
    }
    let mut early = inbox.into_rest();
    if let Some(stripes) = request.stripes {
        session
            .found(stripes, std::mem::take(&mut early))
            .map_err(refused)?;
    }
    Ok(Heard::Asks(Asked {
        request: (request, early).into(),
        language: Language::Convert,
    }))
}

/// Logs that the client does not use this version of Convert. Other malformed messages are bugs,
/// not mistakes of the operator.
fn say_what_is_foreign(session: &Session, error: &ConvertError, bytes: &[u8]) {
    let why = match error {
        ConvertError::Magic => Stranger::Foreign(bytes.to_vec()),
        ConvertError::Version(version) => Stranger::Version(*version),
        _ => return,
    };
    session.turn_away(&why);
}
