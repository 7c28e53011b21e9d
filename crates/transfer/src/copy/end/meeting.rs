// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ends meet: one listens, the other connects, and both have the same connections then. Streams that break are
//! opened anew, under a new number.

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

/// The connections that every conversation has.
pub(super) struct Lines {
    pub(super) orders: Connection,
    pub(super) answers: Connection,
}

/// What an end does with a stream until it ends.
pub(super) trait Streams: Send + Sync + 'static {
    /// Returns when the stream has ended, for whatever reason.
    fn carry(&self, number: u64, stream: Connection);

    /// Whether there is nothing more to carry.
    fn is_over(&self) -> bool;

    /// Who opens them, if this end does.
    fn opener(&self) -> &Opener;
}

/// Opens streams, as many as are wanted, where this end is the one that connects.
#[derive(Debug, Default)]
pub(super) struct Opener(Monitor<Openings>);

#[derive(Debug, Default)]
struct Openings {
    wanted: usize,
    /// Those that are there, or on their way.
    open: usize,
    /// Those that are there.
    carried: usize,
    /// When the first failed after the last that was there.
    none_since: Option<Instant>,
    over: bool,
    /// The conversation's own connections, which stay open as long as they are here.
    lines: Vec<Handle>,
    /// Why no stream came through.
    given_up: Option<anyhow::Error>,
}

impl Opener {
    /// So many from now on. Those too many end by themselves: the source closes them.
    pub(super) fn want(&self, streams: usize) {
        self.0
            .change(|openings| openings.wanted = streams.min(STREAMS_MAX));
    }

    /// No more.
    pub(super) fn end(&self) {
        self.0.change(|openings| {
            openings.over = true;
            openings.lines.clear();
        });
    }

    /// How a conversation ended, and with it all opening: if no stream came through, that is why.
    pub(super) fn conclude<T>(&self, outcome: Result<T>) -> Result<T> {
        match self.0.note(|openings| openings.given_up.take()) {
            // Its connections stay: the other end would say first that they ended, and nobody would hear why.
            Some(why) => Err(why),
            None => {
                self.end();
                outcome
            }
        }
    }

    /// What a conversation has besides streams.
    fn accompany(&self, lines: &Lines) -> Result<()> {
        let handles = [lines.orders.handle()?, lines.answers.handle()?];
        self.0.note(|openings| {
            openings.lines.extend(handles);
            openings.deafen_if_given_up();
        });
        Ok(())
    }

    /// Whoever waits for orders or answers does so in vain.
    fn give_up(&self, why: anyhow::Error) {
        self.0.change(|openings| {
            openings.over = true;
            openings.given_up.get_or_insert(why);
            openings.deafen_if_given_up();
        });
    }

    /// Waits until one is missing; `false` at the end.
    fn one_is_missing(&self) -> bool {
        let missing = self.0.next(|openings| {
            let missing = openings.open < openings.wanted;
            openings.open += usize::from(missing);
            missing.then_some(())
        });
        missing.is_some()
    }

    fn one_has_ended(&self) {
        self.0.change(|openings| openings.open -= 1);
    }

    fn carry(&self, carry: impl FnOnce()) {
        self.0.note(|openings| {
            openings.carried += 1;
            openings.none_since = None;
        });
        carry();
        self.0.note(|openings| openings.carried -= 1);
    }

    /// One could not be opened: how long that has gone so for all of them.
    fn one_has_failed(&self) -> Duration {
        self.0.note(|openings| match openings.carried {
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

/// Whatever the other end says.
const STREAMS_MAX: usize = 256;

/// Handshakes at the same time, a thread each: all streams that there can be, and some strangers.
const HANDSHAKES_MAX: usize = 300;
/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;
/// How long a stream over UDT is asked for, whatever the silence.
const PATIENCE_MIN: Duration = Duration::from_secs(3);
/// Ports that are tried where any will do.
const TRIES: usize = 16;
/// Before a stream is opened anew.
const PAUSE: Duration = Duration::from_millis(500);

/// Meets the other end. Streams are given to `streams` as they come, in threads of their own.
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
                threads::begin(move || acceptor.accept_streams(&socket))?;
            }
            threads::begin(move || acceptor.accept_all(&listener, silence))?;
            reporter.say(&Report::Listening(port));
            lines(&from)
        }
    }
}

/// None is free, for now: the far end of a conversation that broke keeps its port until it notices.
#[derive(Debug, thiserror::Error)]
#[error("{at}: no port from {} to {} is free (--ports)", .ports.first, .ports.last)]
pub(super) struct Occupied {
    at: IpAddr,
    ports: Ports,
}

/// Takes a port, and of UDP the same.
fn listen<T>(
    at: IpAddr,
    ports: Option<Ports>,
    beside: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<(TcpListener, T)> {
    let any = Ports { first: 0, last: 0 };
    // Where any will do, one that UDP has not may be the next.
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

/// How the other end is reached.
#[derive(Debug, Clone)]
struct Way {
    address: SocketAddr,
    /// By which streams leave, if not by TCP.
    udt: Option<Arc<Socket>>,
    trust: Initiator,
    encrypt: Switch,
    silence: Duration,
}

/// One connection tells how far it is; all others are opened at once, each of which takes two round trips.
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
    threads::begin(move || keep_open(&opening, &opened))?;
    let lines = thread::scope(|scope| -> Result<Lines> {
        let answers = threads::begin_within(scope, || way.open(Purpose::Answers))?;
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

/// The largest window of a connection, in bytes, by this host's limits, which the other's are likely to be like: about half
/// of a buffer is data, the rest is bookkeeping (tcp(7), `tcp_adv_win_scale`).
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
        let begun = threads::begin(move || {
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
            // Those that are there have to do, until there can be more.
            thread::sleep(PAUSE);
            streams.opener().one_has_ended();
        }
        number += 1;
    }
}

/// Orders and answers pass, and no stream does: what is between the ends lets no more connections through than those.
fn give_up_if_none_opens<S: Streams>(way: &Way, streams: &S, error: anyhow::Error) {
    let opener = streams.opener();
    if opener.one_has_failed() >= way.silence && !streams.is_over() {
        opener.give_up(error.context("no stream can be opened"));
    }
}

/// The first of a host's addresses that answers: it is not seen from everywhere under the same (network address
/// translation).
fn reach_any(addresses: &[SocketAddr]) -> Result<TcpStream> {
    if let [address] = *addresses {
        return reach(address);
    }
    let (to, from) = channel();
    for address in addresses.iter().take(ADDRESSES_MAX).copied() {
        let to = to.clone();
        // Who comes later is not needed.
        threads::begin(move || drop(to.send(reach(address))))?;
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
            // In a network namespace that has just been made.
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

/// Where the other end comes in.
struct Acceptor<S> {
    trust: Responder,
    encrypt: Switch,
    streams: Arc<S>,
    /// How many handshakes go on.
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
                // It broke already.
                Ok(_) => {}
                // No descriptor is left, maybe, for as long as all streams stay.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Those over UDT.
    fn accept_streams(self: &Arc<Self>, socket: &Socket) {
        socket.listen();
        while let Ok(carrier) = blocking::Connection::udt_from(socket) {
            self.let_in(carrier);
        }
    }

    /// Whoever is not the other end fails in the handshake and takes nothing but a thread for [`HANDSHAKE`]; beyond
    /// [`HANDSHAKES_MAX`] of them connections are closed at once, and a stream tries again.
    fn let_in(self: &Arc<Self>, carrier: blocking::Connection) {
        if self.shaking.fetch_add(1, Relaxed) >= HANDSHAKES_MAX {
            self.shaking.fetch_sub(1, Relaxed);
            return;
        }
        let acceptor = self.clone();
        let begun = threads::begin(move || acceptor.shake_hands(carrier));
        if begun.is_err() {
            // It was closed, and tries again.
            self.shaking.fetch_sub(1, Relaxed);
        }
    }

    fn shake_hands(&self, carrier: blocking::Connection) {
        let accepted = Connection::accept(carrier, &self.trust, self.encrypt);
        self.shaking.fetch_sub(1, Relaxed);
        match accepted {
            Ok((connection, Purpose::Data(number))) => self.streams.carry(number, connection),
            // Without a receiver the conversation is over.
            Ok((connection, purpose)) => drop(self.to.send((purpose, connection))),
            // A stranger, or a connection that broke already.
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
