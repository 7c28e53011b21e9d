// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way to an end of a copy at a site: TLS 1.3 with the key that the token names, the token inside, and then what
//! ssh's pipes would be.

use crate::{
    protocol::{
        address::Address,
        auth::{AUTH_TIMEOUT, AuthRequest, AuthResponse, PROTOCOL},
        message,
        token::Token,
    },
    transport::connection::SILENCE_TIMEOUT,
};
use anyhow::{Context as _, Result, bail};
use longhaul_command::{console::escape, exit::Refusal};
use longhaul_transport::{blocking::end_when_silent, duplex::Duplex, identity::to_key};
use rustls::{ClientConnection, pki_types::ServerName};
use std::{
    io::{self, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
};

/// Goes there; what is read and written then is an end's of a copy.
pub(crate) fn open(site: &Address, export: &str, token: &Token) -> Result<Duplex> {
    let socket = connect(site).with_context(|| format!("cannot reach the site {site}"))?;
    let tls = tls_handshake(&socket, token).map_err(|error| explain_tls_error(error, site))?;
    let mut line = Duplex::new(tls, socket)?;
    let ask = AuthRequest {
        secret: token.secret.clone(),
        export: export.to_owned(),
    };
    message::write(&mut line, &ask)?;
    line.flush()?;
    let answer = message::read(&mut line).with_context(|| format!("{site} does not answer"))?;
    match answer {
        Some(AuthResponse::Accepted) => {}
        Some(AuthResponse::Refused(why)) => {
            return Err(Refusal::usage(format!("{site}: {}", escape(&why))));
        }
        Some(AuthResponse::Busy(why)) => bail!("{site}: {}", escape(&why)),
        None => bail!("{site} went away"),
    }
    line.wait_forever()?;
    Ok(line)
}

fn connect(site: &Address) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::NotFound.into();
    for address in site.host_and_port().to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, AUTH_TIMEOUT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(AUTH_TIMEOUT))?;
                end_when_silent(&socket, SILENCE_TIMEOUT)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn tls_handshake(mut socket: &TcpStream, token: &Token) -> io::Result<ClientConnection> {
    let mut config = to_key(token.site.0).map_err(io::Error::other)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // The key decides, not the name.
    let name = ServerName::try_from("longhaul").map_err(io::Error::other)?;
    let tls = ClientConnection::new(Arc::new(config), name);
    let mut tls = tls.map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(tls)
}

fn explain_tls_error(error: io::Error, site: &Address) -> anyhow::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => Refusal::usage(format!(
            "{site} shows another key than the token names: it is another site, or its key was lost; \
             who runs it makes a new token"
        )),
        _ => anyhow::Error::new(error).context(format!("{site} does not speak as a site")),
    }
}
