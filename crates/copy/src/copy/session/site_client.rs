// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client side of a connection to an endpoint at a site: TLS 1.3 with the key that the token names, and authentication
//! with the token. Then the connection carries the endpoint's messages, as the pipes of ssh do.

use crate::{
    connection::IDLE_TIMEOUT,
    protocol::{
        address::Address,
        auth::{AUTH_TIMEOUT, AuthRequest, AuthResponse, PROTOCOL},
        message,
        token::Token,
    },
};
use anyhow::{Context as _, Result, bail};
use longhaul_command::{console::escape, exit::Refusal};
use longhaul_transport::{
    blocking::enable_keepalive, duplex::SharedTlsStream, identity::client_config_for_key,
};
use rustls::{ClientConnection, pki_types::ServerName};
use std::{
    io::{self, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
};

/// Connects and authenticates. Afterwards the connection carries the messages of an endpoint.
pub(crate) fn open(site: &Address, export: &str, token: &Token) -> Result<SharedTlsStream> {
    let socket = connect(site).with_context(|| format!("cannot reach the site {site}"))?;
    let tls = tls_handshake(&socket, token).map_err(|error| explain_tls_error(error, site))?;
    let mut connection = SharedTlsStream::new(tls, socket)?;
    let request = AuthRequest {
        secret: token.secret.clone(),
        export: export.to_owned(),
    };
    message::write(&mut connection, &request)?;
    connection.flush()?;
    let response =
        message::read(&mut connection).with_context(|| format!("{site} does not answer"))?;
    match response {
        Some(AuthResponse::Accepted) => {}
        Some(AuthResponse::Refused(why)) => {
            return Err(Refusal::usage(format!("{site}: {}", escape(&why))));
        }
        Some(AuthResponse::Busy(why)) => bail!("{site}: {}", escape(&why)),
        None => bail!("{site} closed the connection"),
    }
    connection.clear_read_timeout()?;
    Ok(connection)
}

fn connect(site: &Address) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::NotFound.into();
    for address in site.host_and_port().to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, AUTH_TIMEOUT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(AUTH_TIMEOUT))?;
                enable_keepalive(&socket, IDLE_TIMEOUT)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn tls_handshake(mut socket: &TcpStream, token: &Token) -> io::Result<ClientConnection> {
    let mut config = client_config_for_key(token.site.0).map_err(io::Error::other)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // The site is verified by its key, not by its name.
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
            "{site} has another key than the token names: it is another site, or its key was replaced; \
             ask its operator for a new token"
        )),
        _ => {
            anyhow::Error::new(error).context(format!("{site} does not answer as a longhaul site"))
        }
    }
}
