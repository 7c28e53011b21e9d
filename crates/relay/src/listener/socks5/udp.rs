// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP ASSOCIATE (RFC 1928 §7): datagrams for one client, as long as its TCP connection stands.

use crate::{
    listener::language::{Language, Rejection, reject},
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
    carrier::Carrier,
    channel::{read_some, write_all},
};
use parking_lot::Mutex;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::OnceLock,
    time::{Duration, Instant},
};
use tokio::{net::UdpSocket, select, sync::OwnedSemaphorePermit, time::timeout};

/// The largest datagram; two such buffers an association.
const DATAGRAM_LEN_MAX: usize = 65_535;
/// Hosts that may answer: the last ones that the client has sent to.
const HOSTS_MAX: usize = 1024;
/// Names whose address is remembered, and for how long.
const NAMES_MAX: usize = 64;
const NAME_TIME: Duration = Duration::from_secs(30);

/// Three sockets and what has been seen on them.
struct Association<'a> {
    session: &'a Session,
    /// With its TCP connection, it has four descriptors.
    _place: OwnedSemaphorePermit,
    sockets: Sockets,
    /// Where the client sends from: as it announced, or as its first datagram shows.
    client: OnceLock<SocketAddr>,
    hosts: Mutex<IndexSet<IpAddr>>,
}

struct Sockets {
    near: UdpSocket,
    far_v4: UdpSocket,
    /// None where the host has no IPv6.
    far_v6: Option<UdpSocket>,
}

impl Sockets {
    async fn bind(session: &Session) -> io::Result<Self> {
        let facing_client = session.client.local_addr()?.ip();
        Ok(Self {
            near: UdpSocket::bind((facing_client, 0)).await?,
            far_v4: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
            far_v6: match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
                Err(error) if is_exhaustion(&error) => return Err(error),
                socket => socket.ok(),
            },
        })
    }
}

/// Relays datagrams until the client closes its TCP connection.
pub(super) async fn serve(session: &Session, announced: &Destination) -> End {
    session.asks_for("udp".to_owned());
    let association = match Association::open(session, announced).await {
        Ok(association) => association,
        Err(rejected) => return reject(session, rejected).await,
    };
    session.is_tunnel();
    let end = async {
        let bound = association.sockets.near.local_addr()?;
        write_all(&session.client, &Reply::Succeeded.encode(Some(bound))).await?;
        closed(&session.client).await
    };
    select! {
        end = end => match end {
            Ok(()) => End::Finished,
            Err(error) => End::Broken(Side::Near, error),
        },
        error = association.up() => End::Broken(Side::Near, error),
        error = association.down() => End::Broken(Side::Far, error),
    }
}

impl<'a> Association<'a> {
    async fn open(session: &'a Session, announced: &Destination) -> Result<Self, Rejection> {
        // Datagrams go straight. Where everything leaves through peers, there is nothing to offer.
        let rejected = |failure| Language::Socks5.rejection(failure);
        let way = session.straight_way_to_anyone().map_err(rejected)?;
        way.ok_or_else(|| Language::Socks5.unsupported())?;
        let place = session.more_places(1).map_err(rejected)?;
        let limit = session.config.limits.connect_timeout;
        let sockets = async {
            let bound = retry_on_exhaustion(|| Sockets::bind(session)).await;
            bound.map_err(|error| Failure::from_connect(&error))
        };
        let association = Self {
            session,
            _place: place,
            sockets: with_timeout(limit, sockets).await.map_err(rejected)?,
            client: OnceLock::new(),
            hosts: Mutex::default(),
        };
        association.expect(announced);
        Ok(association)
    }

    /// RFC 1928 §6: the client may announce where it will send from, or zeroes. Behind an address
    /// translator it can only be wrong about itself; then its first datagram tells.
    fn expect(&self, announced: &Destination) {
        let home = self.session.sender.ip().to_canonical();
        match announced {
            Destination::Address(address) if address.ip() == home && address.port() != 0 => {
                let _ = self.client.set(*address);
            }
            _ => {}
        }
    }

    /// Whether a datagram comes from the client itself.
    fn is_client(&self, from: SocketAddr) -> bool {
        let home = self.session.sender.ip().to_canonical();
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        from.ip() == home && *self.client.get_or_init(|| from) == from
    }

    /// From the client to destinations; ends with an error of its socket.
    async fn up(&self) -> io::Error {
        let mut buffer = vec![0; DATAGRAM_LEN_MAX];
        let mut names = Names::default();
        loop {
            let (len, from) = match self.sockets.near.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => return error,
            };
            // RFC 1928 §7: what is from elsewhere, a fragment or no datagram of ours is dropped.
            if self.is_client(from)
                && let Ok((destination, data)) = parse_datagram(&buffer[..len])
                && let Some(address) = self.resolve(&destination, &mut names).await
            {
                self.send(address, data).await;
            }
        }
    }

    /// Where a datagram goes, if it may; over UDP there is nobody to tell why not.
    async fn resolve(&self, destination: &Destination, names: &mut Names) -> Option<SocketAddr> {
        self.goes_straight(destination).then_some(())?;
        let address = match destination {
            Destination::Address(address) => return Some(*address),
            Destination::Name(name, _) => names.address(self.session, name, destination).await?,
        };
        // A name may lead where its rule did not look.
        self.goes_straight(&Destination::Address(address))
            .then_some(address)
    }

    fn goes_straight(&self, destination: &Destination) -> bool {
        matches!(self.session.straight_way(destination), Ok(Some(_)))
    }

    async fn send(&self, to: SocketAddr, data: &[u8]) {
        let socket = match to {
            SocketAddr::V4(_) => Some(&self.sockets.far_v4),
            SocketAddr::V6(_) => self.sockets.far_v6.as_ref(),
        };
        let Some(socket) = socket else { return };
        self.remember(to.ip());
        self.session.pace(Direction::Up, data.len()).await;
        // A datagram that can't be sent is lost, as datagrams are.
        if socket.send_to(data, to).await.is_ok() {
            self.session.count(Direction::Up, data.len());
        }
    }

    fn remember(&self, host: IpAddr) {
        let mut hosts = self.hosts.lock();
        if hosts.len() >= HOSTS_MAX && !hosts.contains(&host) {
            hosts.shift_remove_index(0);
        }
        hosts.insert(host);
    }

    fn is_awaited(&self, host: IpAddr) -> bool {
        let hosts = self.hosts.lock();
        hosts.contains(&host)
    }

    /// From those that the client has sent to, back to it; ends with an error of a socket.
    async fn down(&self) -> io::Error {
        const AT: usize = DATAGRAM_HEADER_LEN_MAX;
        let mut buffer = vec![0; AT + DATAGRAM_LEN_MAX];
        loop {
            let (len, from) = match self.receive(&mut buffer[AT..]).await {
                Ok(received) => received,
                Err(error) => return error,
            };
            let Some(client) = self.client.get().filter(|_| self.is_awaited(from.ip())) else {
                continue;
            };
            let header = datagram_header(from);
            let start = AT - header.len();
            buffer[start..AT].copy_from_slice(&header);
            self.session.pace(Direction::Down, len).await;
            let datagram = &buffer[start..AT + len];
            if self.sockets.near.send_to(datagram, client).await.is_ok() {
                self.session.count(Direction::Down, len);
            }
        }
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Some(far_v6) = &self.sockets.far_v6 else {
            return self.sockets.far_v4.recv_from(buffer).await;
        };
        loop {
            let ready = select! {
                ready = self.sockets.far_v4.readable() => ready.map(|()| &self.sockets.far_v4),
                ready = far_v6.readable() => ready.map(|()| far_v6),
            };
            match ready?.try_recv_from(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
    }
}

/// Returns when the client has closed its TCP connection. What it sends until then has no meaning.
async fn closed(client: &Carrier) -> std::io::Result<()> {
    let mut nonsense = Vec::new();
    while read_some(client, &mut nonsense, 4096).await? > 0 {
        nonsense.clear();
    }
    Ok(())
}

/// Names resolved a short while ago: one lookup a datagram would be slow.
#[derive(Default)]
struct Names(IndexMap<HostName, (Instant, IpAddr)>);

impl Names {
    async fn address(
        &mut self,
        session: &Session,
        name: &HostName,
        destination: &Destination,
    ) -> Option<SocketAddr> {
        let (now, port) = (Instant::now(), destination.port());
        if let Some((when, ip)) = self.0.get(name)
            && now.duration_since(*when) < NAME_TIME
        {
            return Some((*ip, port).into());
        }
        let limit = session.config.limits.connect_timeout;
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
