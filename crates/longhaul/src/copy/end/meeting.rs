// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ends meet: one listens, the other connects, and both have the same connections then. Streams that break are
//! opened anew, under a new number.

use super::{Reporter, watched::Watched};
use crate::copy::{
    args::{Ports, Switch},
    connection::{Connection, HANDSHAKE, Purpose, end_when_silent},
    identity::{Identity, Initiator, Responder},
    order::{Begin, Meeting, Options, Report},
    threads,
};
use crate::exit::Refusal;
use anyhow::{Context as _, Result, anyhow, bail};
use host::tcp_info::TcpInfo;
use model::copy::streams::{STREAMS_MAX as STREAMS_AUTO_MAX, guess};
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};
use units::Time;

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
pub(super) struct Opener(Watched<Openings>);

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
}

impl Opener {
    /// So many from now on. Those too many end by themselves: the source closes them.
    pub(super) fn want(&self, streams: usize) {
        self.0
            .change(|openings| openings.wanted = streams.min(STREAMS_MAX));
    }

    /// No more.
    pub(super) fn end(&self) {
        self.0.change(|openings| openings.over = true);
    }

    /// Waits until one is missing; `false` at the end.
    fn one_is_missing(&self) -> bool {
        self.0.wait_for(|openings| {
            if openings.over {
                return Some(false);
            }
            let missing = openings.open < openings.wanted;
            openings.open += usize::from(missing);
            missing.then_some(true)
        })
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

/// Whatever the other end says.
const STREAMS_MAX: usize = 256;

/// Handshakes at the same time, a thread each: all streams that there can be, and some strangers.
const HANDSHAKES_MAX: usize = 300;
/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;
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
    match &begin.meeting {
        Meeting::Later => bail!("no meeting was said"),
        Meeting::Connect(addresses) => {
            let trust = identity.initiator(&begin.peer_certificate)?;
            let first = reach_any(addresses)?;
            let way = Way {
                address: first.peer_addr()?,
                trust,
                encrypt,
                silence,
            };
            connect(&way, first, &begin.options, reporter, streams)
        }
        Meeting::Listen { at, ports } => {
            let trust = identity.responder(&begin.peer_certificate)?;
            let listener = listen(*at, *ports)?;
            let port = listener.local_addr()?.port();
            let (to, from) = channel();
            threads::begin(move || {
                accept_all(&listener, &trust, (encrypt, silence), &streams, &to);
            })?;
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

fn listen(at: IpAddr, ports: Option<Ports>) -> Result<TcpListener> {
    let any = Ports { first: 0, last: 0 };
    let ports = ports.unwrap_or(any);
    for port in ports.first..=ports.last {
        match TcpListener::bind((at, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let why = format!("{}: {error} (--ports)", SocketAddr::from((at, port)));
                return Err(Refusal::usage(why));
            }
            Ok(listener) => return Ok(listener),
        }
    }
    Err(Occupied { at, ports }.into())
}

/// How the other end is reached.
#[derive(Debug, Clone)]
struct Way {
    address: SocketAddr,
    trust: Initiator,
    encrypt: Switch,
    silence: Duration,
}

/// One connection tells how far it is; all others are opened at once, each of which takes two round trips.
fn connect<S: Streams>(
    way: &Way,
    first: TcpStream,
    options: &Options,
    reporter: &Reporter,
    streams: Arc<S>,
) -> Result<Lines> {
    let rtt = TcpInfo::of(&first).map_or(Time::ZERO, |info| Time::from_micros(info.rtt_us.into()));
    let wanted = options
        .streams_fixed()
        .map_or_else(|| guess(rtt, window(), STREAMS_AUTO_MAX), usize::from);
    streams.opener().want(wanted);
    let (opening, reporter) = (way.clone(), reporter.clone());
    threads::begin(move || keep_open(&opening, &reporter, &streams))?;
    thread::scope(|scope| {
        let answers = threads::begin_within(scope, || way.open(Purpose::Answers))?;
        let orders = way.shake_hands(first, Purpose::Orders);
        let answers = answers.join().map_err(|_| anyhow!("no answers"))?;
        Ok(Lines {
            orders: orders?,
            answers: answers?,
        })
    })
}

/// The largest window of a connection, in bytes, by this host's limits, which the other's are likely to be like: about half
/// of a buffer is data, the rest is bookkeeping (tcp(7), `tcp_adv_win_scale`).
fn window() -> u64 {
    let largest = |name| -> Option<u64> {
        let text = host::sysctl::read_here(name).ok()?;
        text.split(' ').next_back()?.parse().ok()
    };
    let limits = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(largest);
    limits.into_iter().flatten().min().unwrap_or(4 << 20) / 2
}

fn keep_open<S: Streams>(way: &Way, reporter: &Reporter, streams: &Arc<S>) {
    let mut number = 0;
    while streams.opener().one_is_missing() {
        let (way, reporter, opening) = (way.clone(), reporter.clone(), streams.clone());
        let begun = threads::begin(move || {
            let streams = opening;
            match way.open(Purpose::Data(number)) {
                Ok(stream) => streams.opener().carry(|| streams.carry(number, stream)),
                Err(error) => give_up_if_none_opens(&way, &reporter, &*streams, &error),
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
fn give_up_if_none_opens<S: Streams>(
    way: &Way,
    reporter: &Reporter,
    streams: &S,
    error: &anyhow::Error,
) {
    if streams.opener().one_has_failed() < way.silence || streams.is_over() {
        return;
    }
    reporter.say(&Report::Broken(format!(
        "no stream can be opened: {error:#}"
    )));
    std::process::exit(0)
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
    let socket = TcpStream::connect_timeout(&address, HANDSHAKE);
    socket.with_context(|| {
        format!("cannot connect to {address} (if a firewall is in the way: --ports names what it lets pass)")
    })
}

impl Way {
    fn open(&self, purpose: Purpose) -> Result<Connection> {
        self.shake_hands(reach(self.address)?, purpose)
    }

    fn shake_hands(&self, socket: TcpStream, purpose: Purpose) -> Result<Connection> {
        end_when_silent(&socket, self.silence)?;
        Connection::open(socket, &self.trust, purpose, self.encrypt)
    }
}

type Met = (Purpose, Connection);

/// Whoever is not the other end fails in the handshake and takes nothing but a thread for [`HANDSHAKE`]; beyond
/// [`HANDSHAKES_MAX`] of them connections are closed at once, and a stream tries again.
fn accept_all<S: Streams>(
    listener: &TcpListener,
    trust: &Responder,
    how: (Switch, Duration),
    streams: &Arc<S>,
    to: &Sender<Met>,
) {
    let shaking = Arc::new(AtomicUsize::new(0));
    for socket in listener.incoming() {
        let Ok(socket) = socket else {
            // No descriptor is left, maybe, for as long as all streams stay.
            thread::sleep(PAUSE);
            continue;
        };
        if shaking.fetch_add(1, Relaxed) >= HANDSHAKES_MAX {
            shaking.fetch_sub(1, Relaxed);
            continue;
        }
        let (trust, streams, to) = (trust.clone(), streams.clone(), to.clone());
        let done = shaking.clone();
        let begun = threads::begin(move || {
            let accepted = accept(socket, &trust, how);
            done.fetch_sub(1, Relaxed);
            // A stranger, or a connection that broke already.
            let Ok((connection, purpose)) = accepted else {
                return;
            };
            match purpose {
                Purpose::Data(number) => streams.carry(number, connection),
                // Without a receiver the conversation is over.
                _ => drop(to.send((purpose, connection))),
            }
        });
        if begun.is_err() {
            // It was closed, and tries again.
            shaking.fetch_sub(1, Relaxed);
        }
    }
}

fn accept(
    socket: TcpStream,
    trust: &Responder,
    (encrypt, silence): (Switch, Duration),
) -> Result<(Connection, Purpose)> {
    end_when_silent(&socket, silence)?;
    Connection::accept(socket, trust, encrypt)
}

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
