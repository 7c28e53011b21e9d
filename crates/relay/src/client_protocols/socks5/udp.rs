// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS5 UDP ASSOCIATE (RFC 1928 §7): relays datagrams of one client while its TCP connection is
//! open.

use crate::{
    client_protocols::handshake::{Rejection, ReplyFormat, reject},
    session::Session,
    transfer::{End, Side},
};
use indexmap::{IndexMap, IndexSet};
use longhaul_admission::exhaustion::{is_exhaustion, retry_on_exhaustion, with_timeout};
use longhaul_admission::rate_limits::Direction;
use longhaul_protocol::{
    destination::{Destination, HostName},
    failure::Failure,
    socks5::{DATAGRAM_HEADER_LEN_MAX, Reply, datagram_header, parse_datagram},
};
use longhaul_transport::{
    channel::{read_some, write_all},
    transport::TransportStream,
};
use parking_lot::Mutex;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::OnceLock,
    time::{Duration, Instant},
};
use tokio::{net::UdpSocket, select, sync::OwnedSemaphorePermit, time::timeout};

/// Largest datagram in bytes; an association has two such buffers.
const DATAGRAM_LEN_MAX: usize = 65_535;
/// Most hosts that may answer: the last ones that the client has sent to.
const HOSTS_MAX: usize = 1024;
/// Most names whose addresses are cached, and for how long.
const NAMES_MAX: usize = 64;
const NAME_TTL: Duration = Duration::from_secs(30);

/// UDP sockets of an association, and the addresses seen on them.
struct Association<'a> {
    session: &'a Session,
    /// Permit for two descriptors: with its TCP connection, the association has four.
    _permit: OwnedSemaphorePermit,
    sockets: Sockets,
    /// Source address of the client: as announced, or from its first datagram.
    client: OnceLock<SocketAddr>,
    hosts: Mutex<IndexSet<IpAddr>>,
}

struct Sockets {
    downstream: UdpSocket,
    upstream_v4: UdpSocket,
    /// `None` if the host has no IPv6.
    upstream_v6: Option<UdpSocket>,
}

impl Sockets {
    async fn bind(session: &Session) -> io::Result<Self> {
        let local = session.client.stream.local_addr()?.ip();
        Ok(Self {
            downstream: UdpSocket::bind((local, 0)).await?,
            upstream_v4: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
            upstream_v6: match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
                Err(error) if is_exhaustion(&error) => return Err(error),
                socket => socket.ok(),
            },
        })
    }
}

/// Relays datagrams until the client closes its TCP connection.
pub(super) async fn serve(session: &Session, announced: &Destination) -> End {
    session.set_destination("udp".to_owned());
    let association = match Association::open(session, announced).await {
        Ok(association) => association,
        Err(rejected) => return reject(session, rejected).await,
    };
    session.start_tunnel_timers();
    let end = async {
        let bound = association.sockets.downstream.local_addr()?;
        write_all(
            &session.client.stream,
            &Reply::Succeeded.encode(Some(bound)),
        )
        .await?;
        client_closed(&session.client.stream).await
    };
    select! {
        end = end => match end {
            Ok(()) => End::Finished,
            Err(error) => End::Broken(Side::Downstream, error),
        },
        error = association.relay_up() => End::Broken(Side::Downstream, error),
        error = association.relay_down() => End::Broken(Side::Upstream, error),
    }
}

impl<'a> Association<'a> {
    async fn open(session: &'a Session, announced: &Destination) -> Result<Self, Rejection> {
        // Datagrams only go directly to destinations. If all routes lead through peers, the command
        // is not supported.
        let rejected = |failure| ReplyFormat::Socks5.rejection(failure);
        let profile = session.direct_profile_for_any().map_err(rejected)?;
        profile.ok_or_else(|| ReplyFormat::Socks5.unsupported())?;
        let permit = session.try_acquire_permits(1).map_err(rejected)?;
        let limit = session.setup.config.limits.connect_timeout;
        let sockets = async {
            let bound = retry_on_exhaustion(|| Sockets::bind(session)).await;
            bound.map_err(|error| Failure::from_connect(&error))
        };
        let association = Self {
            session,
            _permit: permit,
            sockets: with_timeout(limit, sockets).await.map_err(rejected)?,
            client: OnceLock::new(),
            hosts: Mutex::default(),
        };
        association.set_announced_address(announced);
        Ok(association)
    }

    /// Takes the source address that the client announces, or zeroes (RFC 1928 §6). A client behind
    /// an address translator can't know its address; then its first datagram sets it.
    fn set_announced_address(&self, announced: &Destination) {
        let client_ip = self.session.client.sender.ip().to_canonical();
        match announced {
            Destination::Address(address) if address.ip() == client_ip && address.port() != 0 => {
                let _ = self.client.set(*address);
            }
            _ => {}
        }
    }

    /// Whether the client sent a datagram.
    fn is_client(&self, from: SocketAddr) -> bool {
        let client_ip = self.session.client.sender.ip().to_canonical();
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        from.ip() == client_ip && *self.client.get_or_init(|| from) == from
    }

    /// Relays datagrams from the client to destinations until its socket fails.
    async fn relay_up(&self) -> io::Error {
        let mut buffer = vec![0; DATAGRAM_LEN_MAX];
        let mut names = NameCache::default();
        loop {
            let (len, from) = match self.sockets.downstream.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => return error,
            };
            // Drops datagrams from other hosts, fragments and malformed datagrams (RFC 1928 §7).
            if self.is_client(from)
                && let Ok((destination, data)) = parse_datagram(&buffer[..len])
                && let Some(address) = self.resolve(&destination, &mut names).await
            {
                self.send(address, data).await;
            }
        }
    }

    /// Address to send a datagram to; `None` if it is not allowed: UDP has no error reply.
    async fn resolve(
        &self,
        destination: &Destination,
        names: &mut NameCache,
    ) -> Option<SocketAddr> {
        self.connects_directly(destination).then_some(())?;
        let address = match destination {
            Destination::Address(address) => return Some(*address),
            Destination::Name(name, _) => names.address(self.session, name, destination).await?,
        };
        // A name may resolve to an address that other rules apply to.
        self.connects_directly(&Destination::Address(address))
            .then_some(address)
    }

    fn connects_directly(&self, destination: &Destination) -> bool {
        matches!(self.session.direct_profile(destination), Ok(Some(_)))
    }

    async fn send(&self, to: SocketAddr, data: &[u8]) {
        let socket = match to {
            SocketAddr::V4(_) => Some(&self.sockets.upstream_v4),
            SocketAddr::V6(_) => self.sockets.upstream_v6.as_ref(),
        };
        let Some(socket) = socket else { return };
        self.remember_host(to.ip());
        self.session.pace(Direction::Up, data.len()).await;
        // A datagram that can't be sent is lost, as UDP permits.
        if socket.send_to(data, to).await.is_ok() {
            self.session.count_bytes(Direction::Up, data.len());
        }
    }

    fn remember_host(&self, host: IpAddr) {
        let mut hosts = self.hosts.lock();
        if hosts.len() >= HOSTS_MAX && !hosts.contains(&host) {
            hosts.shift_remove_index(0);
        }
        hosts.insert(host);
    }

    fn is_known_host(&self, host: IpAddr) -> bool {
        let hosts = self.hosts.lock();
        hosts.contains(&host)
    }

    /// Relays datagrams from known hosts to the client until a socket fails.
    async fn relay_down(&self) -> io::Error {
        const AT: usize = DATAGRAM_HEADER_LEN_MAX;
        let mut buffer = vec![0; AT + DATAGRAM_LEN_MAX];
        loop {
            let (len, from) = match self.receive(&mut buffer[AT..]).await {
                Ok(received) => received,
                Err(error) => return error,
            };
            let Some(client) = self.client.get().filter(|_| self.is_known_host(from.ip())) else {
                continue;
            };
            let header = datagram_header(from);
            let start = AT - header.len();
            buffer[start..AT].copy_from_slice(&header);
            self.session.pace(Direction::Down, len).await;
            let datagram = &buffer[start..AT + len];
            if self
                .sockets
                .downstream
                .send_to(datagram, client)
                .await
                .is_ok()
            {
                self.session.count_bytes(Direction::Down, len);
            }
        }
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Some(far_v6) = &self.sockets.upstream_v6 else {
            return self.sockets.upstream_v4.recv_from(buffer).await;
        };
        loop {
            let ready = select! {
                ready = self.sockets.upstream_v4.readable() => ready.map(|()| &self.sockets.upstream_v4),
                ready = far_v6.readable() => ready.map(|()| far_v6),
            };
            match ready?.try_recv_from(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
    }
}

/// Returns when the client has closed its TCP connection. Bytes that it sends before are ignored.
async fn client_closed(client: &TransportStream) -> std::io::Result<()> {
    let mut ignored = Vec::new();
    while read_some(client, &mut ignored, 4096).await? > 0 {
        ignored.clear();
    }
    Ok(())
}

/// Cache of recently resolved names, since one lookup for each datagram would be slow.
#[derive(Default)]
struct NameCache(IndexMap<HostName, (Instant, IpAddr)>);

impl NameCache {
    async fn address(
        &mut self,
        session: &Session,
        name: &HostName,
        destination: &Destination,
    ) -> Option<SocketAddr> {
        let (now, port) = (Instant::now(), destination.port());
        if let Some((when, ip)) = self.0.get(name)
            && now.duration_since(*when) < NAME_TTL
        {
            return Some((*ip, port).into());
        }
        let limit = session.setup.config.limits.connect_timeout;
        let found = timeout(limit, session.resolve(destination)).await;
        let address = *found.ok()?.ok()?.first()?;
        self.0.shift_remove(name);
        if self.0.len() >= NAMES_MAX {
            self.0.shift_remove_index(0);
        }
        self.0.insert(name.clone(), (now, address.ip()));
        Some(address)
    }
}
