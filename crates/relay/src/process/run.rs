// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts, supervises and stops a relay.

use crate::{
    args::Args,
    authority,
    check::{addresses, findings, summary::Summary},
    config::{
        Config,
        file::{self, File},
        limits::CONNECTIONS_DEFAULT,
        reference,
        settings::Settings,
    },
    leg::profile,
    listeners::{
        Listeners,
        listener::Listener,
        sockets::{OpenListener, PassedSockets, WorkerSocket, open_listeners},
    },
    peers::{self, current::CurrentSetup},
    process::{
        supervisor::{
            admin_source::AdminSource, connection_limits, reload, sampling,
            service_manager::ServiceManager, shared_limits,
        },
        workers::{
            load_balancer::{AcceptedConnection, LoadBalancer},
            registry::Registry,
            worker::Worker,
        },
    },
    records::{
        history::History,
        journal::{Journal, RecordFile},
        reload_state::ReloadState,
        sampling::ConnectionSampler,
    },
    relay::{ACCEPT_TIME, Lifecycle, Phase, Relay, ThreadExitSignal},
    verify::Verifier,
};
use anyhow::Context as _;
use longhaul_admin::{Endpoint, relay_record::Record};
use longhaul_admission::{
    accounts::Accounts,
    descriptors::{DESCRIPTOR_LIMIT_TOO_LOW, DescriptorBudget},
    idle_clients::IdleClients,
    lookups::Lookups,
    memory::{self, Memory},
    shared_limit::SharedLimit,
};
use longhaul_command::{exit::Refusal, outln};
use longhaul_interception::{heartbeat::Heartbeats, rule_set::RuleSet, thread::Interception};
use longhaul_linux::{mtu_probing::MtuProbing, sock_diag::SockDiag};
use std::{
    io::{self, Write as _},
    net::TcpListener,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::{
        Semaphore,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{error, info, warn};

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some((directory, names)) = args.make_certificates.split_first() {
        authority::make(directory.as_ref(), names)?;
        outln!("{}", authority::instructions(directory.as_ref(), names));
        return Ok(());
    }
    if args.print_default_config {
        return Ok(io::stdout().write_all(reference::TEXT.as_bytes())?);
    }
    if args.check_config {
        return check_config(args);
    }
    let mut passed = PassedSockets::take()?;
    let mut config = load_config(args)?;
    if passed.is_empty() {
        addresses::refuse_conflicts(&config)?;
    }
    let open = |flag, key, path: &Option<PathBuf>| {
        let path = path.as_deref();
        path.map(|path| RecordFile::open(flag, key, path))
            .transpose()
    };
    let counters = open("counters", "counters.file", &config.counters)?;
    let access_log = open("access-log", "counters.access_log", &config.access_log)?;
    let access_log = access_log.map(|file| file.with_format(config.access_log_format));
    // Set before there are threads, and reset when the relay has ended.
    let _probing = config.mtu_probing.then(enable_mtu_probing).transpose()?;
    let budget = divide_descriptors(&config)?;
    config.pool.pipes_max = budget.pipes_per_worker;
    let endpoints = open_endpoints(&config)?;
    let opened = open_listeners(&config, &mut passed)?;
    report_descriptor_limit(budget.connections, config.limits.connections_max);
    let verifiers = open_verifiers(&opened)?;
    let (journal, writer) = counters.map(Journal::start).unzip();
    let (access_log, access_log_writer) = access_log.map(Journal::start).unzip();
    let listeners = opened
        .iter()
        .map(|(listener, _)| listener.clone())
        .collect();
    let (balancer, handovers) = LoadBalancer::new(config.limits.workers);
    let relay = Arc::new(Relay {
        listeners: Listeners::new(listeners),
        groups: Arc::default(),
        accounts: Accounts::default(),
        lookups: Lookups::new(budget.lookups),
        memory: Memory::new(memory::budget(config.limits.memory).map(|budget| budget.bytes)),
        sampler: ConnectionSampler::new(config.admin.is_some()),
        history: History::default(),
        started: Instant::now(),
        reloads: ReloadState::new(),
        lifecycle: Lifecycle::new(),
        journal: journal.unwrap_or_default(),
        access_log: access_log.unwrap_or_default(),
        connection_permits: Arc::new(Semaphore::new(budget.connections)),
        idle_clients: IdleClients::default(),
        permits_total: (budget.connections as u32).into(),
        connection_limit: SharedLimit::default(),
        descriptor_limit: SharedLimit::default(),
        budget,
        thread_exit: ThreadExitSignal::new(),
        heartbeats: Heartbeats::new(config.limits.workers + verifiers.len()).into(),
        pseudonym: pseudonym(),
        current: CurrentSetup::new(config),
    });
    let opened = ServingParts {
        listeners: opened,
        verifiers,
        endpoints,
        handovers,
        balancer: balancer.into(),
    };
    serve(&relay, opened, args)?;
    // The writers end when the last owner of the journals is gone.
    drop(relay);
    for writer in writer.into_iter().chain(access_log_writer) {
        writer
            .join()
            .map_err(|_| anyhow::anyhow!("the writer of records panicked"))?;
    }
    Ok(())
}

/// Reads the configuration from the file, if one is named, and the flags. Checks it, and tries its
/// socket options on this system.
pub(crate) fn load_config(args: &Args) -> anyhow::Result<Config> {
    read_config(args).map(|(config, ..)| config)
}

/// Reads the configuration, together with the settings and the file it comes from.
fn read_config(args: &Args) -> anyhow::Result<(Config, Settings, Option<File>)> {
    let (config, settings, file) = args.read()?;
    profile::check_support(&config.profiles).map_err(|error| file::locate(error, file.as_ref()))?;
    Ok((config, settings, file))
}

/// Prints a summary of the configuration and its problems.
fn check_config(args: &Args) -> anyhow::Result<()> {
    let (config, settings, file) = read_config(args)?;
    let mut summary = Summary::new(&config);
    for finding in findings::find(&settings, &config) {
        summary.add_warning(&finding, file.as_ref());
    }
    let text = if args.json {
        serde_json::to_string_pretty(&summary)? + "\n"
    } else {
        summary.to_string()
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Raises the limit on file descriptors to its maximum, and divides them.
fn divide_descriptors(config: &Config) -> anyhow::Result<DescriptorBudget> {
    let limit = longhaul_linux::descriptors::raise_limit();
    DescriptorBudget::new(limit, &config.descriptor_demand())
        .ok_or_else(|| Refusal::unsupported(DESCRIPTOR_LIMIT_TOO_LOW))
}

fn enable_mtu_probing() -> anyhow::Result<MtuProbing> {
    MtuProbing::enable().map_err(|error| {
        let remedy = "it needs CAP_NET_ADMIN and a /proc/sys that is writable; sysctl.d(5) may set it instead";
        Refusal::unsupported(format!("--mtu-probing: {error} ({remedy})"))
    })
}

/// Reports a limit below the number of connections. Only a number that somebody chose is worth a warning.
fn report_descriptor_limit(available: usize, wanted: u32) {
    if available >= wanted as usize {
        return;
    }
    let text = format!(
        "RLIMIT_NOFILE has room for {available} connections at once, not {wanted}: others wait"
    );
    if wanted == CONNECTIONS_DEFAULT {
        info!("{text}");
    } else {
        warn!("{text}");
    }
}

/// Returns a random name for the Via and Proxy-Status fields, so that requests in a loop are found.
fn pseudonym() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("longhaul-{:016x}", RandomState::new().hash_one(0))
}

/// Sockets and channels that the relay needs for serving.
struct ServingParts {
    listeners: Vec<OpenListener>,
    verifiers: Vec<Verifier>,
    /// Listening sockets of the admin endpoint and of health checks.
    endpoints: Vec<(Endpoint, TcpListener)>,
    /// Receivers of the workers, for connections that other workers accepted.
    handovers: Vec<Receiver<AcceptedConnection>>,
    balancer: Arc<LoadBalancer>,
}

/// Starts the workers, waits for the signal, drains, and stops the workers.
fn serve(relay: &Arc<Relay>, opened: ServingParts, args: &Args) -> anyhow::Result<()> {
    let ServingParts {
        listeners: opened,
        verifiers,
        endpoints,
        handovers,
        balancer,
    } = opened;
    let registry = Arc::<Registry>::default();
    // First of all: a lack of descriptors is found before anything changes.
    let runtime = longhaul_command::event_loop::current_thread()?;
    let rule_sets = rule_sets(&relay.listeners.open(), &verifiers)?;
    let (mut threads, workers) =
        start_workers(relay, &registry, &balancer, opened.len(), handovers)?;
    // A worker that has exited takes no listener; joining it returns the cause.
    let distributed = opened.into_iter().try_for_each(|(listener, sockets)| {
        reload::distribute_sockets(&listener, sockets, &workers)
    });
    threads.extend(start_verifiers(relay, verifiers)?);
    let interception = distributed.and_then(|()| start_interception(relay, rule_sets));
    let outcome = interception.and_then(|interception| {
        runtime.block_on(async {
            serve_endpoints(relay, &registry, endpoints)?;
            supervise(relay, &registry, args, &workers, interception.as_ref()).await
        })
    });
    relay.lifecycle.enter(Phase::Stop);
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

fn open_endpoints(config: &Config) -> anyhow::Result<Vec<(Endpoint, TcpListener)>> {
    let wanted = [
        (Endpoint::Admin, config.admin),
        (Endpoint::Health, config.health),
    ];
    let addresses = wanted
        .into_iter()
        .filter_map(|(kind, address)| Some((kind, address?)));
    addresses
        .map(|(kind, address)| Ok((kind, longhaul_admin::listen(kind, address)?)))
        .collect()
}

/// Serves the endpoints until the runtime ends.
fn serve_endpoints(
    relay: &Arc<Relay>,
    registry: &Arc<Registry>,
    endpoints: Vec<(Endpoint, TcpListener)>,
) -> anyhow::Result<()> {
    for (kind, socket) in endpoints {
        info!("listening {} {}", kind.name(), socket.local_addr()?);
        if kind == Endpoint::Admin {
            sample(relay, registry);
        }
        let socket = tokio::net::TcpListener::from_std(socket)?;
        tokio::spawn(longhaul_admin::serve(
            socket,
            AdminSource(relay.clone()),
            kind,
        ));
    }
    Ok(())
}

/// Samples all connections, for the readers of the admin endpoint.
fn sample(relay: &Arc<Relay>, registry: &Arc<Registry>) {
    let (sampled, registry) = (relay.clone(), registry.clone());
    tokio::spawn(async move { sampling::run(&sampled, &registry).await });
    let recorded = relay.clone();
    tokio::spawn(async move { sampling::write_history(&recorded).await });
}

type WorkerThread = std::thread::JoinHandle<io::Result<()>>;

/// Capacity for sockets that wait for a worker, besides those of the start.
const SOCKET_QUEUE_LEN: usize = 1024;

/// Starts the worker threads. Returns their handles and the channels for their sockets.
fn start_workers(
    relay: &Arc<Relay>,
    registry: &Arc<Registry>,
    balancer: &Arc<LoadBalancer>,
    listeners: usize,
    handovers: Vec<Receiver<AcceptedConnection>>,
) -> io::Result<(Vec<WorkerThread>, Vec<Sender<WorkerSocket>>)> {
    let start = |(index, handovers)| {
        let (sender, sockets) = channel(listeners + SOCKET_QUEUE_LEN);
        let worker = Worker {
            relay: relay.clone(),
            registry: registry.clone(),
            balancer: balancer.clone(),
            index,
            sockets,
            handovers,
        };
        let thread = std::thread::Builder::new().name(format!("relay-{index}"));
        let relay = relay.clone();
        let run = move || relay.thread_exit.run(|| worker.run());
        Ok((thread.spawn(run)?, sender))
    };
    let workers = handovers.into_iter().enumerate().map(start);
    Ok(workers.collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

/// Opens a verifier for each listener that verifies.
fn open_verifiers(opened: &[OpenListener]) -> anyhow::Result<Vec<Verifier>> {
    let verifies = |listener: &&Arc<Listener>| {
        let config = listener.config();
        config.intercept.as_ref().is_some_and(|i| i.verify)
    };
    let listeners = opened.iter().map(|(listener, _)| listener).filter(verifies);
    listeners.cloned().map(Verifier::open).collect()
}

fn start_verifiers(relay: &Arc<Relay>, verifiers: Vec<Verifier>) -> io::Result<Vec<WorkerThread>> {
    let workers = relay.config().limits.workers;
    let start = |(index, verifier): (usize, Verifier)| {
        let relay = relay.clone();
        let thread = std::thread::Builder::new().name(format!("relay-verify-{index}"));
        thread.spawn(move || {
            relay
                .thread_exit
                .run(|| verifier.run(&relay, workers + index))
        })
    };
    verifiers.into_iter().enumerate().map(start).collect()
}

/// Returns the rules to install for each listener that intercepts.
fn rule_sets(listeners: &[Arc<Listener>], verifiers: &[Verifier]) -> io::Result<Vec<RuleSet>> {
    let rule_set = |listener: &Arc<Listener>| {
        let intercept = listener.config().intercept.clone()?;
        let verifier = verifiers
            .iter()
            .find(|v| v.listener().address == listener.address);
        let queue = verifier.map(Verifier::queue);
        Some(RuleSet::new(listener.address, intercept, queue))
    };
    listeners.iter().filter_map(rule_set).collect()
}

/// Starts interception if there are rules. It ends when the returned value is dropped.
fn start_interception(
    relay: &Arc<Relay>,
    rule_sets: Vec<RuleSet>,
) -> anyhow::Result<Option<Interception>> {
    if rule_sets.is_empty() {
        Ok(None)
    } else {
        Interception::start(&relay.heartbeats, || relay.thread_exit.is_set(), rule_sets).map(Some)
    }
}

/// Serves until SIGINT or SIGTERM, then lets connections continue for the grace period. Returns at
/// once when a serving thread has exited; joining it returns the cause.
async fn supervise(
    relay: &Arc<Relay>,
    registry: &Arc<Registry>,
    args: &Args,
    workers: &[Sender<WorkerSocket>],
    interception: Option<&Interception>,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let manager = ServiceManager::from_env(relay.clone(), registry.clone());
    let reloading = reload_at_sighup(relay, args, workers, &manager)?;
    for listener in relay.listeners.open() {
        info!("listening {} {}", listener.config().kind, listener.address);
    }
    manager.ready();
    let mut termination_signal = async || {
        select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let serving = async {
        select! {
            () = termination_signal() => {}
            () = report_counters(relay) => {}
            () = reloading => {}
            () = connection_limits::enforce_memory(relay, registry) => {}
            () = connection_limits::cut_idle_tunnels(relay, registry) => {}
            () = connection_limits::record_open_tunnels(relay, registry) => {}
            () = shared_limits::watch(relay) => {}
            () = peers::check::run_checks(&relay.current) => {}
        }
        manager.stopping();
        if let Some(interception) = interception {
            interception.end_leases();
            wait_for_handshakes().await;
        }
        drain(relay, registry, termination_signal()).await;
    };
    select! {
        () = serving => {}
        () = manager.run() => {}
        () = relay.thread_exit.wait() => manager.stopping(),
    }
    Ok(())
}

/// Reloads the configuration at each SIGHUP, without end.
fn reload_at_sighup(
    relay: &Relay,
    args: &Args,
    workers: &[Sender<WorkerSocket>],
    manager: &ServiceManager,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            manager.reloading();
            // Also if the reload fails: the file may have been moved.
            relay.journal.reopen();
            relay.access_log.reopen();
            let problem =
                load_config(args).and_then(|config| reload::reload(relay, config, workers));
            let problem = problem.err();
            let problem = problem.map(|error| format!("{error:#}"));
            match &problem {
                None => info!("configuration reloaded"),
                Some(problem) => error!("not reloaded: {problem}"),
            }
            manager.reloaded(problem.as_deref());
            relay.reloads.record(problem);
        }
    })
}

/// Writes all counters once per interval, without end.
async fn report_counters(relay: &Relay) {
    let mut next = Instant::now();
    loop {
        sleep_until(next).await;
        relay.journal.put(counters_record(relay));
        next += relay.config().interval;
    }
}

/// Time in which connections that were cut write their records.
const RECORD_TIME: Duration = Duration::from_secs(2);

/// Time to complete TCP handshakes that began before interception ended. Enough for clients with a
/// round trip of 250 ms.
const HANDSHAKE_TIME: Duration = Duration::from_millis(250);
const HANDSHAKE_POLL: Duration = Duration::from_millis(10);

/// Waits for handshakes with clients, [`HANDSHAKE_TIME`] at most: closing the listener would reset
/// them.
async fn wait_for_handshakes() {
    let ended = async {
        while SockDiag::here().is_ok_and(|mut sockets| sockets.handshakes().is_ok_and(|n| n > 0)) {
            sleep(HANDSHAKE_POLL).await;
        }
    };
    let _ = timeout(HANDSHAKE_TIME, ended).await;
}

/// Stops accepting. Cuts the remaining connections after the grace period, or when `second_signal`
/// completes.
async fn drain(relay: &Relay, registry: &Registry, second_signal: impl Future<Output = ()>) {
    relay.lifecycle.enter(Phase::Drain);
    sleep(ACCEPT_TIME).await;
    let all = relay.permits_total.load(Relaxed);
    let all_closed = async {
        select! {
            permits = relay.connection_permits.acquire_many(all) => drop(permits),
            () = second_signal => {}
        }
    };
    let _ = timeout(relay.config().limits.grace, all_closed).await;
    let cut = registry.len();
    relay.lifecycle.enter(Phase::Cut);
    registry.cut_all();
    let _ = timeout(RECORD_TIME, relay.connection_permits.acquire_many(all)).await;
    match cut {
        0 => info!("stopped, no connection reset"),
        n => warn!("stopped, {n} connections reset"),
    }
}

fn counters_record(relay: &Relay) -> Record {
    Record::Relay(relay.counters().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn refuses_congestion_control_that_kernel_lacks() {
        let words = "relay --socks5 127.0.0.1:0 --cc-upstream no-such".split(' ');
        let refusal = load_config(&Line::parse_from(words).args).unwrap_err();
        let refusal = refusal.to_string();
        let begin = "--cc-upstream no-such: no such congestion control here; there are: ";
        assert!(refusal.starts_with(begin), "{refusal}");
    }
}
