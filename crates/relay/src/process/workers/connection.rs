// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection from accept to its end.

use crate::{
    config::listener::Kind,
    listener,
    process::workers::crew::Newcomer,
    session::{Session, Shares, end::Finale},
    stripe::groups::Seat,
    transfer::End,
};
use longhaul_protocol::failure::Failure;
use std::sync::Arc;

/// Serves a newcomer, sees both legs to their right end, and writes the record. Dropped before the
/// end, the connection is cut.
pub(crate) async fn run(newcomer: Newcomer, shares: Shares) {
    // The place is free, and counted as such, once the sockets are closed.
    let Newcomer {
        place: _place,
        seated: _seated,
        entry,
        relay,
        door,
        client,
        address,
    } = newcomer;
    let session = Session::new(relay, door, shares, (client, address), entry.number);
    let mut session = Arc::new(session);
    let announced = match Arc::get_mut(&mut session) {
        Some(own) if own.listener.accept_proxy => Box::pin(own.hear_announcement()).await,
        _ => Ok(()),
    };
    entry.is(&session);
    let seat = {
        let _active = session.door.counters.connection();
        let mut finale = Finale {
            session: &session,
            end: End::Cut,
        };
        let end = serve(&session, announced).await;
        match end {
            // As a connection of its own it was never asked for anything.
            End::Joined(seat) => {
                finale.end = End::Finished;
                seat
            }
            end => {
                finale.end = end;
                return;
            }
        }
    };
    entry.is_anothers();
    Box::pin(take_seat(session, seat)).await;
}

/// The leg is another session's from now on, but has its place here until that is over.
async fn take_seat(session: Arc<Session>, seat: Seat) {
    let leg = match Arc::try_unwrap(session) {
        Ok(session) => session.into_near(),
        // Somebody adds up memory right now: the leg is shared for ever, which costs wake-ups.
        Err(shared) => shared.near(),
    };
    seat.take(leg).await;
}

async fn serve(session: &Arc<Session>, announced: Result<(), Failure>) -> End {
    let stranger = session.stranger().map(|why| session.turn_away(&why));
    let welcome = stranger.map_or(announced, Err);
    let welcome = welcome.and_then(|()| session.enter());
    if let Err(failure) = welcome {
        session.client.reset_on_close();
        return session.fail(failure);
    }
    match &session.listener.kind {
        Kind::Http => Box::pin(listener::http::serve(session)).await,
        Kind::Socks5 => Box::pin(listener::socks5::serve(session)).await,
        kind => listener::serve(session, kind).await,
    }
}
