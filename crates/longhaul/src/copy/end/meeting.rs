// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ends meet: one listens, the other connects, and both have the same connections then. Streams that break are
//! opened anew, under a new number.

use super::Reporter;
use crate::copy::{
    connection::{Connection, Purpose},
    identity::{Identity, Initiator, Responder},
    order::{Begin, Meeting, Report},
};
use crate::exit::Refusal;
use anyhow::{Context as _, Result, bail};
use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
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
}

/// How long a handshake may take: some round trips, on any path.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Handshakes at the same time, a thread each: all streams that there can be, and some strangers.
const HANDSHAKES_MAX: usize = 300;
/// How long what was sent may stay without an answer. Shorter interruptions of a path are TCP's matter.
const SILENCE: Duration = Duration::from_secs(60);
/// Before a stream is opened anew.
const PAUSE: Duration = Duration::from_millis(500);

/// Meets the other end. Streams are given to `streams` as they come, in threads of their own.
pub(super) fn meet<S: Streams>(
    begin: &Begin,
    identity: &Identity,
    reporter: &Reporter,
    streams: Arc<S>,
) -> Result<Lines> {
    match begin.meeting {
        Meeting::Later => bail!("no meeting was said"),
        Meeting::Connect(address) => {
            let trust = identity.initiator(&begin.peer_certificate)?;
            connect(address, &trust, begin.options.streams, &streams)
        }
        Meeting::Listen { at, ports } => {
            let trust = identity.responder(&begin.peer_certificate)?;
            let (first, last) = ports.map_or((0, 0), |ports| (ports.first, ports.last));
            let listener = (first..=last).find_map(|port| TcpListener::bind((at, port)).ok());
            let listener = listener.ok_or_else(|| {
                Refusal::usage(format!("{at}: no port from {first} to {last} is free"))
            })?;
            let port = listener.local_addr()?.port();
            let (to, from) = channel();
            std::thread::spawn(move || accept_all(&listener, &trust, &streams, &to));
            reporter.say(&Report::Listening(port));
            lines(&from)
        }
    }
}

fn connect<S: Streams>(
    address: SocketAddr,
    trust: &Initiator,
    count: u16,
    streams: &Arc<S>,
) -> Result<Lines> {
    let orders = open(address, trust, Purpose::Orders)?;
    let answers = open(address, trust, Purpose::Answers)?;
    let next = Arc::new(AtomicU64::new(0));
    for _ in 0..count {
        let (trust, streams, next) = (trust.clone(), streams.clone(), next.clone());
        std::thread::spawn(move || {
            while !streams.is_over() {
                let number = next.fetch_add(1, Relaxed);
                if let Ok(stream) = open(address, &trust, Purpose::Data(number)) {
                    streams.carry(number, stream);
                }
                if !streams.is_over() {
                    std::thread::sleep(PAUSE);
                }
            }
        });
    }
    Ok(Lines { orders, answers })
}

fn open(address: SocketAddr, trust: &Initiator, purpose: Purpose) -> Result<Connection> {
    let socket = TcpStream::connect_timeout(&address, HANDSHAKE);
    let socket = socket.with_context(|| {
        format!("cannot connect to {address} (if a firewall is in the way: --ports names what it lets pass)")
    })?;
    guard(&socket)?;
    let end = socket.try_clone()?;
    let connection = Connection::open(socket, trust, purpose)?;
    end.set_read_timeout(None)?;
    Ok(connection)
}

/// A silent far end is an error, first of the handshake, then of what was sent.
fn guard(socket: &TcpStream) -> Result<()> {
    socket.set_read_timeout(Some(HANDSHAKE))?;
    rustix::net::sockopt::set_tcp_user_timeout(socket, SILENCE.as_millis() as u32)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    rustix::net::sockopt::set_tcp_keepidle(socket, SILENCE / 4)?;
    rustix::net::sockopt::set_tcp_keepintvl(socket, SILENCE / 4)?;
    rustix::net::sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(())
}

type Met = (Purpose, Connection);

/// Whoever is not the other end fails in the handshake and takes nothing but a thread for [`HANDSHAKE`]; beyond
/// [`HANDSHAKES_MAX`] of them connections are closed at once, and a stream tries again.
fn accept_all<S: Streams>(
    listener: &TcpListener,
    trust: &Responder,
    streams: &Arc<S>,
    to: &Sender<Met>,
) {
    let shaking = Arc::new(AtomicUsize::new(0));
    for socket in listener.incoming().flatten() {
        if shaking.fetch_add(1, Relaxed) >= HANDSHAKES_MAX {
            shaking.fetch_sub(1, Relaxed);
            continue;
        }
        let (trust, streams, to) = (trust.clone(), streams.clone(), to.clone());
        let shaking = shaking.clone();
        std::thread::spawn(move || {
            let accepted = accept(socket, &trust);
            shaking.fetch_sub(1, Relaxed);
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
    }
}

fn accept(socket: TcpStream, trust: &Responder) -> Result<(Connection, Purpose)> {
    guard(&socket)?;
    let end = socket.try_clone()?;
    let accepted = Connection::accept(socket, trust)?;
    end.set_read_timeout(None)?;
    Ok(accepted)
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
