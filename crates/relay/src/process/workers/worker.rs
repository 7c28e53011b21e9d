// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker thread: accepts on its own share of every listener and serves what it accepted.

use crate::{
    listeners::{
        listener::Listener,
        sockets::{ListenSocket, WorkerSocket},
    },
    process::workers::{
        connection, cpu,
        load_balancer::{AcceptedConnection, LoadBalancer},
        registry::Registry,
    },
    relay::{Phase, Relay},
    session::WorkerResources,
};
use longhaul_admission::exhaustion::{self, is_exhaustion};
use longhaul_linux::pipe_pool::Pool;
use longhaul_transport::transport::{TransportStream, canonical};
use longhaul_udt::socket::Socket;
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::mpsc::Receiver,
};
use tracing::{Instrument as _, debug_span, error, info, warn};

/// Worker, before its thread starts.
pub(crate) struct Worker {
    pub(crate) relay: Arc<Relay>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) balancer: Arc<LoadBalancer>,
    /// Index among the serving threads.
    pub(crate) index: usize,
    /// Listening sockets, as they are opened.
    pub(crate) sockets: Receiver<WorkerSocket>,
    /// Connections that other workers accepted.
    pub(crate) handovers: Receiver<AcceptedConnection>,
}

impl Worker {
    /// Serves until the relay stops.
    pub(crate) fn run(self) -> io::Result<()> {
        let runtime = longhaul_command::event_loop::current_thread()?;
        runtime.block_on(self.serve())
    }

    async fn serve(mut self) -> io::Result<()> {
        tokio::spawn(self.relay.heartbeats.clone().send(self.index));
        tokio::spawn(cpu::watch(self.index));
        let resources = WorkerResources {
            pipe_pool: Arc::new(Pool::new(self.relay.config().pool)),
            peer_pools: Arc::default(),
        };
        let (relay, peer_pools) = (self.relay.clone(), resources.peer_pools.clone());
        let maintenance = async {
            select! {
                () = peer_pools.maintain(&relay.current) => {}
                () = relay.lifecycle.wait_for(Phase::Drain) => peer_pools.clear(),
            }
            relay.lifecycle.wait_for(Phase::Stop).await;
        };
        tokio::pin!(maintenance);
        loop {
            select! {
                Some(connection) = self.handovers.recv() => serve_handover(connection, &resources),
                Some(worker_socket) = self.sockets.recv() => self.open(worker_socket, &resources)?,
                () = &mut maintenance => return Ok(()),
            }
        }
    }

    fn open(&self, worker_socket: WorkerSocket, resources: &WorkerResources) -> io::Result<()> {
        let acceptor = Acceptor {
            relay: self.relay.clone(),
            registry: self.registry.clone(),
            balancer: self.balancer.clone(),
            worker: self.index,
            listener: worker_socket.listener,
            resources: resources.clone(),
        };
        match worker_socket.socket {
            ListenSocket::Tcp(listener) => {
                let listener = TcpListener::from_std(listener)?;
                tokio::spawn(acceptor.accept_all(worker_socket.generation, listener));
            }
            ListenSocket::Udt(socket) => {
                tokio::spawn(acceptor.accept_all_udt(worker_socket.generation, socket));
            }
        }
        Ok(())
    }
}

/// Serves a connection that another worker accepted.
fn serve_handover(connection: AcceptedConnection, resources: &WorkerResources) {
    // An error means that the event loop is out of memory: the client is dropped.
    if let Ok(connection) = connection.move_to_current_runtime() {
        spawn_connection(connection, resources);
    }
}

/// Spawns the task of a connection on this thread.
fn spawn_connection(connection: AcceptedConnection, resources: &WorkerResources) {
    let (registry, number) = (
        connection.registration.registry.clone(),
        connection.registration.number,
    );
    let id = connection.registration.number;
    let span = debug_span!(target: "longhaul_relay::session", "connection", id);
    let task = tokio::spawn(connection::run(connection, resources.clone()).instrument(span));
    registry.set_task(number, task.abort_handle());
}

/// Accept loop of one worker for one listener.
struct Acceptor {
    relay: Arc<Relay>,
    registry: Arc<Registry>,
    balancer: Arc<LoadBalancer>,
    /// Index of the worker.
    worker: usize,
    listener: Arc<Listener>,
    resources: WorkerResources,
}

impl Acceptor {
    /// Accepts until the relay drains or a reload closes the socket.
    async fn accept_all(self, generation: u64, listener: TcpListener) {
        select! {
            () = self.accept_until_closed(generation, &listener) => {}
            () = self.relay.lifecycle.wait_for(Phase::Drain) => {}
        }
        self.accept_queue(listener).await;
    }

    /// Accepts UDT connections. One worker accepts for all.
    async fn accept_all_udt(self, generation: u64, socket: Socket) {
        let accepting = async {
            while let Ok(stream) = socket.accept().await {
                // A connection without a peer address has ended already.
                if let Some(address) = stream.peer_addr() {
                    self.admit(TransportStream::Udt(stream.into()), address)
                        .await;
                }
            }
            error!(
                "the port of {} failed: no more connections are accepted",
                self.listener.name()
            );
        };
        select! {
            () = accepting => {}
            () = self.listener.generation_closed(generation) => {}
            () = self.relay.lifecycle.wait_for(Phase::Drain) => {}
        }
    }

    async fn accept_until_closed(&self, generation: u64, listener: &TcpListener) {
        let mut backoff = AcceptBackoff::default();
        let mut closed = pin!(self.listener.generation_closed(generation));
        loop {
            let accepted = select! {
                accepted = listener.accept() => accepted,
                () = &mut closed => return,
            };
            match accepted {
                Ok((client, address)) => {
                    backoff.recovered();
                    self.admit(client, address).await;
                }
                Err(error) => backoff.wait(&error).await,
            }
        }
    }

    /// Accepts the connections left in the listen queue. Their handshakes are complete, and the
    /// kernel would reset them when the socket is closed.
    async fn accept_queue(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        let mut queue = Vec::new();
        while let Ok(connection) = listener.accept() {
            queue.push(connection);
        }
        drop(listener);
        for (client, address) in queue {
            let client = client.set_nonblocking(true).map(|()| client);
            if let Ok(client) = client.and_then(TcpStream::from_std) {
                self.admit(client, address).await;
            }
        }
    }

    /// Waits for memory and a permit, then dispatches the connection. Meanwhile, other clients wait
    /// in the listen queue.
    async fn admit(&self, client: impl Into<TransportStream>, address: SocketAddr) {
        let address = canonical(address);
        self.relay.memory.wait_for_room(address.ip()).await;
        let Ok(permit) = self.relay.acquire_permit().await else {
            return;
        };
        let load = self.balancer.assign(self.worker);
        let connection = AcceptedConnection {
            permit,
            registration: self.registry.register(),
            relay: self.relay.clone(),
            listener: self.listener.clone(),
            client: client.into(),
            address,
            load,
        };
        self.dispatch(connection);
    }

    fn dispatch(&self, connection: AcceptedConnection) {
        if connection.load.worker == self.worker {
            spawn_connection(connection, &self.resources);
        } else if let Some(connection) = self.balancer.hand_over(connection) {
            spawn_connection(connection, &self.resources);
        }
    }
}

/// Backoff of an accept loop without descriptors or memory. Logs the shortage once.
#[derive(Default)]
struct AcceptBackoff {
    is_logged: bool,
    /// Time of the last log line.
    last_logged: Option<Instant>,
}

/// Minimum interval of log lines about a shortage: clients cause it, but must not control the
/// volume of the log.
const LOG_INTERVAL_MIN: Duration = Duration::from_secs(60);

impl AcceptBackoff {
    /// Waits after a failed accept(2). Errors of the connection itself (accept(2), "Error
    /// handling") need no wait.
    async fn wait(&mut self, error: &io::Error) {
        if !is_exhaustion(error) {
            return;
        }
        if !self.is_logged
            && self
                .last_logged
                .is_none_or(|at| at.elapsed() >= LOG_INTERVAL_MIN)
        {
            (self.is_logged, self.last_logged) = (true, Some(Instant::now()));
            warn!("{error}; new connections wait");
        }
        exhaustion::wait_to_retry().await;
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.is_logged) {
            info!("accepting again");
        }
    }
}
