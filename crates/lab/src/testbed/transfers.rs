// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of a run's flows on a testbed: servers first, then all transfers at their times,
//! beside them the sampler, and finally the check that the right bytes arrived.

use super::{
    Testbed,
    payload::{self, PayloadStore, Sink, payload_name},
    programs::{command, curl, daemon::Daemon, file_servers, iperf3, probe, udt},
};
use crate::{
    measure::{Outcome, Sample, figures::summarize, recording::Sampler},
    network::{
        SenderOptions, Topology, link,
        probe::{ExpectedLink, expected_link},
        sockets::{self, WebServers, accepting_host, iperf_port, opening_host, web_servers},
    },
    scenario::{Direction, Flow, HostPort, Program, Scenario},
};
use anyhow::{Context, Result, bail, ensure};
use longhaul_linux::{clock, netns::Netns};
use longhaul_results::result::Run;
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};
use tokio::{task::JoinSet, time};

/// Receiving files of a scenario's transfers, by flow.
pub(crate) type Sinks = BTreeMap<String, Arc<Sink>>;

/// Runs every enabled flow of `scenario`. `delivered` counts payload bytes as they arrive.
pub(crate) async fn execute(
    scenario: &Scenario,
    testbed: &mut Testbed,
    store: &PayloadStore,
    sinks: &Sinks,
    directory: &Path,
    delivered: Arc<AtomicU64>,
) -> Result<Run> {
    let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.enabled).collect();
    let web = web_servers(scenario, &testbed.topology, &flows);
    if flows.iter().any(|flow| flow.program == Program::Command) {
        store.clear_scratch(&testbed.topology.hosts)?;
    }
    let mut servers = start_servers(&flows, &web, testbed, store, directory).await?;
    let context = TransferContext {
        scenario,
        testbed,
        web: &web,
        store,
        sinks,
        directory,
    };
    let transfers = context.prepare(&flows)?;
    let receivers = flows.iter().map(|flow| flow.to.clone()).collect();
    let record = directory.join("tcp_info.jsonl");
    let (began, began_s) = (clock::now(), unix_s());
    let sampler = Sampler::start(&testbed.hosts(), receivers, delivered, &record)?;
    let outcomes = tokio::select! {
        outcomes = run_all(transfers) => outcomes,
        failure = wait_for_failure(testbed, &mut servers) => Err(failure),
    };
    let mut recording = sampler.stop()?;
    if outcomes.is_err() {
        // The device of a killed link vanishes, and flows fail with it, shortly before its process
        // has ended.
        time::sleep(POLL_INTERVAL).await;
    }
    testbed.check_running()?;
    let mut outcomes = outcomes?;
    for server in servers {
        server.stop().await?;
    }
    for (flow, outcome) in flows.iter().zip(&mut outcomes) {
        let command = command::HostCommand::of_server(flow, &testbed.topology, store, directory)?;
        command.map_or(Ok(()), |(server, _)| server.add_usage_to(outcome))?;
    }
    verify_received_files(&flows, &outcomes, store, sinks)?;
    verify_created_files(&flows, &testbed.topology, store)?;
    recording.insert(udt_samples(&flows, &testbed.topology, directory, began_s)?);
    let offsets: Vec<Time> = testbed
        .link_started_at
        .iter()
        .map(|at| began.since(*at))
        .collect();
    Ok(summarize(
        scenario,
        &testbed.topology,
        &flows,
        &outcomes,
        &recording,
        link::events(scenario, &offsets),
    ))
}

/// Interval between checks of the programs beside the flows.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until a link, a relay or a server has ended. Otherwise flows would wait for their limit.
async fn wait_for_failure(testbed: &mut Testbed, servers: &mut [Daemon]) -> anyhow::Error {
    loop {
        time::sleep(POLL_INTERVAL).await;
        let mut servers = servers.iter_mut();
        let all = testbed.check_running();
        if let Err(failure) = all.and_then(|()| servers.try_for_each(Daemon::check_not_failed)) {
            return failure;
        }
    }
}

/// Starts the servers of all flows.
async fn start_servers(
    flows: &[&Flow],
    web: &WebServers,
    testbed: &Testbed,
    store: &PayloadStore,
    directory: &Path,
) -> Result<Vec<Daemon>> {
    let mut servers = Vec::new();
    for (host, option_sets) in web {
        let netns = testbed.host(host)?;
        servers.push(
            file_servers::start_nginx(netns, store.directory(), option_sets, directory).await?,
        );
    }
    let ftp = flows.iter().filter(|flow| flow.program == Program::Ftp);
    for host in ftp
        .map(|flow| accepting_host(flow))
        .collect::<BTreeSet<_>>()
    {
        servers.push(
            file_servers::start_vsftpd(testbed.host(host)?, store.directory(), directory).await?,
        );
    }
    for (number, flow) in flows.iter().enumerate() {
        let (server, port) = (accepting_host(flow), iperf_port(number));
        match flow.program {
            Program::Iperf3 => {
                servers.push(iperf3::serve(testbed.host(server)?, port, directory).await?);
            }
            Program::Udt => {
                servers.push(udt::serve(testbed.host(server)?, port, directory).await?);
            }
            Program::Command => {
                let topology = &testbed.topology;
                let command = command::HostCommand::of_server(flow, topology, store, directory)?;
                if let Some((command, port)) = command {
                    servers.push(command.serve(testbed.host(server)?, port).await?);
                }
            }
            _ => {}
        }
    }
    Ok(servers)
}

/// Transfer that is ready to begin.
struct Transfer {
    number: usize,
    flow: Flow,
    netns: Netns,
    server: Ipv4Addr,
    /// Address that the client connects to: the server or a relay.
    target: SocketAddrV4,
    proxy: Option<String>,
    /// File that an upload sends.
    payload: PathBuf,
    sink: Option<Arc<Sink>>,
    sender_options: SenderOptions,
    limit: Time,
    /// Expected behaviour of the link that a probe crosses.
    expected_link: Option<ExpectedLink>,
    command: Option<command::HostCommand>,
    record: PathBuf,
}

/// Context of the transfers of one run.
struct TransferContext<'a> {
    scenario: &'a Scenario,
    testbed: &'a Testbed,
    web: &'a WebServers,
    store: &'a PayloadStore,
    sinks: &'a Sinks,
    directory: &'a Path,
}

impl TransferContext<'_> {
    fn prepare(&self, flows: &[&Flow]) -> Result<Vec<Transfer>> {
        let all = flows.iter().enumerate();
        all.map(|(number, flow)| self.prepare_one(number, flow))
            .collect()
    }

    fn prepare_one(&self, number: usize, flow: &Flow) -> Result<Transfer> {
        let (testbed, topology) = (self.testbed, &self.testbed.topology);
        let server = address_of(testbed, flow, accepting_host(flow))?;
        let sender_options = SenderOptions::of(self.scenario, topology, flow);
        let sink = self.sinks.get(&flow.name);
        let sink = sink.filter(|_| flow.program.carries_a_file()).cloned();
        if let (Some(sink), Some(size)) = (&sink, flow.size) {
            sink.clear(size)?;
        }
        Ok(Transfer {
            number,
            netns: testbed.host(opening_host(flow))?.clone(),
            server,
            target: match &flow.via {
                Some(via) => socket_address(testbed, flow, via)?,
                None => SocketAddrV4::new(
                    server,
                    sockets::server_port(self.web, number, flow, &sender_options),
                ),
            },
            proxy: proxy_url(testbed, flow)?,
            payload: self
                .store
                .directory()
                .join(payload_name(flow.size.unwrap_or_default())),
            sink,
            limit: self.scenario.timeout,
            expected_link: expected_link(self.scenario, topology, flow),
            command: self.command(flow)?,
            record: self.directory.join(record_name(flow)),
            sender_options,
            flow: flow.clone(),
        })
    }

    fn command(&self, flow: &Flow) -> Result<Option<command::HostCommand>> {
        let build = || {
            let topology = &self.testbed.topology;
            command::HostCommand::of(flow, topology, self.store, self.directory)
        };
        let has_command = flow.program == Program::Command;
        has_command.then(build).transpose()
    }
}

/// Address at which the client of `flow` reaches `host`.
fn address_of(testbed: &Testbed, flow: &Flow, host: &str) -> Result<Ipv4Addr> {
    let address = testbed.topology.address(opening_host(flow), host);
    address.with_context(|| format!("flow {}: {host} has no address", flow.name))
}

fn socket_address(testbed: &Testbed, flow: &Flow, at: &HostPort) -> Result<SocketAddrV4> {
    Ok(SocketAddrV4::new(
        address_of(testbed, flow, &at.host)?,
        at.port,
    ))
}

/// Returns the URL of the proxy, if the flow uses one.
fn proxy_url(testbed: &Testbed, flow: &Flow) -> Result<Option<String>> {
    let Some(proxy) = &flow.proxy else {
        return Ok(None);
    };
    let address = socket_address(testbed, flow, &proxy.at)?;
    Ok(Some(format!("{}://{address}", proxy.scheme)))
}

/// File name of a program's own record: one JSON object, or a probe's lines.
fn record_name(flow: &Flow) -> String {
    let ending = if flow.program == Program::Probe {
        "jsonl"
    } else {
        "json"
    };
    format!("{}.{ending}", flow.name)
}

impl Transfer {
    async fn run(self) -> Result<(usize, Outcome)> {
        time::sleep(self.flow.start.into()).await;
        let name = self.flow.name.clone();
        let limit = Duration::from(self.limit);
        let Ok(outcome) = time::timeout(limit, self.transfer()).await else {
            let output = self
                .command
                .as_ref()
                .map(command::HostCommand::last_log_line);
            let output = output.map_or_else(String::new, |output| format!(": {output}"));
            bail!(
                "flow {name} took longer than the timeout of {}{output}",
                self.limit
            );
        };
        Ok((
            self.number,
            outcome.with_context(|| format!("flow {name}"))?,
        ))
    }

    async fn transfer(&self) -> Result<Outcome> {
        let (flow, netns, record) = (&self.flow, &self.netns, &self.record);
        match flow.program {
            Program::Curl | Program::Ftp => self.transfer_file().await,
            Program::Iperf3 => {
                iperf3::measure(netns, self.target, flow, &self.sender_options, record).await
            }
            Program::Probe => {
                probe::measure(flow, self.server, self.expected_link.as_ref(), record).await
            }
            Program::Udt => udt::measure(netns, self.target, flow, record).await,
            Program::Command => {
                let command = self.command.as_ref().context("there is no command")?;
                command
                    .measure(netns, flow.size.unwrap_or_default().get(), &flow.figures)
                    .await
            }
        }
    }

    /// Transfers a file with curl.
    async fn transfer_file(&self) -> Result<Outcome> {
        let sink = self.sink.as_ref();
        let sink = sink.context("there is no receiving file")?;
        let upload = self.flow.direction == Direction::Upload;
        let url = match self.flow.program {
            Program::Ftp if upload => format!("ftp://{}/{}", self.target, sink.name()),
            Program::Ftp => format!("ftp://{}/{}", self.target, self.file()),
            _ => format!("http://{}/{}", self.target, self.file()),
        };
        let request = curl::CurlRequest {
            url: &url,
            proxy: self.proxy.as_deref(),
            limit: self.limit,
            active: self.flow.ftp_active,
        };
        if upload {
            curl::send(&self.netns, request, &self.payload, &self.record).await
        } else {
            curl::fetch(&self.netns, request, sink, &self.record).await
        }
    }

    fn file(&self) -> String {
        payload_name(self.flow.size.unwrap_or_default())
    }
}

/// Runs all transfers concurrently; the first failure ends the others.
async fn run_all(transfers: Vec<Transfer>) -> Result<Vec<Outcome>> {
    let mut running: JoinSet<_> = transfers.into_iter().map(Transfer::run).collect();
    let mut outcomes = BTreeMap::new();
    while let Some(ended) = running.join_next().await {
        let (number, outcome) = ended.context("a transfer panicked")??;
        outcomes.insert(number, outcome);
    }
    Ok(outcomes.into_values().collect())
}

/// Checks byte counts and hashes of received files, after all clocks have stopped.
fn verify_received_files(
    flows: &[&Flow],
    outcomes: &[Outcome],
    store: &PayloadStore,
    sinks: &Sinks,
) -> Result<()> {
    for (flow, outcome) in flows.iter().zip(outcomes) {
        let (true, Some(size)) = (flow.program.carries_a_file(), flow.size) else {
            continue;
        };
        let place = || format!("flow {}", flow.name);
        ensure!(
            outcome.bytes == size.get(),
            "{}: curl counted {} bytes",
            place(),
            outcome.bytes
        );
        let hash = store.hash(size).with_context(place)?;
        sinks
            .get(&flow.name)
            .with_context(place)?
            .verify(size, hash)
            .with_context(place)?;
    }
    Ok(())
}

/// Checks the hashes of files that commands created.
fn verify_created_files(flows: &[&Flow], topology: &Topology, store: &PayloadStore) -> Result<()> {
    for flow in flows {
        let place = || format!("flow {}", flow.name);
        let (Some(file), Some(size)) = (command::created_file(flow, topology, store)?, flow.size)
        else {
            continue;
        };
        let hash = store.hash(size).with_context(place)?;
        payload::verify(&file, size, hash).with_context(place)?;
    }
    Ok(())
}

/// Samples of flows over UDT, which the kernel does not have.
fn udt_samples(
    flows: &[&Flow],
    topology: &Topology,
    directory: &Path,
    began_s: f64,
) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for (number, flow) in flows.iter().enumerate() {
        if flow.program == Program::Udt {
            let record = directory.join(record_name(flow));
            let ends = ends(number, flow, topology).with_context(|| flow.name.clone())?;
            all.extend(udt::samples(&record, flow, &ends, began_s)?);
        }
    }
    Ok(all)
}

/// Sending and receiving address of a flow. The client's port is 0, because nothing uses it.
fn ends(number: usize, flow: &Flow, topology: &Topology) -> Option<udt::FlowEnds> {
    let end = |host: &String, other: &String| {
        let port = if host == accepting_host(flow) {
            iperf_port(number)
        } else {
            0
        };
        let at = SocketAddrV4::new(topology.address(other, host)?, port);
        Some((host.as_str().into(), at.into()))
    };
    Some([end(&flow.from, &flow.to)?, end(&flow.to, &flow.from)?])
}

/// Unix time in seconds, as in the records of programs.
fn unix_s() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
