// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection from accept to its end.

use crate::{
    client_protocols,
    config::listener::Kind,
    process::workers::load_balancer::AcceptedConnection,
    session::{Session, WorkerResources, close::CloseGuard},
    stripe::incoming_groups::JoinTicket,
    transfer::End,
};
use longhaul_protocol::failure::Failure;
use std::sync::Arc;

/// Serves an accepted connection, closes both legs as they ended, and writes the record. If the
/// future is dropped earlier, the connection is cut.
pub(crate) async fn run(connection: AcceptedConnection, resources: WorkerResources) {
    // The permit is released, and the load reduced, once the sockets are closed.
    let AcceptedConnection {
        permit: _permit,
        load: _load,
        registration,
        relay,
        listener,
        client,
        address,
    } = connection;
    let session = Session::new(
        relay,
        listener,
        resources,
        client,
        address,
        registration.number,
    );
    let mut session = Arc::new(session);
    let proxy_header = match Arc::get_mut(&mut session) {
        Some(own) if own.setup.listener_config.accept_proxy => {
            Box::pin(own.read_proxy_header()).await
        }
        _ => Ok(()),
    };
    registration.set_session(&session);
    let ticket = {
        let _active = session.listener.counters.count_connection();
        let mut finale = CloseGuard {
            session: &session,
            end: End::Cut,
        };
        let end = serve(&session, proxy_header).await;
        // Boxed, so that an idle connection does not need the space.
        Box::pin(session.deliver_before_reset(&end)).await;
        match end {
            // No request was ever made on it as a connection of its own.
            End::Joined(ticket) => {
                finale.end = End::Finished;
                ticket
            }
            end => {
                finale.end = end;
                return;
            }
        }
    };
    registration.clear_session();
    Box::pin(join_group(session, ticket)).await;
}

/// Hands the leg to another session, and keeps its permit here until that session no longer needs
/// it.
async fn join_group(session: Arc<Session>, ticket: JoinTicket) {
    let leg = match Arc::try_unwrap(session) {
        Ok(session) => session.into_client_leg(),
        // The memory check holds the session right now. The leg stays shared, which costs wake-ups.
        Err(shared) => shared.client_leg(),
    };
    ticket.hand_over(leg).await;
}

async fn serve(session: &Arc<Session>, proxy_header: Result<(), Failure>) -> End {
    let refusal = session
        .access_refusal()
        .map(|reason| session.refuse(&reason));
    let admission = refusal.map_or(proxy_header, Err);
    let admission = admission.and_then(|()| session.acquire_connection_permit());
    if let Err(failure) = admission {
        session.client.stream.reset_on_close();
        return session.fail(failure);
    }
    match &session.setup.listener_config.kind {
        Kind::Http => Box::pin(client_protocols::http::serve(session)).await,
        Kind::Socks5 => Box::pin(client_protocols::socks5::serve(session)).await,
        kind => client_protocols::serve(session, kind).await,
    }
}
