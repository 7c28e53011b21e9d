// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS5 clients (RFC 1928, RFC 1929): CONNECT, BIND and UDP ASSOCIATE; and SOCKS4 and 4a clients,
//! which have CONNECT and BIND and no password.

mod bind;
mod udp;

use crate::{
    client_protocols::{
        language::{Asked, Inbox, Language, Rejection, hear, reject},
        tunnel::connect,
    },
    config::users::Users,
    session::{Session, client::Verdict},
    transfer::End,
};
use longhaul_protocol::{
    failure::Failure,
    socks4,
    socks5::{
        Command, MESSAGE_LEN_MAX, Method, PASSWORD_LEN_MAX, Request, Socks5Error, parse_greeting,
        parse_password, parse_request, password_answer,
    },
};
use longhaul_transport::{carrier::Carrier, channel::write_all};

/// Serves one client until its connection ends.
pub(crate) async fn serve(session: &Session) -> End {
    let (request, early, language) = match hear(session, ask(session)).await {
        Ok(asked) => asked,
        Err(rejected) => return reject(session, rejected).await,
    };
    let Request {
        command,
        destination,
    } = request;
    match command {
        Command::Connect => {
            let request = crate::route::request::Request::to(destination, early);
            connect(session, Asked { request, language }).await
        }
        Command::Bind => bind::serve(session, &destination, &early, language).await,
        Command::UdpAssociate => udp::serve(session, &destination).await,
        Command::Unknown(_) => reject(session, language.unsupported()).await,
    }
}

/// Authenticates the client and reads its request. Also returns the bytes behind it.
async fn ask(session: &Session) -> Result<(Request, Vec<u8>, Language), Rejection> {
    let client = &session.client;
    let mut inbox = Inbox::default();
    let first = |input: &[u8]| Ok(input.first().map(|byte| (*byte, 0)));
    let version = inbox.message(client, MESSAGE_LEN_MAX, first).await;
    if version.map_err(|unread| Rejection::unread(unread, answer))? == socks4::VERSION {
        let request = ask_in_socks4(session, &mut inbox).await?;
        return Ok((request, inbox.into_rest(), Language::Socks4));
    }
    authenticate(session, &mut inbox).await?;
    let request = inbox
        .message(client, MESSAGE_LEN_MAX, parse_request)
        .await
        .map_err(|unread| Rejection::unread(unread, answer))?;
    Ok((request, inbox.into_rest(), Language::Socks5))
}

/// Reads a SOCKS4 request. Its user name proves nothing, so it is refused where the listener
/// requires a password.
async fn ask_in_socks4(session: &Session, inbox: &mut Inbox) -> Result<Request, Rejection> {
    let len_max = socks4::MESSAGE_LEN_MAX;
    let request = inbox.message(&session.client, len_max, socks4::parse_request);
    let rejected = |failure| Language::Socks4.rejection(failure);
    let request = request
        .await
        .map_err(|unread| Rejection::unread(unread, |_| rejected(Failure::BadRequest).answer))?;
    match session.listener_config.users {
        None => Ok(request),
        Some(_) => Err(rejected(Failure::NotAllowed)),
    }
}

async fn authenticate(session: &Session, inbox: &mut Inbox) -> Result<(), Rejection> {
    let (client, users) = (&session.client, session.listener_config.users.as_deref());
    let wanted = users.map_or(Method::None, |_| Method::Password);
    let method = inbox
        .message(client, MESSAGE_LEN_MAX, |input| {
            parse_greeting(input, wanted)
        })
        .await
        .map_err(|unread| Rejection::unread(unread, answer))?;
    if method == Method::NoneAcceptable {
        return Err(Rejection::new(Failure::NotAllowed, method.encode()));
    }
    say(client, &method.encode()).await?;
    match users {
        Some(users) => check_password(session, inbox, users).await,
        None => Ok(()),
    }
}

async fn check_password(
    session: &Session,
    inbox: &mut Inbox,
    users: &Users,
) -> Result<(), Rejection> {
    let client = &session.client;
    let found = inbox
        .message(client, PASSWORD_LEN_MAX, parse_password)
        .await
        .map_err(|unread| Rejection::unread(unread, answer))?;
    let known = session.authenticate(users, &found.user, &found.password);
    match known.await {
        Verdict::Right => say(client, &password_answer(true)).await,
        Verdict::Wrong => Err(Rejection::new(Failure::NotAllowed, password_answer(false))),
        // RFC 1929 §2 has no reply for it.
        Verdict::Unseen => Err(Rejection::new(Failure::NotAllowed, [])),
    }
}

async fn say(client: &Carrier, answer: &[u8]) -> Result<(), Rejection> {
    let gone = |_| Rejection::new(Failure::ClientGone, []);
    write_all(client, answer).await.map_err(gone)
}

fn answer(error: &Socks5Error) -> Vec<u8> {
    let reply = error.reply().map(|reply| reply.encode(None));
    reply.unwrap_or_default()
}
