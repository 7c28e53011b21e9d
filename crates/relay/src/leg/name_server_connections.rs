// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to name servers. Hickory's own provider repeats a query over UDP within a second, gives up hearing
//! answers with `timeout`, and does not hear that the port is closed. Here it repeats less soon, hears answers for all
//! of the time that a server has, and fails at once at an ICMP error.

use futures_util::future::{BoxFuture, Either, FutureExt as _};
use hickory_resolver::{
    ConnectionProvider, PoolContext,
    config::{ConnectionConfig, ProtocolConfig},
    net::{
        NetError,
        runtime::{DnsUdpSocket, RuntimeProvider, TokioRuntimeProvider, TokioTime},
        udp::UdpClientStream,
        xfer::DnsExchange,
    },
};
use rustix::net::RecvFlags;
use std::{
    future::{Future, Ready, ready},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{io::Interest, net::UdpSocket};

/// Queries for one record that a server gets over UDP, each from a socket of its own.
const QUERIES: u8 = 3;

/// Longest time between them.
const QUERY_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Opens connections to name servers.
#[derive(Clone, Default)]
pub(super) struct NameServerConnections(Sockets);

impl ConnectionProvider for NameServerConnections {
    type Conn = DnsExchange<Sockets>;
    type FutureConn =
        Either<Ready<Result<Self::Conn, NetError>>, <Sockets as ConnectionProvider>::FutureConn>;
    type RuntimeProvider = Sockets;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        cx: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        if config.protocol != ProtocolConfig::Udp {
            let connection = self.0.new_connection(ip, config, cx)?;
            return Ok(Either::Right(connection));
        }
        let time = cx.options.timeout;
        let interval = QUERY_INTERVAL_MAX.min(time / u32::from(QUERIES));
        let stream = UdpClientStream::builder(SocketAddr::new(ip, config.port), self.0.clone())
            .with_timeout(Some(time))
            .with_max_retries(QUERIES)
            .with_retry_interval_floor(interval.as_millis() as u64);
        Ok(Either::Left(ready(Ok(stream.exchange()))))
    }

    fn runtime_provider(&self) -> &Sockets {
        &self.0
    }
}

/// Sockets of this thread's event loop; those of UDP are connected, so that they hear of ICMP errors.
#[derive(Clone, Default)]
pub(super) struct Sockets(TokioRuntimeProvider);

impl RuntimeProvider for Sockets {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = TokioTime;
    type Udp = ConnectedSocket;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.0.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        self.0.connect_tcp(server, local, timeout)
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        Box::pin(async move {
            let socket = UdpSocket::bind(local).await?;
            socket.connect(server).await?;
            Ok(ConnectedSocket(socket))
        })
    }
}

/// UDP socket that is connected to a name server.
pub(super) struct ConnectedSocket(UdpSocket);

impl DnsUdpSocket for ConnectedSocket {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        DnsUdpSocket::poll_recv_from(&self.0, cx, buffer)
    }

    /// An ICMP error alone makes no socket readable, so it is waited for, too.
    fn recv_from<'a, 'b, 'future>(
        &'a self,
        buffer: &'b mut [u8],
    ) -> BoxFuture<'future, io::Result<(usize, SocketAddr)>>
    where
        'a: 'future,
        'b: 'future,
    {
        let received = self.0.async_io(Interest::READABLE | Interest::ERROR, || {
            let received = rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT)?;
            Ok((received.0, self.0.peer_addr()?))
        });
        received.boxed()
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buffer: &[u8],
        _: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send(cx, buffer)
    }
}
