// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of the upstream connection for a client with one request, and relaying over it.

use crate::{
    client_protocols::language::{Asked, Language, refuse},
    faults::fault::Fault,
    route::{far::Far, request::Request},
    session::Session,
    transfer::End,
};

/// An open upstream connection for a client.
pub(crate) struct Opened {
    far: Far,
    language: Language,
    /// Request to repeat if the upstream connection was dead.
    again: Option<Box<Request>>,
}

/// Opens the upstream connection and relays.
pub(crate) async fn connect(session: &Session, asked: Asked) -> End {
    match Box::pin(open(session, asked)).await {
        Ok(opened) => relay(session, opened).await,
        Err(end) => end,
    }
}

/// Relays over the upstream connection; if it was dead, over another one.
pub(crate) async fn relay(session: &Session, mut opened: Box<Opened>) -> End {
    loop {
        let (far, language) = (&opened.far, opened.language);
        let end = session.transfer(far, language.success(far)).await;
        let End::Failed(fault) = end else {
            return end;
        };
        match Box::pin(another_way(session, &mut opened)).await {
            Some(Ok(far)) => opened.far = far,
            Some(Err(fault)) => return refuse(session, fault, language).await,
            None => return refuse(session, fault, language).await,
        }
    }
}

/// Repeats the request if that is safe. There are three cases: the pooled connection was stale; a
/// peer refused a striped request unread; a peer is down and another route exists.
async fn another_way(session: &Session, opened: &mut Opened) -> Option<Result<Far, Fault>> {
    let (far, request) = (&opened.far, opened.again.as_mut()?);
    if far.was_stale() {
        request.may_stripe = false;
        return Some(session.open_anew(request).await);
    }
    if let Some(heard) = far.take_back() {
        request.may_stripe = false;
        request.early.extend(heard);
        return Some(session.open_unstriped(request).await);
    }
    match session.has_other_way(far, request).await {
        true => Some(session.open_anew(request).await),
        false => None,
    }
}

/// Opens the upstream connection.
pub(crate) async fn open(session: &Session, asked: Asked) -> Result<Box<Opened>, End> {
    let Asked {
        mut request,
        language,
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
        request.early = Vec::new();
    }
    let again = far.peer.is_some().then(|| request.into());
    Ok(Box::new(Opened {
        far,
        language,
        again,
    }))
}
