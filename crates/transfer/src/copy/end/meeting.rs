// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of the two endpoints: one listens, the other connects. Streams that break are opened again,
//! under a new number.

use super::reports::Reporter;
use crate::{
    protocol::{
        options::{Options, Ports, Switch, Transport},
        order::{Begin, Meeting},
        report::Report,
    },
    transport::connection::{Connection, HANDSHAKE, Purpose},
};
use anyhow::{Context as _, Result, anyhow, bail};
use longhaul_command::{
    exit::Refusal,
    threads::{self, Ends, Monitor},
};
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_scheduling::streams::{STREAMS_MAX as STREAMS_AUTO_MAX, guess};
use longhaul_transport::{
    blocking::{self, Handle, end_when_silent},
    identity::{Identity, Initiator, Responder},
    port::{self, Control},
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

/// Connections for messages, which every session has.
pub(super) struct Lines {
    pub(super) orders: Connection,
    pub(super) answers: Connection,
}

/// Handler of streams at an endpoint.
pub(super) trait Streams: Send + Sync + 'static {
    /// Uses a stream; returns when it has ended, for whatever reason.
    fn carry(&self, number: u64, stream: Connection);

    /// Returns whether there is nothing more to carry.
    fn is_over(&self) -> bool;

    /// Returns the opener of streams, used if this endpoint connects.
    fn opener(&self) -> &Opener;
}

/// Opener of streams: keeps as many open as wanted, at the endpoint that connects.
#[derive(Debug, Default)]
pub(super) struct Opener(Monitor<Openings>);

#[derive(Debug, Default)]
struct Openings {
    wanted: usize,
    /// Streams that are open or being opened.
    open: usize,
    /// Streams that are open.
    carried: usize,
    /// Time of the first failure since a stream was last open.
    none_since: Option<Instant>,
    over: bool,
    /// Handles of the control connections. A connection stays open as long as its handle is here.
    lines: Vec<Handle>,
    /// Reason why no stream could be opened.
    given_up: Option<anyhow::Error>,
}

impl Opener {
    /// Sets the number of wanted streams. Excess streams end by themselves: the source closes them.
    pub(super) fn want(&self, streams: usize) {
        self.0
            .update(|openings| openings.wanted = streams.min(STREAMS_MAX));
    }

    /// Opens no more streams.
    pub(super) fn end(&self) {
        self.0.update(|openings| {
            openings.over = true;
            openings.lines.clear();
        });
    }

    /// Ends the opening of streams. Returns the session's outcome, or the reason why no stream could be
    /// opened.
    pub(super) fn conclude<T>(&self, outcome: Result<T>) -> Result<T> {
        match self.0.update_silent(|openings| openings.given_up.take()) {
            // The control connections stay open: the peer would report their end first, and the reason would
            // be lost.
            Some(why) => Err(why),
            None => {
                self.end();
                outcome
            }
        }
    }

    /// Keeps handles of the control connections, to shut them down if opening is given up.
    fn accompany(&self, lines: &Lines) -> Result<()> {
        let handles = [lines.orders.handle()?, lines.answers.handle()?];
        self.0.update_silent(|openings| {
            openings.lines.extend(handles);
            openings.deafen_if_given_up();
        });
        Ok(())
    }

    /// Gives up, because no stream can be opened. Readers of the control connections then see their end.
    fn give_up(&self, why: anyhow::Error) {
        self.0.update(|openings| {
            openings.over = true;
            openings.given_up.get_or_insert(why);
            openings.deafen_if_given_up();
        });
    }

    /// Waits until a stream is missing, and counts it as open; `false` at the end.
    fn one_is_missing(&self) -> bool {
        let missing = self.0.next(|openings| {
            let missing = openings.open < openings.wanted;
            openings.open += usize::from(missing);
            missing.then_some(())
        });
        missing.is_some()
    }

    fn one_has_ended(&self) {
        self.0.update(|openings| openings.open -= 1);
    }

    fn carry(&self, carry: impl FnOnce()) {
        self.0.update_silent(|openings| {
            openings.carried += 1;
            openings.none_since = None;
        });
        carry();
        self.0.update_silent(|openings| openings.carried -= 1);
    }

    /// Records a failed attempt. Returns how long attempts have failed since a stream was last open; zero
    /// while one is open.
    fn one_has_failed(&self) -> Duration {
        self.0.update_silent(|openings| match openings.carried {
            0 => openings
                .none_since
                .get_or_insert_with(Instant::now)
                .elapsed(),
            _ => Duration::ZERO,
        })
    }
}

impl Ends for Openings {
    fn is_over(&self) -> bool {
        self.over
    }
}

impl Openings {
    fn deafen_if_given_up(&self) {
        if self.given_up.is_some() {
            self.lines.iter().for_each(Handle::deafen);
        }
    }
}

/// Maximum streams, whatever number the peer asks for.
const STREAMS_MAX: usize = 256;

/// Maximum concurrent handshakes, a thread each: all possible streams, and some strangers.
const HANDSHAKES_MAX: usize = 300;
/// Maximum addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;
/// Minimum time for a UDT handshake, if `--silence` is shorter.
const PATIENCE_MIN: Duration = Duration::from_secs(3);
/// Ports that are tried if any port is allowed.
const TRIES: usize = 16;
/// Delay before a stream is opened again.
const PAUSE: Duration = Duration::from_millis(500);

/// Connects the two endpoints. Passes streams to `streams` as they arrive, in threads of their own.
pub(super) fn meet<S: Streams>(
    begin: &Begin,
    identity: &Identity,
    reporter: &Reporter,
    streams: Arc<S>,
) -> Result<Lines> {
    let (encrypt, silence) = (begin.options.encrypt, begin.options.silence());
    let transport = begin.options.transport;
    match &begin.meeting {
        Meeting::Later => bail!("no meeting was said"),
        Meeting::Connect(addresses) => {
            let trust = identity.initiator(&begin.peer_certificate)?;
            let first = reach_any(addresses)?;
            let address = first.peer_addr()?;
            let udt = (transport == Transport::Udt)
                .then(|| take_udt(port::any_towards(address), &begin.options))
                .transpose()?;
            let way = Way {
                address,
                udt: udt.map(Arc::new),
                trust,
                encrypt,
                silence,
            };
            connect(&way, first, &begin.options, &streams)
        }
        Meeting::Listen { at, ports } => {
            let trust = identity.responder(&begin.peer_certificate)?;
            let (listener, udt) = listen(*at, *ports, |at| match transport {
                Transport::Tcp => Ok(None),
                Transport::Udt => take_udt(at, &begin.options).map(Some),
            })?;
            let port = listener.local_addr()?.port();
            let (to, from) = channel();
            let acceptor = Arc::new(Acceptor {
                trust,
                encrypt,
                streams,
                shaking: AtomicUsize::new(0),
                to,
            });
            if let Some(socket) = udt {
                let acceptor = acceptor.clone();
                threads::spawn(move || acceptor.accept_streams(&socket))?;
            }
            threads::spawn(move || acceptor.accept_all(&listener, silence))?;
            reporter.say(&Report::Listening(port));
            lines(&from)
        }
    }
}

/// Error: no port is free. It may pass, because the peer of a broken session keeps its port until it notices.
#[derive(Debug, thiserror::Error)]
#[error("{at}: no port from {} to {} is free (--ports)", .ports.first, .ports.last)]
pub(super) struct Occupied {
    at: IpAddr,
    ports: Ports,
}

/// Binds a TCP port; `beside` binds the same port of UDP.
fn listen<T>(
    at: IpAddr,
    ports: Option<Ports>,
    beside: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<(TcpListener, T)> {
    let any = Ports { first: 0, last: 0 };
    // If any port is allowed, the next one that TCP gets may be free for UDP too.
    let tries = if ports.is_none() { TRIES } else { 1 };
    let ports = ports.unwrap_or(any);
    for port in (ports.first..=ports.last).flat_map(|port| repeat_n(port, tries)) {
        let taken = TcpListener::bind((at, port)).and_then(|listener| {
            let beside = beside(listener.local_addr()?)?;
            Ok((listener, beside))
        });
        match taken {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let why = format!("{}: {error} (--ports)", SocketAddr::from((at, port)));
                return Err(Refusal::usage(why));
            }
            Ok(taken) => return Ok(taken),
        }
    }
    Err(Occupied { at, ports }.into())
}

fn take_udt(at: SocketAddr, options: &Options) -> io::Result<Socket> {
    let config = longhaul_udt::Config {
        patience: options.silence().clamp(PATIENCE_MIN, HANDSHAKE).into(),
        silence: options.silence().into(),
        ..longhaul_udt::Config::default()
    };
    let chosen = options
        .congestion_control
        .as_deref()
        .and_then(Control::named);
    port::bind(at, config, chosen.unwrap_or_default())
}

/// Address and credentials of the peer.
#[derive(Debug, Clone)]
struct Way {
    address: SocketAddr,
    /// UDP socket of the streams if they use UDT; `None` for TCP.
    udt: Option<Arc<Socket>>,
    trust: Initiator,
    encrypt: Switch,
    silence: Duration,
}

/// Opens all connections. The first one measures the RTT, from which the number of streams is guessed. The
/// others are opened at once, and each takes two round trips.
fn connect<S: Streams>(
    way: &Way,
    first: TcpStream,
    options: &Options,
    streams: &Arc<S>,
) -> Result<Lines> {
    let rtt = TcpInfo::of(&first).map_or(Time::ZERO, |info| Time::from_micros(info.rtt_us.into()));
    let wanted = options
        .streams_fixed()
        .map_or_else(|| guess(rtt, window(), STREAMS_AUTO_MAX), usize::from);
    streams.opener().want(wanted);
    let (opening, opened) = (way.clone(), streams.clone());
    threads::spawn(move || keep_open(&opening, &opened))?;
    let lines = thread::scope(|scope| -> Result<Lines> {
        let answers = threads::spawn_scoped(scope, || way.open(Purpose::Answers))?;
        let orders = way.shake_hands(first, Purpose::Orders);
        let answers = answers.join().map_err(|_| anyhow!("no answers"))?;
        Ok(Lines {
            orders: orders?,
            answers: answers?,
        })
    })?;
    streams.opener().accompany(&lines)?;
    Ok(lines)
}

/// Returns the largest window of a connection, in bytes, by this host's limits; the peer's limits are likely
/// similar. About half of a buffer is data, the rest is bookkeeping (tcp(7), `tcp_adv_win_scale`).
fn window() -> u64 {
    let largest = |name| -> Option<u64> {
        let text = longhaul_linux::sysctl::read_here(name).ok()?;
        text.split(' ').next_back()?.parse().ok()
    };
    let limits = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(largest);
    limits.into_iter().flatten().min().unwrap_or(4 << 20) / 2
}

fn keep_open<S: Streams>(way: &Way, streams: &Arc<S>) {
    let mut number = 0;
    while streams.opener().one_is_missing() {
        let (way, opening) = (way.clone(), streams.clone());
        let begun = threads::spawn(move || {
            let streams = opening;
            match way.open(Purpose::Data(number)) {
                Ok(stream) => streams.opener().carry(|| streams.carry(number, stream)),
                Err(error) => give_up_if_none_opens(&way, &*streams, error),
            }
            if !streams.is_over() {
                thread::sleep(PAUSE);
            }
            streams.opener().one_has_ended();
        });
        if begun.is_err() {
            // No thread could be started: the open streams must do until there can be more.
            thread::sleep(PAUSE);
            streams.opener().one_has_ended();
        }
        number += 1;
    }
}

/// Gives up if no stream has opened for the silence timeout. Then a middlebox passes the control connections
/// and no further ones.
fn give_up_if_none_opens<S: Streams>(way: &Way, streams: &S, error: anyhow::Error) {
    let opener = streams.opener();
    if opener.one_has_failed() >= way.silence && !streams.is_over() {
        opener.give_up(error.context("no stream can be opened"));
    }
}

/// Connects to the first of a host's addresses that answers. A host may have different addresses from
/// different networks (network address translation).
fn reach_any(addresses: &[SocketAddr]) -> Result<TcpStream> {
    if let [address] = *addresses {
        return reach(address);
    }
    let (to, from) = channel();
    for address in addresses.iter().take(ADDRESSES_MAX).copied() {
        let to = to.clone();
        // Later connections are not needed.
        threads::spawn(move || drop(to.send(reach(address))))?;
    }
    drop(to);
    let mut failed = Vec::new();
    for reached in from {
        match reached {
            Ok(socket) => return Ok(socket),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    bail!("{}", failed.join("; "))
}

fn reach(address: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(&address, HANDSHAKE).map_err(|error| {
        let way_out = match error.kind() {
            // In a new network namespace.
            io::ErrorKind::NetworkUnreachable if address.ip().is_loopback() => {
                "loopback is down: ip link set lo up"
            }
            _ => "if a firewall is in the way: --ports names what it lets pass",
        };
        anyhow::Error::new(error).context(format!("cannot connect to {address} ({way_out})"))
    })
}

impl Way {
    fn open(&self, purpose: Purpose) -> Result<Connection> {
        match (&self.udt, purpose) {
            (Some(socket), Purpose::Data(_)) => {
                let address = self.address;
                let carrier = blocking::Connection::udt_to(address, socket).with_context(|| {
                    format!("cannot connect to {address} over UDT (does a firewall let UDP pass?)")
                })?;
                Connection::open(carrier, &self.trust, purpose, self.encrypt)
            }
            _ => self.shake_hands(reach(self.address)?, purpose),
        }
    }

    fn shake_hands(&self, socket: TcpStream, purpose: Purpose) -> Result<Connection> {
        end_when_silent(&socket, self.silence)?;
        Connection::open(
            blocking::Connection::Tcp(socket),
            &self.trust,
            purpose,
            self.encrypt,
        )
    }
}

/// Acceptor of the peer's connections.
struct Acceptor<S> {
    trust: Responder,
    encrypt: Switch,
    streams: Arc<S>,
    /// Handshakes in progress.
    shaking: AtomicUsize,
    to: Sender<Met>,
}

impl<S: Streams> Acceptor<S> {
    fn accept_all(self: &Arc<Self>, listener: &TcpListener, silence: Duration) {
        for socket in listener.incoming() {
            match socket {
                Ok(socket) if end_when_silent(&socket, silence).is_ok() => {
                    self.let_in(blocking::Connection::Tcp(socket));
                }
                // The connection is already broken.
                Ok(_) => {}
                // No descriptor may be free as long as all streams stay open.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Accepts streams over UDT.
    fn accept_streams(self: &Arc<Self>, socket: &Socket) {
        socket.listen();
        while let Ok(carrier) = blocking::Connection::udt_from(socket) {
            self.let_in(carrier);
        }
    }

    /// Starts the handshake of a connection in its own thread. A stranger fails in the handshake and costs
    /// only a thread for [`HANDSHAKE`]. Beyond [`HANDSHAKES_MAX`] handshakes, connections are closed at once,
    /// and the peer retries.
    fn let_in(self: &Arc<Self>, carrier: blocking::Connection) {
        if self.shaking.fetch_add(1, Relaxed) >= HANDSHAKES_MAX {
            self.shaking.fetch_sub(1, Relaxed);
            return;
        }
        let acceptor = self.clone();
        let begun = threads::spawn(move || acceptor.shake_hands(carrier));
        if begun.is_err() {
            // The connection was closed; the peer retries.
            self.shaking.fetch_sub(1, Relaxed);
        }
    }

    fn shake_hands(&self, carrier: blocking::Connection) {
        let accepted = Connection::accept(carrier, &self.trust, self.encrypt);
        self.shaking.fetch_sub(1, Relaxed);
        match accepted {
            Ok((connection, Purpose::Data(number))) => self.streams.carry(number, connection),
            // Without a receiver the session is over.
            Ok((connection, purpose)) => drop(self.to.send((purpose, connection))),
            // A stranger, or a connection that is already broken.
            Err(_) => {}
        }
    }
}

type Met = (Purpose, Connection);

fn lines(from: &Receiver<Met>) -> Result<Lines> {
    let (mut orders, mut answers) = (None, None);
    while orders.is_none() || answers.is_none() {
        let Ok((purpose, connection)) = from.recv_timeout(2 * HANDSHAKE) else {
            bail!("the other end did not come");
        };
        match purpose {
            Purpose::Orders => orders = Some(connection),
            _ => answers = Some(connection),
        }
    }
    Ok(Lines {
        orders: orders.context("no orders")?,
        answers: answers.context("no answers")?,
    })
}
