// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous of the two endpoints: one listens, the other connects, and both get the same connections.
//! Streams that break are opened again, under a new number.

use super::reports::Reporter;
use crate::{
    connection::{Connection, HANDSHAKE_TIMEOUT, Purpose},
    protocol::{
        control::{Begin, Rendezvous},
        options::{Options, Ports, Switch, Transport},
        report::Report,
    },
};
use anyhow::{Context as _, Result, anyhow, bail};
use longhaul_command::{
    exit::Refusal,
    threads::{self, Ends, Monitor},
};
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_scheduling::streams::{STREAMS_MAX as STREAMS_AUTO_MAX, guess};
use longhaul_transport::{
    blocking::{self, enable_keepalive},
    identity::{Identity, Initiator, Responder},
    port::{self, UdtCongestionControl},
};
use longhaul_udt::socket::Socket;
use longhaul_units::Time;
use std::{
    io,
    iter::repeat_n,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Time for a TCP connection: the answer to any of the first three SYNs (0, 1 and 3 s) may take up to 5 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Connections for messages, which every session has.
pub(super) struct ControlConnections {
    pub(super) source_messages: Connection,
    pub(super) target_messages: Connection,
}

/// Handler of streams at an endpoint.
pub(super) trait StreamHandler: Send + Sync + 'static {
    /// Uses a stream; returns when it has ended, for whatever reason.
    fn handle_stream(&self, number: u64, stream: Connection);

    /// Returns whether there is nothing more to carry.
    fn is_over(&self) -> bool;

    /// Returns the opener of streams, used if this endpoint connects.
    fn opener(&self) -> &StreamOpener;
}

/// Opener of streams: keeps as many open as wanted, at the endpoint that connects.
#[derive(Debug, Default)]
pub(super) struct StreamOpener(Monitor<OpenerState>);

#[derive(Debug, Default)]
struct OpenerState {
    wanted: usize,
    /// Streams that are open or being opened.
    open: usize,
    /// Streams that are open.
    connected: usize,
    /// Time of the first failure since a stream was last open.
    failing_since: Option<Instant>,
    ended: bool,
    /// Handles of the control connections. A connection stays open as long as its handle is here.
    control_handles: Vec<Arc<blocking::Connection>>,
    /// Reason why no stream could be opened.
    failure: Option<anyhow::Error>,
}

impl StreamOpener {
    /// Sets the number of wanted streams. Excess streams end by themselves: the source closes them.
    pub(super) fn set_wanted(&self, streams: usize) {
        self.0
            .update(|state| state.wanted = streams.min(STREAMS_MAX));
    }

    /// Opens no more streams.
    pub(super) fn stop(&self) {
        self.0.update(|state| {
            state.ended = true;
            state.control_handles.clear();
        });
    }

    /// Ends the opening of streams. Returns the session's outcome, or the reason why no stream could be
    /// opened.
    pub(super) fn finish<T>(&self, outcome: Result<T>) -> Result<T> {
        match self.0.update_silent(|state| state.failure.take()) {
            // The control connections stay open. If they were closed, the peer would report their end first,
            // and the reason would be lost.
            Some(why) => Err(why),
            None => {
                self.stop();
                outcome
            }
        }
    }

    /// Keeps handles of the control connections, to shut them down if opening is given up.
    fn keep_control_handles(&self, control: &ControlConnections) -> Result<()> {
        let handles = [
            control.source_messages.handle()?,
            control.target_messages.handle()?,
        ];
        self.0.update_silent(|state| {
            state.control_handles.extend(handles);
            state.shut_down_if_given_up();
        });
        Ok(())
    }

    /// Gives up, because no stream can be opened. Readers of the control connections then see their end.
    fn give_up(&self, why: anyhow::Error) {
        self.0.update(|state| {
            state.ended = true;
            state.failure.get_or_insert(why);
            state.shut_down_if_given_up();
        });
    }

    /// Waits until a stream is missing, and counts it as open. Returns `false` once opening has ended.
    fn wait_for_missing(&self) -> bool {
        let missing = self.0.next(|state| {
            let missing = state.open < state.wanted;
            state.open += usize::from(missing);
            missing.then_some(())
        });
        missing.is_some()
    }

    fn count_ended(&self) {
        self.0.update(|state| state.open -= 1);
    }

    fn count_while_connected(&self, run: impl FnOnce()) {
        self.0.update_silent(|state| {
            state.connected += 1;
            state.failing_since = None;
        });
        run();
        self.0.update_silent(|state| state.connected -= 1);
    }

    /// Records a failed attempt. Returns how long attempts have failed since a stream was last open; zero
    /// while one is open.
    fn record_failure(&self) -> Duration {
        self.0.update_silent(|state| match state.connected {
            0 => state
                .failing_since
                .get_or_insert_with(Instant::now)
                .elapsed(),
            _ => Duration::ZERO,
        })
    }
}

impl Ends for OpenerState {
    fn is_over(&self) -> bool {
        self.ended
    }
}

impl OpenerState {
    fn shut_down_if_given_up(&self) {
        if self.failure.is_some() {
            self.control_handles
                .iter()
                .for_each(|connection| connection.shutdown_read());
        }
    }
}

/// Maximum streams, whatever number the peer asks for.
const STREAMS_MAX: usize = 256;

/// Maximum concurrent handshakes, a thread each: all possible streams, and some strangers.
const HANDSHAKES_MAX: usize = 300;
/// Maximum addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;
/// Minimum time for a UDT handshake, if `--idle-timeout` is shorter.
const UDT_HANDSHAKE_MIN: Duration = Duration::from_secs(3);
/// Ports that are tried if any port is allowed.
const BIND_ATTEMPTS: usize = 16;
/// Delay before a stream is opened again.
const REOPEN_DELAY: Duration = Duration::from_millis(500);

/// Connects the two endpoints. Passes streams to `streams` as they arrive, in threads of their own.
pub(super) fn connect_endpoints<S: StreamHandler>(
    begin: &Begin,
    identity: &Identity,
    reporter: &Reporter,
    streams: Arc<S>,
) -> Result<ControlConnections> {
    let (encrypt, idle_timeout) = (begin.options.encrypt, begin.options.idle_timeout());
    let transport = begin.options.transport;
    match &begin.rendezvous {
        Rendezvous::Wait => bail!("the coordinator sent no address of the peer"),
        Rendezvous::Connect(addresses) => {
            let initiator = identity.initiator(&begin.peer_certificate)?;
            let first = connect_any(addresses)?;
            let address = first.peer_addr()?;
            let udt = (transport == Transport::Udt)
                .then(|| bind_udt(port::any_address_for(address), &begin.options))
                .transpose()?;
            let peer = Peer {
                address,
                udt: udt.map(Arc::new),
                initiator,
                encrypt,
                idle_timeout,
            };
            open_all(&peer, first, &begin.options, &streams)
        }
        Rendezvous::Listen { at, ports } => {
            let responder = identity.responder(&begin.peer_certificate)?;
            let (listener, udt) = bind_listener(*at, *ports, |at| match transport {
                Transport::Tcp => Ok(None),
                Transport::Udt => bind_udt(at, &begin.options).map(Some),
            })?;
            let port = listener.local_addr()?.port();
            let (sender, receiver) = channel();
            let acceptor = Arc::new(Acceptor {
                responder,
                encrypt,
                streams,
                handshakes: AtomicUsize::new(0),
                connections: sender,
            });
            if let Some(socket) = udt {
                let acceptor = acceptor.clone();
                threads::spawn(move || acceptor.accept_udt(&socket))?;
            }
            threads::spawn(move || acceptor.accept_tcp(&listener, idle_timeout))?;
            reporter.send(&Report::Listening(port));
            receive_control_connections(&receiver)
        }
    }
}

/// Error: no port is free. It may be temporary: an endpoint of a broken session keeps its port until it notices.
#[derive(Debug, thiserror::Error)]
#[error("{at}: no port from {} to {} is free (--ports)", .ports.first, .ports.last)]
pub(super) struct NoFreePort {
    at: IpAddr,
    ports: Ports,
}

/// Binds a TCP port; `bind_udp` binds the same port of UDP.
fn bind_listener<T>(
    at: IpAddr,
    ports: Option<Ports>,
    bind_udp: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<(TcpListener, T)> {
    let any = Ports { first: 0, last: 0 };
    // If any port is allowed, the next one that TCP gets may be free for UDP too.
    let attempts = if ports.is_none() { BIND_ATTEMPTS } else { 1 };
    let ports = ports.unwrap_or(any);
    for port in (ports.first..=ports.last).flat_map(|port| repeat_n(port, attempts)) {
        let bound = TcpListener::bind((at, port)).and_then(|listener| {
            let udp = bind_udp(listener.local_addr()?)?;
            Ok((listener, udp))
        });
        match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let why = format!("{}: {error} (--ports)", SocketAddr::from((at, port)));
                return Err(Refusal::usage(why));
            }
            Ok(bound) => return Ok(bound),
        }
    }
    Err(NoFreePort { at, ports }.into())
}

fn bind_udt(at: SocketAddr, options: &Options) -> io::Result<Socket> {
    let config = longhaul_udt::Config {
        connect_timeout: options
            .idle_timeout()
            .clamp(UDT_HANDSHAKE_MIN, HANDSHAKE_TIMEOUT)
            .into(),
        idle_timeout: options.idle_timeout().into(),
        ..longhaul_udt::Config::default()
    };
    let control = options
        .congestion_control
        .as_deref()
        .and_then(UdtCongestionControl::from_name);
    port::bind(at, config, control.unwrap_or_default())
}

/// Address and credentials of the peer.
#[derive(Debug, Clone)]
struct Peer {
    address: SocketAddr,
    /// UDP socket of the streams if they use UDT; `None` for TCP.
    udt: Option<Arc<Socket>>,
    initiator: Initiator,
    encrypt: Switch,
    idle_timeout: Duration,
}

/// Opens all connections. The first one measures the RTT, from which the number of streams is guessed. The
/// others are opened at once, and each takes two round trips.
fn open_all<S: StreamHandler>(
    peer: &Peer,
    first: TcpStream,
    options: &Options,
    streams: &Arc<S>,
) -> Result<ControlConnections> {
    let rtt = TcpInfo::of(&first).map_or(Time::ZERO, |info| Time::from_micros(info.rtt_us.into()));
    let wanted = options
        .streams_fixed()
        .map_or_else(|| guess(rtt, window_max(), STREAMS_AUTO_MAX), usize::from);
    streams.opener().set_wanted(wanted);
    let (opening_peer, opening_streams) = (peer.clone(), streams.clone());
    threads::spawn(move || keep_streams_open(&opening_peer, &opening_streams))?;
    let control = thread::scope(|scope| -> Result<ControlConnections> {
        let target_messages = threads::spawn_scoped(scope, || peer.open(Purpose::TargetMessages))?;
        let source_messages = peer.handshake(first, Purpose::SourceMessages);
        let target_messages = target_messages
            .join()
            .map_err(|_| anyhow!("no connection for the target's messages"))?;
        Ok(ControlConnections {
            source_messages: source_messages?,
            target_messages: target_messages?,
        })
    })?;
    streams.opener().keep_control_handles(&control)?;
    Ok(control)
}

/// Returns the largest window of a connection, in bytes, by this host's limits; the peer's limits are likely
/// similar. About half of a buffer is data, the rest is bookkeeping (tcp(7), `tcp_adv_win_scale`).
fn window_max() -> u64 {
    let buffer_max = |name| -> Option<u64> {
        let text = longhaul_linux::sysctl::read_here(name).ok()?;
        text.split(' ').next_back()?.parse().ok()
    };
    let limits = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(buffer_max);
    limits.into_iter().flatten().min().unwrap_or(4 << 20) / 2
}

fn keep_streams_open<S: StreamHandler>(peer: &Peer, streams: &Arc<S>) {
    let mut number = 0;
    while streams.opener().wait_for_missing() {
        let (peer, opening) = (peer.clone(), streams.clone());
        let spawned = threads::spawn(move || {
            let streams = opening;
            match peer.open(Purpose::Data(number)) {
                Ok(stream) => streams
                    .opener()
                    .count_while_connected(|| streams.handle_stream(number, stream)),
                Err(error) => give_up_if_none_opens(&peer, &*streams, error),
            }
            if !streams.is_over() {
                thread::sleep(REOPEN_DELAY);
            }
            streams.opener().count_ended();
        });
        if spawned.is_err() {
            // No thread could be started: the open streams must do until there can be more.
            thread::sleep(REOPEN_DELAY);
            streams.opener().count_ended();
        }
        number += 1;
    }
}

/// Gives up if no stream has opened for the idle timeout. Then a middlebox probably lets the control
/// connections pass, and no others.
fn give_up_if_none_opens<S: StreamHandler>(peer: &Peer, streams: &S, error: anyhow::Error) {
    let opener = streams.opener();
    if opener.record_failure() >= peer.idle_timeout && !streams.is_over() {
        opener.give_up(error.context("no stream can be opened"));
    }
}

/// Connects to the first of a host's addresses that answers. Behind network address translation, each network
/// reaches a host at a different address.
fn connect_any(addresses: &[SocketAddr]) -> Result<TcpStream> {
    if let [address] = *addresses {
        return connect_tcp(address);
    }
    let (sender, receiver) = channel();
    for address in addresses.iter().take(ADDRESSES_MAX).copied() {
        let sender = sender.clone();
        // Once one is connected, the receiver is gone, and later connections are closed.
        threads::spawn(move || drop(sender.send(connect_tcp(address))))?;
    }
    drop(sender);
    let mut failed = Vec::new();
    for connected in receiver {
        match connected {
            Ok(socket) => return Ok(socket),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    bail!("{}", failed.join("; "))
}

fn connect_tcp(address: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| {
        let hint = match error.kind() {
            // In a new network namespace.
            io::ErrorKind::NetworkUnreachable if address.ip().is_loopback() => {
                "loopback is down: ip link set lo up"
            }
            _ => "if a firewall is in between: give the ports that it lets pass with --ports",
        };
        anyhow::Error::new(error).context(format!("cannot connect to {address} ({hint})"))
    })
}

impl Peer {
    fn open(&self, purpose: Purpose) -> Result<Connection> {
        match (&self.udt, purpose) {
            (Some(socket), Purpose::Data(_)) => {
                let address = self.address;
                let connection =
                    blocking::Connection::connect_udt(address, socket).with_context(|| {
                        format!(
                            "cannot connect to {address} over UDT (does a firewall let UDP pass?)"
                        )
                    })?;
                Connection::open(connection, &self.initiator, purpose, self.encrypt)
            }
            _ => self.handshake(connect_tcp(self.address)?, purpose),
        }
    }

    fn handshake(&self, socket: TcpStream, purpose: Purpose) -> Result<Connection> {
        enable_keepalive(&socket, self.idle_timeout)?;
        Connection::open(
            blocking::Connection::Tcp(socket),
            &self.initiator,
            purpose,
            self.encrypt,
        )
    }
}

/// Acceptor of the peer's connections.
struct Acceptor<S> {
    responder: Responder,
    encrypt: Switch,
    streams: Arc<S>,
    /// Handshakes in progress.
    handshakes: AtomicUsize,
    connections: Sender<ControlConnection>,
}

impl<S: StreamHandler> Acceptor<S> {
    fn accept_tcp(self: &Arc<Self>, listener: &TcpListener, idle_timeout: Duration) {
        for socket in listener.incoming() {
            match socket {
                Ok(socket) if enable_keepalive(&socket, idle_timeout).is_ok() => {
                    self.start_handshake(blocking::Connection::Tcp(socket));
                }
                // The connection is already broken.
                Ok(_) => {}
                // Perhaps no file descriptor is free while all streams are open.
                Err(_) => thread::sleep(REOPEN_DELAY),
            }
        }
    }

    /// Accepts streams over UDT.
    fn accept_udt(self: &Arc<Self>, socket: &Socket) {
        socket.listen();
        while let Ok(connection) = blocking::Connection::accept_udt(socket) {
            self.start_handshake(connection);
        }
    }

    /// Starts the handshake of a connection in its own thread. A stranger fails in the handshake and costs
    /// only a thread for [`HANDSHAKE_TIMEOUT`]. Beyond [`HANDSHAKES_MAX`] handshakes, connections are closed
    /// at once, and the peer retries.
    fn start_handshake(self: &Arc<Self>, connection: blocking::Connection) {
        if self.handshakes.fetch_add(1, Relaxed) >= HANDSHAKES_MAX {
            self.handshakes.fetch_sub(1, Relaxed);
            return;
        }
        let acceptor = self.clone();
        let spawned = threads::spawn(move || acceptor.handshake(connection));
        if spawned.is_err() {
            // The connection was closed; the peer retries.
            self.handshakes.fetch_sub(1, Relaxed);
        }
    }

    fn handshake(&self, connection: blocking::Connection) {
        let accepted = Connection::accept(connection, &self.responder, self.encrypt);
        self.handshakes.fetch_sub(1, Relaxed);
        match accepted {
            Ok((connection, Purpose::Data(number))) => {
                self.streams.handle_stream(number, connection);
            }
            // Without a receiver the session is over.
            Ok((connection, purpose)) => drop(self.connections.send((purpose, connection))),
            // A stranger, or a connection that is already broken.
            Err(_) => {}
        }
    }
}

type ControlConnection = (Purpose, Connection);

fn receive_control_connections(
    receiver: &Receiver<ControlConnection>,
) -> Result<ControlConnections> {
    let (mut source_messages, mut target_messages) = (None, None);
    while source_messages.is_none() || target_messages.is_none() {
        let Ok((purpose, connection)) = receiver.recv_timeout(2 * HANDSHAKE_TIMEOUT) else {
            bail!("the peer did not connect");
        };
        match purpose {
            Purpose::SourceMessages => source_messages = Some(connection),
            _ => target_messages = Some(connection),
        }
    }
    Ok(ControlConnections {
        source_messages: source_messages.context("no connection for the source's messages")?,
        target_messages: target_messages.context("no connection for the target's messages")?,
    })
}
