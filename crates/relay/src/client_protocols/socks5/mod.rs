// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS5 clients (RFC 1928, RFC 1929): CONNECT, BIND and UDP ASSOCIATE; and SOCKS4 and 4a clients,
//! which have CONNECT and BIND and no password.

mod bind;
mod udp;

use crate::{
    client_protocols::{
        handshake::{
            ParsedRequest, ReadBuffer, Rejection, ReplyFormat, reject, with_handshake_timeout,
        },
        tunnel::connect,
    },
    config::users::Users,
    session::{Session, client::LoginResult},
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
use longhaul_transport::{channel::write_all, transport::TransportStream};

/// Serves one client until its connection ends.
pub(crate) async fn serve(session: &Session) -> End {
    let (request, early, reply_format) =
        match with_handshake_timeout(session, read_request(session)).await {
            Ok(parsed) => parsed,
            Err(rejected) => return reject(session, rejected).await,
        };
    let Request {
        command,
        destination,
    } = request;
    match command {
        Command::Connect => {
            let request = crate::route::request::Request::to(destination, early);
            connect(
                session,
                ParsedRequest {
                    request,
                    reply_format,
                },
            )
            .await
        }
        // Boxed, so that an idle tunnel does not need the space.
        Command::Bind => Box::pin(bind::serve(session, &destination, &early, reply_format)).await,
        Command::UdpAssociate => Box::pin(udp::serve(session, &destination)).await,
        Command::Unknown(_) => reject(session, reply_format.unsupported()).await,
    }
}

/// Authenticates the client and reads its request. Also returns the bytes behind it.
async fn read_request(session: &Session) -> Result<(Request, Vec<u8>, ReplyFormat), Rejection> {
    let client = &session.client.stream;
    let mut buffer = ReadBuffer::default();
    let first = |input: &[u8]| Ok(input.first().map(|byte| (*byte, 0)));
    let version = buffer.read_message(client, MESSAGE_LEN_MAX, first).await;
    if version.map_err(|error| Rejection::from_read_error(error, error_reply))? == socks4::VERSION {
        let request = read_socks4_request(session, &mut buffer).await?;
        return Ok((request, buffer.into_remaining(), ReplyFormat::Socks4));
    }
    authenticate(session, &mut buffer).await?;
    let request = buffer
        .read_message(client, MESSAGE_LEN_MAX, parse_request)
        .await
        .map_err(|error| Rejection::from_read_error(error, error_reply))?;
    Ok((request, buffer.into_remaining(), ReplyFormat::Socks5))
}

/// Reads a SOCKS4 request. Its user name proves nothing, so it is refused where the listener
/// requires a password.
async fn read_socks4_request(
    session: &Session,
    buffer: &mut ReadBuffer,
) -> Result<Request, Rejection> {
    let len_max = socks4::MESSAGE_LEN_MAX;
    let request = buffer.read_message(&session.client.stream, len_max, socks4::parse_request);
    let rejected = |failure| ReplyFormat::Socks4.rejection(failure);
    let request = request.await.map_err(|error| {
        Rejection::from_read_error(error, |_| rejected(Failure::BadRequest).reply)
    })?;
    match session.setup.listener_config.users {
        None => Ok(request),
        Some(_) => Err(rejected(Failure::NotAllowed)),
    }
}

async fn authenticate(session: &Session, buffer: &mut ReadBuffer) -> Result<(), Rejection> {
    let (client, users) = (
        &session.client.stream,
        session.setup.listener_config.users.as_deref(),
    );
    let required = users.map_or(Method::None, |_| Method::Password);
    let method = buffer
        .read_message(client, MESSAGE_LEN_MAX, |input| {
            parse_greeting(input, required)
        })
        .await
        .map_err(|error| Rejection::from_read_error(error, error_reply))?;
    if method == Method::NoneAcceptable {
        return Err(Rejection::new(Failure::NotAllowed, method.encode()));
    }
    send(client, &method.encode()).await?;
    match users {
        Some(users) => check_password(session, buffer, users).await,
        None => Ok(()),
    }
}

async fn check_password(
    session: &Session,
    buffer: &mut ReadBuffer,
    users: &Users,
) -> Result<(), Rejection> {
    let client = &session.client.stream;
    let credentials = buffer
        .read_message(client, PASSWORD_LEN_MAX, parse_password)
        .await
        .map_err(|error| Rejection::from_read_error(error, error_reply))?;
    let verdict = session.authenticate(users, &credentials.user, &credentials.password);
    match verdict.await {
        LoginResult::Accepted => send(client, &password_answer(true)).await,
        LoginResult::Rejected => Err(Rejection::new(Failure::NotAllowed, password_answer(false))),
        // RFC 1929 §2 has no reply for it.
        LoginResult::NotChecked => Err(Rejection::new(Failure::NotAllowed, [])),
    }
}

async fn send(client: &TransportStream, answer: &[u8]) -> Result<(), Rejection> {
    let client_gone = |_| Rejection::new(Failure::ClientGone, []);
    write_all(client, answer).await.map_err(client_gone)
}

fn error_reply(error: &Socks5Error) -> Vec<u8> {
    let reply = error.reply().map(|reply| reply.encode(None));
    reply.unwrap_or_default()
}
