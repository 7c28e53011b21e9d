// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul relay`: TCP connections in legs.
//!
//! A listener turns a client into a `route::Request`; the route opens the outgoing leg; the
//! transfer moves bytes between the two legs and passes every kind of end on; the session sees to
//! records. Workers are threads that share nothing but counters.
//!
//! ```
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     relay: longhaul_relay::Args,
//! }
//!
//! let cli = Cli::parse_from(["relay", "--forward", "127.0.0.1:8080=192.0.2.1:80", "--check-config"]);
//! longhaul_relay::run(&cli.relay).unwrap();
//! ```

mod admission;
mod alarm;
mod announcement;
mod args;
mod authentication;
mod certificates;
mod config;
mod crew;
mod door;
mod doors;
mod drain;
mod faults;
mod findings;
mod ftp;
mod history;
mod http_memory;
mod idle;
pub(crate) mod intercept;
mod leg;
mod listener;
mod overview;
mod paced;
mod passed;
mod peers;
mod records;
mod registry;
mod reload;
mod reload_state;
mod route;
mod service_manager;
mod session;
mod silence;
mod standstill;
mod stripe;
mod summary;
mod survey;
mod transfer;
mod worker;

pub use args::Args;

use crate::{
    admission::{
        accounts::Accounts,
        budget::{Budget, Demand},
        lookups::Lookups,
        memory::{self, Memory},
    },
    alarm::Alarm,
    certificates::authority,
    config::{
        Config, Current,
        listener::{Kind, Listener},
        reference,
        settings::Transport,
    },
    crew::Crew,
    door::Door,
    doors::Doors,
    drain::{Drain, Phase},
    history::History,
    intercept::{
        keeper::{Gate, Keeper},
        pulse::Pulse,
        verify::Verifier,
    },
    leg::udt,
    overview::Overview,
    passed::PassedSockets,
    records::journal::Journal,
    registry::Registry,
    reload_state::ReloadState,
    service_manager::ServiceManager,
    stripe::groups::Groups,
    summary::Summary,
    survey::Survey,
    worker::{Ear, Newcomer, Opening, Worker},
};
use anyhow::Context as _;
use clap::{Args as _, FromArgMatches as _};
use jiff::Timestamp;
use longhaul_admin::relay_record::{Record, RelayRecord};
use longhaul_command::{
    exit::{self, Refusal},
    note, say,
};
use longhaul_linux::socket;
use std::{
    io::{self, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::{
        Semaphore,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Instant, sleep_until, timeout},
};

/// The names of all options, as typed behind `--`.
pub fn options() -> Vec<String> {
    let command = Args::augment_args(clap::Command::new("relay"));
    let names = command.get_arguments().filter_map(clap::Arg::get_long);
    names.map(str::to_owned).collect()
}

/// An authority in `directory`, unless it is there, and a certificate for each name.
pub fn make_certificates(directory: &std::path::Path, names: &[String]) -> anyhow::Result<()> {
    authority::make(directory, names)
}

/// Where a relay of these flags would listen for TCP, without making it: for those who write such flags for others,
/// as `lab` does.
pub fn check(flags: &[String]) -> anyhow::Result<Vec<SocketAddr>> {
    let command = Args::augment_args(clap::Command::new("relay").no_binary_name(true));
    let args = command
        .try_get_matches_from(flags)
        .and_then(|found| Args::from_arg_matches(&found));
    let args = args.map_err(|error| Refusal::usage(exit::first_line(&error.to_string())))?;
    let config = args.configuration()?;
    let listeners = config.listeners.iter();
    let over_tcp = listeners.filter(|listener| listener.transport == Transport::Tcp);
    let places = over_tcp.map(|listener| listener.address);
    Ok(places.chain(config.admin).collect())
}

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Relay {
    config: Current,
    doors: Doors,
    drain: Drain,
    journal: Journal,
    sessions: Registry,
    /// Connections that other relays carry by several legs.
    groups: Arc<Groups>,
    accounts: Accounts,
    lookups: Lookups,
    crew: Arc<Crew>,
    memory: Memory,
    survey: Survey,
    history: History,
    started: Instant,
    reloads: ReloadState,
    /// A permit for each connection that may be open.
    places: Arc<Semaphore>,
    /// All of them, taken or not; a reload may change it.
    places_all: AtomicU32,
    /// How the descriptors were shared out at the start.
    budget: Budget,
    /// Raised when a thread that serves is gone.
    alarm: Alarm,
    /// Signs of life of all threads that serve.
    pulse: Pulse,
    /// This relay's name in Via fields, unlike any other's (RFC 9110 §7.6.3).
    pseudonym: String,
}

impl Relay {
    /// The configuration for whatever begins now.
    fn config(&self) -> Arc<Config> {
        self.config.get()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some((directory, names)) = args.make_certificates.split_first() {
        authority::make(directory.as_ref(), names)?;
        say!("{}", authority::explanation(directory.as_ref(), names));
        return Ok(());
    }
    if args.print_default_config {
        return Ok(io::stdout().write_all(reference::TEXT.as_bytes())?);
    }
    if args.check_config {
        return check_config(args);
    }
    let mut passed = PassedSockets::take()?;
    let mut config = args.configuration()?;
    let budget = budget(&config)?;
    config.pool.pipes_max = budget.pipes_per_worker;
    let endpoint = config.admin.map(longhaul_admin::listen).transpose()?;
    let opened = open_doors(&config, &mut passed)?;
    warn_of_few(budget.connections, config.limits.connections_max);
    let verifiers = open_verifiers(&opened)?;
    let (journal, writer) = config
        .counters
        .as_deref()
        .map(Journal::open)
        .transpose()?
        .unzip();
    let doors = opened.iter().map(|(door, _)| door.clone()).collect();
    let (crew, newcomers) = Crew::new(config.limits.workers);
    let relay = Arc::new(Relay {
        crew: crew.into(),
        doors: Doors::new(doors),
        sessions: Registry::default(),
        groups: Arc::default(),
        accounts: Accounts::default(),
        lookups: Lookups::new(budget.lookups),
        memory: Memory::new(memory::budget(config.limits.memory).map(|budget| budget.bytes)),
        survey: Survey::new(config.admin.is_some()),
        history: History::default(),
        started: Instant::now(),
        reloads: ReloadState::new(),
        drain: Drain::new(),
        journal: journal.unwrap_or_default(),
        places: Arc::new(Semaphore::new(budget.connections)),
        places_all: (budget.connections as u32).into(),
        budget,
        alarm: Alarm::new(),
        pulse: Pulse::new(config.limits.workers + verifiers.len()),
        pseudonym: pseudonym(),
        config: Current::new(config),
    });
    let opened = Opened {
        doors: opened,
        verifiers,
        endpoint,
        newcomers,
    };
    serve(&relay, opened, args)?;
    // The writer ends when the last user of the journal is gone.
    drop(relay);
    if let Some(writer) = writer {
        writer
            .join()
            .map_err(|_| anyhow::anyhow!("the counters' writer panicked"))?;
    }
    Ok(())
}

/// Says what the configuration comes to, or what is wrong with it.
fn check_config(args: &Args) -> anyhow::Result<()> {
    let (config, settings, file) = args.read()?;
    let mut summary = Summary::new(&config);
    for finding in findings::find(&settings, &config) {
        summary.warn_of(&finding, file.as_ref());
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&summary)? + "\n",
        false => summary.to_string(),
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// A door and the sockets behind it, one a worker, or one for all.
type OpenDoor = (Arc<Door>, Vec<Ear>);

fn open_doors(config: &Config, passed: &mut PassedSockets) -> anyhow::Result<Vec<OpenDoor>> {
    let present = config
        .listeners
        .iter()
        .filter(|listener| is_possible(listener));
    let opened: Vec<_> = present
        .map(|listener| open_door(config, listener, &passed.taken_by(listener)?))
        .collect::<Result<_, _>>()?;
    passed.check_none_left()?;
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
    let possible =
        !transparent || listener.address.is_ipv4() || !longhaul_linux::interface::ipv6_is_off();
    if !possible {
        note!(
            "longhaul relay: IPv6 is off here: transparent {} is left out",
            listener.address
        );
    }
    possible
}

/// On the sockets that were passed, if there are any.
fn open_door(
    config: &Config,
    listener: &Listener,
    passed: &[TcpListener],
) -> anyhow::Result<OpenDoor> {
    if listener.transport == Transport::Udt {
        return open_udt_door(listener);
    }
    let (options, workers) = (socket_options(listener), config.limits.workers);
    let is_passed = !passed.is_empty();
    let sockets = match is_passed {
        true => socket::adopt(passed, workers, &options),
        false => socket::listen(listener.address, workers, &options),
    };
    let sockets = sockets.map_err(|error| explain(error, listener))?;
    let mut door = Door::new(listener.clone(), sockets[0].local_addr()?);
    door.is_passed = is_passed;
    Ok((Arc::new(door), sockets.into_iter().map(Ear::Tcp).collect()))
}

fn open_udt_door(listener: &Listener) -> anyhow::Result<OpenDoor> {
    let socket = udt::listen(listener.address, &listener.profile);
    let socket = socket.map_err(|error| explain(error, listener))?;
    let door = Door::new(listener.clone(), socket.local_addr());
    Ok((Arc::new(door), vec![Ear::Udt(socket)]))
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

/// Raises the limit on descriptors as far as it goes, and shares it out.
fn budget(config: &Config) -> anyhow::Result<Budget> {
    let limit = longhaul_linux::descriptors::raise_limit();
    Budget::new(limit, &Demand::of(config))
        .ok_or_else(|| Refusal::unsupported("RLIMIT_NOFILE is too low for a single connection"))
}

fn warn_of_few(places: usize, wanted: u32) {
    if places < wanted as usize {
        note!(
            "longhaul relay: RLIMIT_NOFILE has room for {places} connections at once, not \
             {wanted}: others wait"
        );
    }
}

fn pseudonym() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("longhaul-{:016x}", RandomState::new().hash_one(0))
}

/// What the relay serves on, before it serves.
struct Opened {
    doors: Vec<OpenDoor>,
    verifiers: Vec<Verifier>,
    /// Of the admin endpoint.
    endpoint: Option<TcpListener>,
    /// Each worker's, of connections that others accepted.
    newcomers: Vec<Receiver<Newcomer>>,
}

/// Starts the workers, waits for the signal, drains, and stops them.
fn serve(relay: &Arc<Relay>, opened: Opened, args: &Args) -> anyhow::Result<()> {
    let Opened {
        doors: opened,
        verifiers,
        endpoint,
        newcomers,
    } = opened;
    // First: a lack of descriptors is seen before anything is touched.
    let runtime = longhaul_command::event_loop::of_this_thread()?;
    let gates = gates(&relay.doors.open(), &verifiers)?;
    let (mut threads, workers) = start_workers(relay, opened.len(), newcomers)?;
    // A worker that is gone takes no listener; joining it tells why.
    let handed_out = opened
        .into_iter()
        .try_for_each(|(door, sockets)| reload::hand_out(&door, sockets, &workers));
    threads.extend(start_verifiers(relay, verifiers)?);
    let keeper = handed_out.and_then(|()| keeper(relay, gates));
    let outcome = keeper.and_then(|keeper| {
        runtime.block_on(async {
            serve_admin(relay, endpoint)?;
            supervise(relay, args, &workers, keeper.as_ref()).await
        })
    });
    relay.drain.enter(Phase::Stop);
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        let ended = thread.join();
        ended
            .map_err(|_| anyhow::anyhow!("thread {name} panicked"))?
            .with_context(|| format!("thread {name}"))?;
    }
    relay.journal.put(counters_record(relay));
    outcome
}

/// Lets people and programs look at the relay, until its runtime ends.
fn serve_admin(relay: &Arc<Relay>, endpoint: Option<TcpListener>) -> anyhow::Result<()> {
    let Some(endpoint) = endpoint else {
        return Ok(());
    };
    note!("listening admin {}", endpoint.local_addr()?);
    let looked_at = relay.clone();
    tokio::spawn(async move { looked_at.survey.go_round(&looked_at).await });
    let remembered = relay.clone();
    tokio::spawn(async move { remembered.history.write(&remembered).await });
    let endpoint = tokio::net::TcpListener::from_std(endpoint)?;
    tokio::spawn(longhaul_admin::serve(endpoint, Overview(relay.clone())));
    Ok(())
}

type WorkerThread = std::thread::JoinHandle<io::Result<()>>;

/// Sockets that may wait for a worker to take them, besides those of the start.
const OPENINGS_MAX: usize = 1024;

/// The threads, and the ways to give them sockets.
fn start_workers(
    relay: &Arc<Relay>,
    listeners: usize,
    newcomers: Vec<Receiver<Newcomer>>,
) -> io::Result<(Vec<WorkerThread>, Vec<Sender<Opening>>)> {
    let start = |(index, newcomers)| {
        let (sender, openings) = channel(listeners + OPENINGS_MAX);
        let worker = Worker {
            relay: relay.clone(),
            index,
            openings,
            newcomers,
        };
        let thread = std::thread::Builder::new().name(format!("relay-{index}"));
        let alarm = relay.clone();
        let run = move || alarm.alarm.over(|| worker.run());
        Ok((thread.spawn(run)?, sender))
    };
    let workers = newcomers.into_iter().enumerate().map(start);
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
        thread.spawn(move || relay.alarm.over(|| verifier.run(&relay, workers + index)))
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

/// Serves until SIGINT or SIGTERM, then lets connections go on for the grace period. Ends at once
/// when a thread is gone: joining it tells why.
async fn supervise(
    relay: &Relay,
    args: &Args,
    workers: &[Sender<Opening>],
    keeper: Option<&Keeper>,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let manager = ServiceManager::find();
    let reloading = reload_at_sighup(relay, args, workers, &manager)?;
    for door in relay.doors.open() {
        note!("listening {} {}", door.listener().kind, door.address);
    }
    manager.ready(relay);
    let mut told_to_end = async || {
        select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let life = async {
        select! {
            () = told_to_end() => {}
            () = report_counters(relay) => {}
            () = reloading => {}
            () = memory::watch(relay) => {}
            () = idle::watch(relay) => {}
            () = peers::check::watch(&relay.config) => {}
        }
        manager.stopping();
        if let Some(keeper) = keeper {
            keeper.let_pass();
        }
        wind_down(relay, told_to_end()).await;
    };
    select! {
        () = life => {}
        () = manager.attend(relay) => {}
        () = relay.alarm.raised() => manager.stopping(),
    }
    Ok(())
}

/// Takes the configuration anew whenever SIGHUP comes, for ever.
fn reload_at_sighup(
    relay: &Relay,
    args: &Args,
    workers: &[Sender<Opening>],
    manager: &ServiceManager,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            manager.reloading();
            // Whether the configuration is taken or not: the file may have been moved.
            relay.journal.reopen();
            let problem = reload::reload(relay, args, workers).err();
            let problem = problem.map(|error| format!("{error:#}"));
            match &problem {
                None => note!("longhaul relay: configuration reloaded"),
                Some(problem) => note!("longhaul relay: not reloaded: {problem}"),
            }
            manager.reloaded(relay, problem.as_deref());
            relay.reloads.ended(problem);
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
    let all = relay.places_all.load(Relaxed);
    let patience = async {
        select! {
            all_back = relay.places.acquire_many(all) => drop(all_back),
            () = impatient => {}
        }
    };
    let _ = timeout(relay.config().limits.grace, patience).await;
    let cut = relay.sessions.len();
    relay.drain.enter(Phase::Cut);
    relay.sessions.cut();
    let _ = timeout(CUT_TIME, relay.places.acquire_many(all)).await;
    match cut {
        0 => note!("longhaul relay: stopped, no connection cut"),
        n => note!("longhaul relay: stopped, {n} connections cut"),
    }
}

fn counters_record(relay: &Relay) -> Record {
    Record::Relay(counters(relay))
}

/// All counters now.
fn counters(relay: &Relay) -> RelayRecord {
    let (listeners, total) = relay.doors.counts();
    let (memory_bytes, memory_budget_bytes) = relay.memory.read();
    RelayRecord {
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
    }
}
