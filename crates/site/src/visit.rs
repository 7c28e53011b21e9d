// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client from its connection to the end of a copy that it gets.

use super::{
    account::Account,
    bridge::{Tls, bridge},
    config::Config,
    keys::{identity::Identity, tokens::Tokens},
    lines::Records,
    listener::{
        accept::Stopped,
        connections::{Connections, Room},
        refusals::{Cause, Refusals},
    },
    mirror::News,
    record::Record,
};
use anyhow::{Context as _, Result, ensure};
use longhaul_transfer::{
    SILENCE_TIMEOUT,
    protocol::{
        auth::{AUTH_TIMEOUT, AuthRequest, AuthResponse, ExportScope, PROTOCOL, REQUEST_LEN_MAX},
        message,
    },
};
use longhaul_transport::blocking::end_when_silent;
use parking_lot::Mutex;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

/// Connections that are not let in yet: each costs some 50 KB. Both ends of a copy between eight hosts come from one
/// address at once.
const STRANGERS: Room = Room {
    all: 64,
    of_one: 32,
};

/// What all visits have.
pub(super) struct Site {
    config: Arc<Config>,
    acceptor: TlsAcceptor,
    records: Records,
    connections: Connections,
    refusals: Refusals,
    copies: Arc<Semaphore>,
    next_copy: AtomicU64,
    news: Arc<News>,
}

/// What a client was let in for.
struct Admission {
    confinement: ExportScope,
    token: String,
    _one_of: OwnedSemaphorePermit,
}

impl Site {
    pub(super) fn new(
        config: Arc<Config>,
        identity: &Identity,
        records: Records,
        news: Arc<News>,
    ) -> Result<Self> {
        Ok(Self {
            acceptor: identity.certificate.acceptor(PROTOCOL)?,
            connections: Connections::new(STRANGERS),
            refusals: Refusals::new(Instant::now()),
            copies: Arc::new(Semaphore::new(config.copies_max)),
            next_copy: AtomicU64::new(1),
            config,
            records,
            news,
        })
    }

    /// Says so, if it is not said already; how long the client waits.
    fn refuse(&self, client: SocketAddr, cause: Cause, why: &str) -> Duration {
        self.refusals.say(client, cause, why, self.records)
    }

    /// Whether a client gets what it asks for, who reached the site at `local_address`.
    fn decide(&self, ask: &AuthRequest, at: IpAddr) -> Result<Admission, (Cause, AuthResponse)> {
        let refused = |why: String| (Cause::Other, AuthResponse::Refused(why));
        let busy = |why: String| (Cause::Other, AuthResponse::Busy(why));
        let tokens = Tokens::read(&self.config.state)
            .map_err(|error| busy(format!("the site can't look at tokens: {error:#}")))?;
        let known = tokens.find(&ask.secret);
        let (token, grant) = known.ok_or_else(|| {
            let why = "the token is not one of its".to_owned();
            (Cause::WrongToken, AuthResponse::Refused(why))
        })?;
        let name = &ask.export;
        let export = self.config.exports.get(name).filter(|_| grant.is_for(name));
        let export =
            export.ok_or_else(|| refused(format!("{name:?}: no such export for {token}")))?;
        let one_of = self.copies.clone().try_acquire_owned().map_err(|_| {
            let count = self.config.copies_max;
            busy(format!("busy with {count} copies, which is its most"))
        })?;
        Ok(Admission {
            confinement: ExportScope {
                export: name.clone(),
                directory: export.directory.clone(),
                other_exports: self.config.others(name),
                writable: export.writable && !grant.read_only,
                local_address: at,
                ports: self.config.ports,
            },
            token: token.to_owned(),
            _one_of: one_of,
        })
    }
}

/// Serves one connection, until it ends or the site does.
pub(super) async fn visit(
    site: Arc<Site>,
    socket: TcpStream,
    client: SocketAddr,
    mut stopped: Stopped,
) {
    let crowded = || {
        let why = "too many connections that are not let in yet";
        site.refuse(client, Cause::TooManyConnections, why);
    };
    let Some(connection) = site.connections.enter(client.ip()) else {
        crowded();
        return;
    };
    let let_in = tokio::select! {
        let_in = timeout(AUTH_TIMEOUT, receive(&site, socket, client)) => let_in,
        // A newcomer has its place.
        () = connection.overstays(2 * AUTH_TIMEOUT) => {
            crowded();
            return;
        }
        _ = stopped.reached() => return,
    };
    drop(connection);
    let (tls, admission) = match let_in.unwrap_or_else(|_| Err(anyhow::Error::msg("too slow"))) {
        Ok(Some(let_in)) => let_in,
        Ok(None) => return,
        Err(error) => {
            site.refuse(client, Cause::Other, &format!("{error:#}"));
            return;
        }
    };
    let copy = site.next_copy.fetch_add(1, Relaxed);
    site.records.write(&Record::Began {
        copy,
        client,
        token: admission.token,
        export: admission.confinement.export.clone(),
    });
    let account = Mutex::new(Account::new());
    if let Err(error) = bridge(tls, &admission.confinement, &account, stopped).await {
        warn!("copy {copy}: {error:#}");
    }
    if admission.confinement.writable {
        site.news.came(&admission.confinement.export);
    }
    site.records.write(&account.lock().ended(copy));
}

/// From TCP to an answer. None: the client is refused, and it is said.
async fn receive(
    site: &Site,
    socket: TcpStream,
    client: SocketAddr,
) -> Result<Option<(Tls, Admission)>> {
    end_when_silent(&socket, SILENCE_TIMEOUT)?;
    socket.set_nodelay(true)?;
    // A socket for both families has IPv4 addresses in the clothes of IPv6.
    let at = socket.local_addr()?.ip().to_canonical();
    let mut tls = site.acceptor.accept(socket).await.context("no TLS")?;
    let ask = read_ask(&mut tls).await?;
    match site.decide(&ask, at) {
        Ok(admission) => {
            answer(&mut tls, &AuthResponse::Accepted).await?;
            Ok(Some((tls, admission)))
        }
        Err((cause, refusal)) => {
            sleep(site.refuse(client, cause, &refusal.to_string())).await;
            answer(&mut tls, &refusal).await?;
            // It has its answer.
            let _ = tls.shutdown().await;
            Ok(None)
        }
    }
}

async fn answer(tls: &mut Tls, answer: &AuthResponse) -> Result<()> {
    let mut bytes = Vec::new();
    message::write(&mut bytes, answer)?;
    tls.write_all(&bytes).await?;
    Ok(tls.flush().await?)
}

async fn read_ask(tls: &mut Tls) -> Result<AuthRequest> {
    let length = tls.read_u32().await?;
    ensure!(
        length as usize <= REQUEST_LEN_MAX,
        "a question of {length} bytes"
    );
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.resize(bytes.len() + length as usize, 0);
    tls.read_exact(&mut bytes[4..]).await?;
    let ask = message::read(&mut bytes.as_slice())?;
    ask.context("no question")
}
