// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS BIND (RFC 1928 §4): the relay listens for one connection on behalf of the client, for
//! protocols whose servers connect back. Sends two replies: the listening address, and the address
//! of the peer that connected.

use crate::{
    client_protocols::handshake::{Rejection, ReplyFormat, reject},
    config::profile::Profile,
    leg::profile::set_initial_window,
    route::upstream_leg::UpstreamLeg,
    session::Session,
    transfer::{End, Side},
};
use longhaul_admission::exhaustion::{retry_on_exhaustion, with_timeout};
use longhaul_admission::rate_limits::Direction;
use longhaul_linux::socket::{self, reset_on_close};
use longhaul_protocol::{destination::Destination, failure::Failure, socks5::Reply};
use longhaul_transport::{channel::write_all, transport::TransportStream};
use std::{
    io,
    net::{IpAddr, SocketAddr},
};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    select,
};

/// Waits for the expected peer, at most for the connect time-out, and relays.
pub(super) async fn serve(
    session: &Session,
    expected: &Destination,
    early: &[u8],
    reply_format: ReplyFormat,
) -> End {
    session.set_destination(format!("bind {expected}"));
    let (upstream, peer) = match accept_peer(session, expected, reply_format).await {
        Ok(accepted) => accepted,
        Err(rejected) => return reject(session, rejected).await,
    };
    session.set_upstream_leg(&upstream);
    if let Err(error) = write_all(&upstream.leg, early).await {
        return End::Broken(Side::Upstream, error);
    }
    session.count_bytes(Direction::Up, early.len());
    let second_reply = reply_format.reply(Reply::Succeeded, Some(peer));
    session.transfer(&upstream, &second_reply).await
}

async fn accept_peer(
    session: &Session,
    expected: &Destination,
    reply_format: ReplyFormat,
) -> Result<(UpstreamLeg, SocketAddr), Rejection> {
    let rejected = |failure| reply_format.rejection(failure);
    let direct_profile = if is_unspecified(expected) {
        session.direct_profile_for_any()
    } else {
        session.direct_profile(expected)
    };
    let profile = direct_profile
        .map_err(rejected)?
        .ok_or_else(|| reply_format.unsupported())?;
    let limit = session.setup.config.limits.connect_timeout;
    // Permit for the listening socket, until it is replaced by the accepted one.
    let _permit = session.try_acquire_permits(1).map_err(rejected)?;
    let accepting = async {
        let peers = peer_addresses(session, expected).await?;
        let listener = listen(session, &peers, &profile).await?;
        let bound = listener
            .local_addr()
            .map_err(|e| Failure::from_connect(&e))?;
        let first_reply = reply_format.reply(Reply::Succeeded, Some(bound));
        write_all(&session.client.stream, &first_reply)
            .await
            .map_err(|_| Failure::ClientGone)?;
        select! {
            accepted = accept(session, &listener, &peers) => accepted,
            () = client_closed(&session.client.stream) => Err(Failure::ClientGone),
        }
    };
    let (stream, peer) = with_timeout(limit, accepting).await.map_err(rejected)?;
    Ok((UpstreamLeg::direct((stream, peer), &profile, limit), peer))
}

/// Whether the client does not know its peer yet.
fn is_unspecified(expected: &Destination) -> bool {
    matches!(expected, Destination::Address(address) if address.ip().is_unspecified())
}

/// Addresses that may connect; empty if the client does not know its peer yet.
async fn peer_addresses(session: &Session, expected: &Destination) -> Result<Vec<IpAddr>, Failure> {
    if is_unspecified(expected) {
        return Ok(Vec::new());
    }
    let found = session.resolve(expected).await?.into_iter();
    // A name may resolve to an address that other rules apply to.
    let allowed = found.filter(|address| connects_directly(session, *address));
    let allowed: Vec<_> = allowed.map(|address| address.ip()).collect();
    if allowed.is_empty() {
        Err(Failure::NotAllowed)
    } else {
        Ok(allowed)
    }
}

fn connects_directly(session: &Session, address: SocketAddr) -> bool {
    let address = Destination::from_ip(address.ip(), address.port());
    matches!(session.direct_profile(&address), Ok(Some(_)))
}

/// Listens on the address that the expected peer can reach; if there is none, on the address that
/// the client connected to.
async fn listen(
    session: &Session,
    peers: &[IpAddr],
    profile: &Profile,
) -> Result<TcpListener, Failure> {
    let listener = retry_on_exhaustion(async || {
        let ip = match peers.first() {
            Some(peer) => local_address_towards(*peer).await?,
            None => session.client.stream.local_addr()?.ip(),
        };
        let listener = socket::listen((ip, 0).into(), 1, &profile.options)?.remove(0);
        set_initial_window(profile, &listener)?;
        TcpListener::from_std(listener)
    });
    listener
        .await
        .map_err(|error| Failure::from_connect(&error))
}

/// Local address for `peer`. connect(2) on a datagram socket consults the routing table and sends
/// nothing.
async fn local_address_towards(peer: IpAddr) -> io::Result<IpAddr> {
    const DISCARD: u16 = 9;
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect((peer, DISCARD)).await?;
    Ok(socket.local_addr()?.ip())
}

/// Accepts the first connection from an expected peer that the rules allow; resets others. RFC 1928
/// gives the peer's port no meaning: FTP servers use port 20, others any.
async fn accept(
    session: &Session,
    listener: &TcpListener,
    peers: &[IpAddr],
) -> Result<(TcpStream, SocketAddr), Failure> {
    loop {
        let (stream, peer) = retry_on_exhaustion(|| listener.accept())
            .await
            .map_err(|error| Failure::from_connect(&error))?;
        let known = peers.is_empty() || peers.contains(&peer.ip().to_canonical());
        if known && connects_directly(session, peer) {
            return Ok((stream, peer));
        }
        reset_unexpected(&stream);
    }
}

/// Returns when the client has closed; early data from it is for the peer and stays queued.
async fn client_closed(client: &TransportStream) {
    if matches!(client.wait_peek().await, Ok(1..)) {
        std::future::pending::<()>().await;
    }
}

/// Resets an unexpected connection when it is dropped.
fn reset_unexpected(stranger: &TcpStream) {
    // An error here means that the socket has lost its connection already.
    let _ = reset_on_close(stranger);
}
