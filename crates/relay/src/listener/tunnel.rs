// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out for a client that says once where to go, and the bytes on it.

use crate::{
    faults::fault::Fault,
    listener::language::{Asked, Language, refuse},
    route::{far::Far, request::Request},
    session::Session,
    transfer::End,
};

/// A client with a way out.
pub(crate) struct Opened {
    far: Far,
    language: Language,
    /// For the way out that turns out to have been dead.
    again: Option<Box<Request>>,
}

/// Opens the way out, and relays.
pub(crate) async fn connect(session: &Session, asked: Asked) -> End {
    match Box::pin(open(session, asked)).await {
        Ok(opened) => relay(session, opened).await,
        Err(end) => end,
    }
}

/// Relays over the way out that was opened, or over another if that was dead.
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

/// Makes the request again, if that does no harm: over a connection that did not stand ready, over one
/// leg to a peer that has refused to read a request for several, or past a peer that is down now.
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

/// Opens the way out.
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
    // They have left, and a request that had any is not made twice, unless a peer refuses to read
    // it, which has it in pieces.
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
