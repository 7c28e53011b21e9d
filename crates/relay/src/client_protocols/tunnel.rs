// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of the upstream connection for a client with one request, and relaying over it.

use crate::{
    client_protocols::handshake::{ParsedRequest, ReplyFormat, refuse},
    faults::fault::Fault,
    route::{request::Request, upstream_leg::UpstreamLeg},
    session::Session,
    transfer::End,
};

/// An open upstream connection for a client.
pub(crate) struct OpenTunnel {
    upstream: UpstreamLeg,
    reply_format: ReplyFormat,
    /// Request to repeat if the upstream connection was dead.
    retry: Option<Box<Request>>,
}

/// Opens the upstream connection and relays.
pub(crate) fn connect(session: &Session, parsed: ParsedRequest) -> impl Future<Output = End> {
    let tunnel = Box::pin(open(session, parsed));
    async move {
        let tunnel = match tunnel.await {
            Ok(tunnel) => tunnel,
            Err(end) => return end,
        };
        relay(session, tunnel).await
    }
}

/// Relays over the upstream connection; if it was dead, over another one.
pub(crate) async fn relay(session: &Session, mut tunnel: Box<OpenTunnel>) -> End {
    loop {
        let (upstream, reply_format) = (&tunnel.upstream, tunnel.reply_format);
        let end = session
            .transfer(upstream, reply_format.success(upstream))
            .await;
        let End::Failed(fault) = end else {
            return end;
        };
        // What is awaited inside a match keeps the matched value, in each idle connection.
        let fault = match Box::pin(reopen(session, &mut tunnel)).await {
            Some(Ok(upstream)) => {
                tunnel.upstream = upstream;
                continue;
            }
            Some(Err(another)) => another,
            None => fault,
        };
        return refuse(session, fault, reply_format).await;
    }
}

/// Repeats the request over a new leg, if that is safe.
async fn reopen(session: &Session, tunnel: &mut OpenTunnel) -> Option<Result<UpstreamLeg, Fault>> {
    let request = tunnel.retry.as_ref()?;
    if session.may_repeat(&tunnel.upstream, request).await {
        Some(session.open_new_leg(request).await)
    } else {
        None
    }
}

/// Opens the upstream connection.
pub(crate) async fn open(session: &Session, parsed: ParsedRequest) -> Result<Box<OpenTunnel>, End> {
    let ParsedRequest {
        mut request,
        reply_format,
    } = parsed;
    request.may_stripe = true;
    let upstream = match session.open(&request).await {
        Ok(upstream) => upstream,
        Err(fault) => return Err(refuse(session, fault, reply_format).await),
    };
    // Early data was sent, so a request with early data is not repeated.
    request.early_bytes = Vec::new();
    let retry = upstream.peer.is_some().then(|| request.into());
    Ok(Box::new(OpenTunnel {
        upstream,
        reply_format,
        retry,
    }))
}
