// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of the upstream connection for a client with one request, and relaying over it.

use crate::{
    client_protocols::handshake::{ParsedRequest, ReplyFormat, refuse},
    faults::fault::Fault,
    route::{far_leg::FarLeg, request::Request},
    session::Session,
    transfer::End,
};

/// An open upstream connection for a client.
pub(crate) struct OpenTunnel {
    far: FarLeg,
    reply_format: ReplyFormat,
    /// Request to repeat if the upstream connection was dead.
    retry: Option<Box<Request>>,
}

/// Opens the upstream connection and relays.
pub(crate) async fn connect(session: &Session, asked: ParsedRequest) -> End {
    match Box::pin(open(session, asked)).await {
        Ok(opened) => relay(session, opened).await,
        Err(end) => end,
    }
}

/// Relays over the upstream connection; if it was dead, over another one.
pub(crate) async fn relay(session: &Session, mut opened: Box<OpenTunnel>) -> End {
    loop {
        let (far, language) = (&opened.far, opened.reply_format);
        let end = session.transfer(far, language.success(far)).await;
        let End::Failed(fault) = end else {
            return end;
        };
        match Box::pin(reopen(session, &mut opened)).await {
            Some(Ok(far)) => opened.far = far,
            Some(Err(fault)) => return refuse(session, fault, language).await,
            None => return refuse(session, fault, language).await,
        }
    }
}

/// Repeats the request if that is safe. There are three cases: the pooled connection was stale; a
/// peer refused a striped request unread; a peer is down and another route exists.
async fn reopen(session: &Session, opened: &mut OpenTunnel) -> Option<Result<FarLeg, Fault>> {
    let (far, request) = (&opened.far, opened.retry.as_mut()?);
    if far.was_dead() {
        request.may_stripe = false;
        return Some(session.open_new_leg(request).await);
    }
    if let Some(heard) = far.take_replay() {
        request.may_stripe = false;
        request.early_bytes.extend(heard);
        return Some(session.open_single_leg(request).await);
    }
    match session.can_retry(far, request).await {
        true => Some(session.open_new_leg(request).await),
        false => None,
    }
}

/// Opens the upstream connection.
pub(crate) async fn open(session: &Session, asked: ParsedRequest) -> Result<Box<OpenTunnel>, End> {
    let ParsedRequest {
        mut request,
        reply_format: language,
    } = asked;
    request.may_stripe = true;
    let far = match session.open(&request).await {
        Ok(far) => far,
        Err(fault) => return Err(refuse(session, fault, language).await),
    };
    // Early data was sent, so a request with early data is not repeated. The exception is a striped
    // request, which a peer may refuse unread; the group has that data.
    let striped = far.group.is_some();
    if !striped {
        request.early_bytes = Vec::new();
    }
    let again = far.peer.is_some().then(|| request.into());
    Ok(Box::new(OpenTunnel {
        far,
        reply_format: language,
        retry: again,
    }))
}
