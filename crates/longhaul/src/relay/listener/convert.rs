// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other relays (RFC 8803), which may keep connections ready for requests that are still to come.

use super::{Asked, Heard, Language, Rejected};
use crate::relay::{
    drain::Phase, failure::Failure, session::Session, stream::Inbox, transfer::End,
};
use tokio::{select, time::timeout};
use wire::convert::{ConvertError, MESSAGE_LEN_MAX, Opening};

/// Waits for the first byte of a request: the listener's `idle_timeout`, since a relay that keeps
/// connections ready has nothing to say yet, and until the relay drains. A connection that ends
/// before is no failure.
pub(super) async fn await_request(session: &Session) -> Result<(), End> {
    let limit = session.config.limits.handshake_timeout;
    let protected = timeout(limit, session.protect()).await;
    if let Err(failure) = protected.unwrap_or(Err(Failure::HandshakeTimeout)) {
        // Whoever is not let in hears what TLS has said, and then RST.
        session.client.reset_on_close();
        return Err(session.fail(failure));
    }
    let near = session.near();
    let first = timeout(session.listener.idle_timeout, near.disturbed());
    select! {
        first = first => match first {
            Ok(Ok(())) if !near.is_abandoned() => Ok(()),
            _ => Err(End::Finished),
        },
        () = session.relay.drain.reached(Phase::Drain) => Err(End::Finished),
    }
}

pub(super) async fn ask(session: &Session) -> Result<Heard, Rejected> {
    let mut inbox = Inbox::default();
    let answer = |error: &ConvertError| error.answer().encode();
    let opening = inbox
        .message(&session.near(), MESSAGE_LEN_MAX, Opening::parse)
        .await
        .map_err(|unread| Rejected::unread(unread, answer))?;
    let refused = |failure: Failure| Rejected::new(failure, failure.convert().encode());
    let request = match opening {
        Opening::Request(request) => request,
        Opening::Join(join) => return session.join(join).map(Heard::Joins).map_err(refused),
    };
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
