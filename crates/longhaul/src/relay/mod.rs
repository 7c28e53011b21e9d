// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul relay`: TCP connections in legs.
//!
//! A listener turns a client into a [`route::Request`]; the route opens the outgoing leg; the
//! transfer moves bytes between the two legs and passes every kind of end on; the session sees to
//! records. Workers are threads that share nothing but counters.

mod announcement;
mod args;
mod authority;
mod budget;
mod certificates;
mod config;
mod connect;
mod counters;
mod door;
mod doors;
mod drain;
mod failure;
mod ftp;
mod health;
pub(crate) mod intercept;
mod journal;
mod leg;
mod listener;
mod memory;
mod peer;
mod policy;
mod ports;
mod prefix;
mod profile;
pub(crate) mod proxy_headers;
mod rate;
mod ready;
pub(crate) mod record;
mod registry;
mod reload;
mod route;
mod session;
mod stream;
mod stripe;
mod tls;
mod transfer;
mod users;
mod worker;

pub(crate) use args::Args;

use crate::exit::{self, Refusal};
use anyhow::Context as _;
use budget::{Budget, Room};
use clap::{Args as _, FromArgMatches as _};
use config::{Config, Kind, Listener};
use door::Door;
use doors::Doors;
use drain::{Drain, Phase};
use host::socket;
use intercept::{Gate, Keeper, Pulse, Verifier};
use jiff::Timestamp;
use journal::Journal;
use memory::Memory;
use record::{Record, RelayRecord};
use registry::Registry;
use std::{
    io,
    net::TcpListener,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};
use stripe::Groups;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::{
        Semaphore,
        mpsc::{Sender, channel},
    },
    time::{Instant, sleep_until, timeout},
};
use worker::{Opening, Worker};

/// The names of all options, as typed behind `--`.
pub(crate) fn options() -> Vec<String> {
    let command = Args::augment_args(clap::Command::new("relay"));
    let names = command.get_arguments().filter_map(clap::Arg::get_long);
    names.map(str::to_owned).collect()
}

/// Whether these flags make a relay, without making it: for those who write such flags for others,
/// as `lab` does.
pub(crate) fn check(flags: &[String]) -> anyhow::Result<()> {
    let command = Args::augment_args(clap::Command::new("relay").no_binary_name(true));
    let args = command
        .try_get_matches_from(flags)
        .and_then(|found| Args::from_arg_matches(&found));
    Config::from_args(args.map_err(|error| Refusal::usage(exit::first_line(&error.to_string())))?)
        .map(drop)
}

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Relay {
    config: RwLock<Arc<Config>>,
    doors: Doors,
    drain: Drain,
    journal: Journal,
    sessions: Registry,
    /// Connections that other relays carry by several legs.
    groups: Groups,
    memory: Memory,
    /// A permit for each connection that may be open.
    places: Arc<Semaphore>,
    places_all: u32,
    /// Signs of life of all threads that serve.
    pulse: Pulse,
    /// This relay's name in Via fields, unlike any other's (RFC 9110 §7.6.3).
    pseudonym: String,
}

impl Relay {
    /// The configuration for whatever begins now.
    fn config(&self) -> Arc<Config> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        config.clone()
    }

    fn set_config(&self, config: Config) {
        let mut current = self.config.write().unwrap_or_else(PoisonError::into_inner);
        *current = config.into();
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some((directory, names)) = args.make_certificates.split_first() {
        return authority::make(directory.as_ref(), names);
    }
    let only_check = args.check_config;
    let mut config = Config::from_args(args.clone())?;
    if only_check {
        println!(
            "the configuration stands: {} listeners",
            config.listeners.len()
        );
        return Ok(());
    }
    let budget = budget(&config)?;
    config.pool.pipes_max = budget.pipes_per_worker;
    let opened = open_doors(&config)?;
    let verifiers = open_verifiers(&opened)?;
    let (journal, writer) = config
        .counters
        .as_deref()
        .map(Journal::open)
        .transpose()?
        .unzip();
    let doors = opened.iter().map(|(door, _)| door.clone()).collect();
    let relay = Arc::new(Relay {
        doors: Doors::new(doors),
        sessions: Registry::default(),
        groups: Groups::default(),
        memory: Memory::new(config.limits.memory.unwrap_or_else(memory::default_budget)),
        drain: Drain::new(),
        journal: journal.unwrap_or_default(),
        places: Arc::new(Semaphore::new(budget.connections)),
        places_all: budget.connections as u32,
        pulse: Pulse::new(config.limits.workers + verifiers.len()),
        pseudonym: pseudonym(),
        config: RwLock::new(config.into()),
    });
    serve(&relay, opened, verifiers, args)?;
    // The writer ends when the last user of the journal is gone.
    drop(relay);
    if let Some(writer) = writer {
        writer
            .join()
            .map_err(|_| anyhow::anyhow!("the counters' writer panicked"))?;
    }
    Ok(())
}

/// A door and the sockets behind it, one a worker.
type OpenDoor = (Arc<Door>, Vec<TcpListener>);

fn open_doors(config: &Config) -> anyhow::Result<Vec<OpenDoor>> {
    let present = config
        .listeners
        .iter()
        .filter(|listener| is_possible(listener));
    let opened: Vec<_> = present
        .map(|listener| open_door(config, listener))
        .collect::<Result<_, _>>()?;
    match opened.is_empty() {
        true => Err(Refusal::unsupported(
            "no listener is left: IPv6 is off here",
        )),
        false => Ok(opened),
    }
}

/// Where IPv6 is off there is nothing to divert, and that is no reason not to divert the rest.
fn is_possible(listener: &Listener) -> bool {
    let transparent = matches!(listener.kind, Kind::Transparent { .. });
    let possible = !transparent || listener.address.is_ipv4() || !host::interface::ipv6_is_off();
    if !possible {
        eprintln!(
            "longhaul relay: IPv6 is off here: transparent {} is left out",
            listener.address
        );
    }
    possible
}

fn open_door(config: &Config, listener: &Listener) -> anyhow::Result<OpenDoor> {
    let options = socket_options(listener);
    let sockets = socket::listen(listener.address, config.limits.workers, &options)
        .map_err(|error| explain(error, listener))?;
    let door = Door::new(listener.clone(), sockets[0].local_addr()?);
    Ok((Arc::new(door), sockets))
}

/// Of a listener's sockets, and of those that they accept.
fn socket_options(listener: &Listener) -> socket::Options {
    socket::Options {
        transparent: matches!(listener.kind, Kind::Transparent { .. }),
        ..listener.profile.options.clone()
    }
}

fn explain(error: io::Error, listener: &Listener) -> anyhow::Error {
    let Listener { kind, address, .. } = listener;
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    match kind {
        Kind::Transparent { .. } if denied => Refusal::unsupported(format!(
            "--transparent {address}: IP_TRANSPARENT needs CAP_NET_ADMIN or CAP_NET_RAW (run it as root)"
        )),
        _ if denied => Refusal::unsupported(format!(
            "--{kind} {address}: ports below net.ipv4.ip_unprivileged_port_start need \
             CAP_NET_BIND_SERVICE"
        )),
        _ => anyhow::Error::new(error).context(format!("--{kind} {address}")),
    }
}

/// Raises the limit on descriptors as far as it goes, and says what it has room for if that is
/// less than asked for.
fn budget(config: &Config) -> anyhow::Result<Budget> {
    let limit = host::descriptors::raise_limit();
    let wanted = config.limits.connections_max;
    let workers = config.limits.workers;
    let ready: usize = config.peers.values().map(|peer| peer.pool).sum();
    let streams = config.peers.values().map(|peer| peer.streams).max();
    let room = Room {
        limit,
        workers,
        listeners: config.listeners.len(),
        ready,
        streams: streams.unwrap_or(1).into(),
    };
    let Some(budget) = Budget::new(wanted, room) else {
        return Err(Refusal::unsupported(
            "RLIMIT_NOFILE is too low for a single connection",
        ));
    };
    if budget.connections < wanted as usize {
        eprintln!(
            "longhaul relay: RLIMIT_NOFILE has room for {} connections at once, not {wanted}: \
             others wait",
            budget.connections
        );
    }
    Ok(budget)
}

fn pseudonym() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("longhaul-{:016x}", RandomState::new().hash_one(0))
}

/// Starts the workers, waits for the signal, drains, and stops them.
fn serve(
    relay: &Arc<Relay>,
    opened: Vec<OpenDoor>,
    verifiers: Vec<Verifier>,
    args: &Args,
) -> anyhow::Result<()> {
    let gates = gates(&relay.doors.open(), &verifiers)?;
    let (mut threads, workers) = start_workers(relay, opened.len())?;
    for (door, sockets) in opened {
        reload::hand_out(&door, sockets, &workers)?;
    }
    threads.extend(start_verifiers(relay, verifiers)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = keeper(relay, gates)
        .and_then(|keeper| runtime.block_on(supervise(relay, args, &workers, keeper.as_ref())));
    relay.drain.enter(Phase::Stop);
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a worker panicked"))??;
    }
    relay.journal.put(counters_record(relay));
    outcome
}

type WorkerThread = std::thread::JoinHandle<io::Result<()>>;

/// Sockets that may wait for a worker to take them, besides those of the start.
const OPENINGS_MAX: usize = 1024;

/// The threads, and the ways to give them sockets.
fn start_workers(
    relay: &Arc<Relay>,
    listeners: usize,
) -> io::Result<(Vec<WorkerThread>, Vec<Sender<Opening>>)> {
    let start = |index| {
        let (sender, openings) = channel(listeners + OPENINGS_MAX);
        let worker = Worker {
            relay: relay.clone(),
            index,
            openings,
        };
        let thread = std::thread::Builder::new().name(format!("relay-{index}"));
        Ok((thread.spawn(move || worker.run())?, sender))
    };
    let workers = (0..relay.config().limits.workers).map(start);
    Ok(workers.collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

/// The holders of SYNs, one for each listener that verifies.
fn open_verifiers(opened: &[OpenDoor]) -> anyhow::Result<Vec<Verifier>> {
    let verifies = |door: &&Arc<Door>| {
        let listener = door.listener();
        listener.intercept.as_ref().is_some_and(|i| i.verify)
    };
    let doors = opened.iter().map(|(door, _)| door).filter(verifies);
    doors.cloned().map(Verifier::open).collect()
}

fn start_verifiers(relay: &Arc<Relay>, verifiers: Vec<Verifier>) -> io::Result<Vec<WorkerThread>> {
    let workers = relay.config().limits.workers;
    let start = |(index, verifier): (usize, Verifier)| {
        let relay = relay.clone();
        let thread = std::thread::Builder::new().name(format!("relay-verify-{index}"));
        thread.spawn(move || verifier.run(&relay, workers + index))
    };
    verifiers.into_iter().enumerate().map(start).collect()
}

/// What is to be installed for each listener that intercepts.
fn gates(doors: &[Arc<Door>], verifiers: &[Verifier]) -> io::Result<Vec<Gate>> {
    let gate = |door: &Arc<Door>| {
        let intercept = door.listener().intercept.clone()?;
        let verifier = verifiers.iter().find(|v| v.door().address == door.address);
        let queue = verifier.map(Verifier::queue);
        Some(Gate::new(door.address, intercept, queue))
    };
    doors.iter().filter_map(gate).collect()
}

/// Interception, if there is any. It ends when this is dropped.
fn keeper(relay: &Arc<Relay>, gates: Vec<Gate>) -> anyhow::Result<Option<Keeper>> {
    match gates.is_empty() {
        true => Ok(None),
        false => Keeper::start(relay, gates).map(Some),
    }
}

/// Serves until SIGINT or SIGTERM, then lets connections go on for the grace period.
async fn supervise(
    relay: &Relay,
    args: &Args,
    workers: &[Sender<Opening>],
    keeper: Option<&Keeper>,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let reloading = reload_at_sighup(relay, args, workers)?;
    for door in relay.doors.open() {
        eprintln!("listening {} {}", door.listener().kind, door.address);
    }
    select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = report_counters(relay) => {}
        () = reloading => {}
        () = memory::watch(relay) => {}
        () = peer::watch(relay) => {}
    }
    if let Some(keeper) = keeper {
        keeper.let_pass();
    }
    let impatient = async {
        select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    wind_down(relay, impatient).await;
    Ok(())
}

/// Takes the configuration anew whenever SIGHUP comes, for ever.
fn reload_at_sighup(
    relay: &Relay,
    args: &Args,
    workers: &[Sender<Opening>],
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            match reload::reload(relay, args, workers) {
                Ok(()) => eprintln!("longhaul relay: configuration reloaded"),
                Err(error) => eprintln!("longhaul relay: not reloaded: {error:#}"),
            }
        }
    })
}

/// Writes all counters, once an interval, for ever.
async fn report_counters(relay: &Relay) {
    let mut next = Instant::now();
    loop {
        sleep_until(next).await;
        relay.journal.put(counters_record(relay));
        next += relay.config().interval;
    }
}

/// How long connections that were cut may take to write their records.
const CUT_TIME: Duration = Duration::from_secs(2);

/// Stops accepting; cuts what is left after the grace period, or at a second signal.
async fn wind_down(relay: &Relay, impatient: impl Future<Output = ()>) {
    relay.drain.enter(Phase::Drain);
    let all = relay.places_all;
    let patience = async {
        select! {
            all_back = relay.places.acquire_many(all) => drop(all_back),
            () = impatient => {}
        }
    };
    let _ = timeout(relay.config().limits.grace, patience).await;
    let cut = all as usize - relay.places.available_permits();
    relay.drain.enter(Phase::Cut);
    let _ = timeout(CUT_TIME, relay.places.acquire_many(all)).await;
    match cut {
        0 => eprintln!("longhaul relay: stopped, no connection cut"),
        n => eprintln!("longhaul relay: stopped, {n} connections cut"),
    }
}

fn counters_record(relay: &Relay) -> Record {
    let (listeners, total) = relay.doors.counts();
    let (memory_bytes, memory_budget_bytes) = relay.memory.read();
    Record::Relay(RelayRecord {
        time: Timestamp::now(),
        total,
        listeners,
        records_lost: relay.journal.lost(),
        memory_bytes,
        memory_budget_bytes,
        peers: relay
            .config()
            .peers
            .values()
            .map(|peer| peer.read())
            .collect(),
    })
}
