// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client from its connection to the end of a copy that it gets.

use super::{
    bridge::bridge,
    config::Config,
    identity::Identity,
    knock::{ASK_LEN_MAX, Answer, Ask, PATIENCE, PROTOCOL},
    news::News,
    record::{Record, Records},
    stop::Stopped,
    tokens::Tokens,
    vestibule::Vestibule,
};
use crate::copy::{self, Confinement, message};
use anyhow::{Context as _, Result, ensure};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// What all visits have.
pub(super) struct Site {
    config: Arc<Config>,
    acceptor: TlsAcceptor,
    records: Records,
    vestibule: Vestibule,
    copies: Arc<Semaphore>,
    next_copy: AtomicU64,
    news: Arc<News>,
}

/// What a client was let in for.
struct Admission {
    confinement: Confinement,
    token: String,
    _one_of: OwnedSemaphorePermit,
}

pub(super) type Tls = TlsStream<TcpStream>;

impl Site {
    pub(super) fn new(
        config: Arc<Config>,
        identity: &Identity,
        records: Records,
        news: Arc<News>,
    ) -> Result<Self> {
        Ok(Self {
            acceptor: identity.certificate.acceptor(PROTOCOL)?,
            vestibule: Vestibule::default(),
            copies: Arc::new(Semaphore::new(config.copies_max)),
            next_copy: AtomicU64::new(1),
            config,
            records,
            news,
        })
    }

    /// Whether a client gets what it asks for, who reached the site at `at`.
    fn decide(&self, ask: &Ask, at: IpAddr) -> Result<Admission, Answer> {
        let refused = |why: String| Answer::Refused(why);
        let unreadable = |error| Answer::Busy(format!("the site can't look at tokens: {error:#}"));
        let tokens = Tokens::read(&self.config.state).map_err(unreadable)?;
        let known = tokens.find(&ask.secret);
        let (token, grant) = known.ok_or_else(|| refused("the token is not one of its".into()))?;
        let name = &ask.export;
        let export = self.config.exports.get(name).filter(|_| grant.is_for(name));
        let export =
            export.ok_or_else(|| refused(format!("{name:?}: no such export for {token}")))?;
        let one_of = self.copies.clone().try_acquire_owned().map_err(|_| {
            let count = self.config.copies_max;
            Answer::Busy(format!("busy with {count} copies, which is its most"))
        })?;
        Ok(Admission {
            confinement: Confinement {
                export: name.clone(),
                directory: export.directory.clone(),
                writable: export.writable && !grant.read_only,
                at,
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
    let Some(guest) = site.vestibule.enter(client.ip()) else {
        return;
    };
    let let_in = tokio::select! {
        let_in = timeout(PATIENCE, receive(&site, socket)) => let_in,
        _ = stopped.reached() => return,
    };
    drop(guest);
    let (tls, admission) = match let_in.unwrap_or_else(|_| Err(anyhow::Error::msg("too slow"))) {
        Ok(let_in) => let_in,
        Err(error) => {
            let why = format!("{error:#}");
            return site.records.say(&Record::Refused { client, why });
        }
    };
    let copy = site.next_copy.fetch_add(1, Relaxed);
    site.records.say(&Record::Began {
        copy,
        client,
        token: admission.token,
        export: admission.confinement.export.clone(),
    });
    if let Err(error) = bridge(tls, &admission.confinement, stopped).await {
        note!("longhaul site: copy {copy}: {error:#}");
    }
    if admission.confinement.writable {
        site.news.came(&admission.confinement.export);
    }
    site.records.say(&Record::Ended { copy });
}

/// From TCP to an answer.
async fn receive(site: &Site, socket: TcpStream) -> Result<(Tls, Admission)> {
    copy::end_when_silent(&socket, copy::SILENCE)?;
    socket.set_nodelay(true)?;
    // A socket for both families has IPv4 addresses in the clothes of IPv6.
    let at = socket.local_addr()?.ip().to_canonical();
    let mut tls = site.acceptor.accept(socket).await.context("no TLS")?;
    let ask = read_ask(&mut tls).await?;
    match site.decide(&ask, at) {
        Ok(admission) => {
            answer(&mut tls, &Answer::Welcome).await?;
            Ok((tls, admission))
        }
        Err(refusal) => {
            answer(&mut tls, &refusal).await?;
            tls.shutdown().await?;
            Err(anyhow::Error::msg(refusal))
        }
    }
}

async fn answer(tls: &mut Tls, answer: &Answer) -> Result<()> {
    let mut bytes = Vec::new();
    message::write(&mut bytes, answer)?;
    tls.write_all(&bytes).await?;
    Ok(tls.flush().await?)
}

async fn read_ask(tls: &mut Tls) -> Result<Ask> {
    let length = tls.read_u32().await?;
    ensure!(
        length as usize <= ASK_LEN_MAX,
        "a question of {length} bytes"
    );
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.resize(bytes.len() + length as usize, 0);
    tls.read_exact(&mut bytes[4..]).await?;
    let ask = message::read(&mut bytes.as_slice())?;
    ask.context("no question")
}
