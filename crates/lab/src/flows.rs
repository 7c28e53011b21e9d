// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flows of one run on a standing testbed: servers first, then all transfers at their times,
//! TCP_INFO beside them, and at the end the proof that the right bytes arrived.

use crate::{
    legs, measure,
    payload::{Landing, Store, payload_name},
    programs::{Outcome, curl, daemon::Daemon, ftp, iperf3, nginx, probe, udt},
    sampler::{Recording, Sample, Sampler},
    scenario::{Direction, Flow, HostPort, Program, Scenario},
    schedule,
    sending::Sending,
    testbed::Testbed,
    topology::Topology,
    view_plan,
};
use anyhow::{Context, Result, bail, ensure};
use longhaul_linux::{clock, netns::Netns};
use longhaul_results::result::{Event, Metrics, Run, Series};
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};
use tokio::{task::JoinSet, time};

/// Where the transfers of a scenario arrive, by flow.
pub(crate) type Landings = BTreeMap<String, Arc<Landing>>;

/// Runs every flow of `scenario` that is on; `delivered` counts payload bytes as they arrive.
pub(crate) async fn execute(
    scenario: &Scenario,
    testbed: &mut Testbed,
    store: &Store,
    landings: &Landings,
    directory: &Path,
    delivered: Arc<AtomicU64>,
) -> Result<Run> {
    let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.when).collect();
    let web = web_servers(scenario, &testbed.topology, &flows);
    let mut servers = serve(&flows, &web, testbed, store, directory).await?;
    let place = Place {
        scenario,
        testbed,
        web: &web,
        store,
        landings,
        directory,
    };
    let transfers = place.prepare(&flows)?;
    let receivers = flows.iter().map(|flow| flow.to.clone()).collect();
    let record = directory.join("tcp_info.jsonl");
    let (began, began_s) = (clock::now(), unix_s());
    let sampler = Sampler::start(&testbed.hosts(), receivers, delivered, &record)?;
    let outcomes = tokio::select! {
        outcomes = all(transfers) => outcomes,
        gone = end_of_a_helper(testbed, &mut servers) => Err(gone),
    };
    let mut recording = sampler.stop()?;
    testbed.still_stands()?;
    let outcomes = outcomes?;
    for server in servers {
        server.stop().await?;
    }
    verify(&flows, &outcomes, store, landings)?;
    recording.join(untold(&flows, &testbed.topology, directory, began_s)?);
    let ahead: Vec<Time> = testbed.since.iter().map(|at| began.since(*at)).collect();
    Ok(describe(
        scenario,
        &testbed.topology,
        &flows,
        &outcomes,
        &recording,
        schedule::events(scenario, &ahead),
    ))
}

/// How often the programs beside the flows are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for the end of a link, a relay or a server, without which flows would wait for their limit.
async fn end_of_a_helper(testbed: &mut Testbed, servers: &mut [Daemon]) -> anyhow::Error {
    loop {
        time::sleep(LOOK).await;
        let mut servers = servers.iter_mut();
        let all = testbed.still_stands();
        if let Err(gone) = all.and_then(|()| servers.try_for_each(Daemon::has_not_failed)) {
            return gone;
        }
    }
}

/// The hosts that curl fetches from, each with the ways in which its connections send.
pub(crate) type WebServers = BTreeMap<String, Vec<Sending>>;

pub(crate) fn web_servers(scenario: &Scenario, topology: &Topology, flows: &[&Flow]) -> WebServers {
    let mut servers = WebServers::new();
    for flow in flows.iter().filter(|flow| flow.program == Program::Curl) {
        let sending = Sending::of(scenario, topology, flow);
        let ways = servers.entry(flow.from.clone()).or_default();
        if !ways.contains(&sending) {
            ways.push(sending);
        }
    }
    servers
}

async fn serve(
    flows: &[&Flow],
    web: &WebServers,
    testbed: &Testbed,
    store: &Store,
    directory: &Path,
) -> Result<Vec<Daemon>> {
    let mut servers = Vec::new();
    for (host, ways) in web {
        let netns = testbed.host(host)?;
        servers.push(nginx::start(netns, store.directory(), ways, directory).await?);
    }
    let ftp = flows.iter().filter(|flow| flow.program == Program::Ftp);
    for host in ftp.map(|flow| accepting(flow)).collect::<BTreeSet<_>>() {
        servers.push(ftp::start(testbed.host(host)?, store.directory(), directory).await?);
    }
    for (number, flow) in flows.iter().enumerate() {
        let (server, port) = (accepting(flow), iperf_port(number));
        match flow.program {
            Program::Iperf3 => {
                servers.push(iperf3::serve(testbed.host(server)?, port, directory).await?);
            }
            Program::Udt => {
                servers.push(udt::serve(testbed.host(server)?, port, directory).await?);
            }
            _ => {}
        }
    }
    Ok(servers)
}

/// The host that waits for the connection; a probe's packets go where its data goes.
pub(crate) fn accepting(flow: &Flow) -> &str {
    match (flow.program, flow.direction) {
        (program, Direction::Download) if program.has_a_client() => &flow.from,
        _ => &flow.to,
    }
}

/// The host that opens it.
pub(crate) fn opening(flow: &Flow) -> &str {
    match (flow.program, flow.direction) {
        (program, Direction::Download) if program.has_a_client() => &flow.to,
        _ => &flow.from,
    }
}

/// Flows that share a host need a port each.
pub(crate) fn iperf_port(number: usize) -> u16 {
    iperf3::PORT.saturating_add(number as u16)
}

/// A transfer, ready to begin.
struct Transfer {
    number: usize,
    flow: Flow,
    netns: Netns,
    server: Ipv4Addr,
    /// Where the client connects: the server, or a relay before it.
    target: SocketAddrV4,
    proxy: Option<String>,
    /// What an upload sends.
    payload: PathBuf,
    landing: Option<Arc<Landing>>,
    sending: Sending,
    limit: Time,
    /// What a probe's packets should meet.
    expected: Option<probe::Expected>,
    record: PathBuf,
}

/// Where the transfers of one run take place.
struct Place<'a> {
    scenario: &'a Scenario,
    testbed: &'a Testbed,
    web: &'a WebServers,
    store: &'a Store,
    landings: &'a Landings,
    directory: &'a Path,
}

impl Place<'_> {
    fn prepare(&self, flows: &[&Flow]) -> Result<Vec<Transfer>> {
        let all = flows.iter().enumerate();
        all.map(|(number, flow)| self.transfer(number, flow))
            .collect()
    }

    fn transfer(&self, number: usize, flow: &Flow) -> Result<Transfer> {
        let (testbed, topology) = (self.testbed, &self.testbed.topology);
        let server = seen(testbed, flow, accepting(flow))?;
        let sending = Sending::of(self.scenario, topology, flow);
        let landing = self.landings.get(&flow.name);
        let landing = landing.filter(|_| flow.program.carries_a_file()).cloned();
        if let (Some(landing), Some(size)) = (&landing, flow.size) {
            landing.clear(size)?;
        }
        Ok(Transfer {
            number,
            netns: testbed.host(opening(flow))?.clone(),
            server,
            target: match &flow.via {
                Some(via) => reached(testbed, flow, via)?,
                None => SocketAddrV4::new(server, self.port(number, flow, &sending)),
            },
            proxy: proxy(testbed, flow)?,
            payload: self
                .store
                .directory()
                .join(payload_name(flow.size.unwrap_or_default())),
            landing,
            limit: self.scenario.limit,
            expected: probe::expected(self.scenario, topology, flow),
            record: self.directory.join(record_name(flow)),
            sending,
            flow: flow.clone(),
        })
    }

    /// Where the server of a flow listens.
    fn port(&self, number: usize, flow: &Flow, sending: &Sending) -> u16 {
        let way = || {
            let ways = self.web.get(&flow.from)?;
            ways.iter().position(|way| way == sending)
        };
        match flow.program {
            Program::Curl => nginx::port(way().unwrap_or_default()),
            Program::Ftp => ftp::PORT,
            _ => iperf_port(number),
        }
    }
}

/// The address under which the client of `flow` sees `host`.
fn seen(testbed: &Testbed, flow: &Flow, host: &str) -> Result<Ipv4Addr> {
    let address = testbed.topology.address(opening(flow), host);
    address.with_context(|| format!("flow {}: {host} has no address", flow.name))
}

fn reached(testbed: &Testbed, flow: &Flow, at: &HostPort) -> Result<SocketAddrV4> {
    Ok(SocketAddrV4::new(seen(testbed, flow, &at.host)?, at.port))
}

/// The proxy's URL.
fn proxy(testbed: &Testbed, flow: &Flow) -> Result<Option<String>> {
    let Some(proxy) = &flow.proxy else {
        return Ok(None);
    };
    let address = reached(testbed, flow, &proxy.at)?;
    Ok(Some(format!("{}://{address}", proxy.scheme)))
}

/// A program's own record: one JSON object, or a probe's lines.
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
            bail!("flow {name} took longer than the limit of {}", self.limit);
        };
        Ok((
            self.number,
            outcome.with_context(|| format!("flow {name}"))?,
        ))
    }

    async fn transfer(&self) -> Result<Outcome> {
        let (flow, netns, record) = (&self.flow, &self.netns, &self.record);
        match flow.program {
            Program::Curl | Program::Ftp => self.carry().await,
            Program::Iperf3 => {
                iperf3::measure(netns, self.target, flow, &self.sending, record).await
            }
            Program::Probe => {
                probe::measure(flow, self.server, self.expected.as_ref(), record).await
            }
            Program::Udt => udt::measure(netns, self.target, flow, record).await,
        }
    }

    /// A file, by curl.
    async fn carry(&self) -> Result<Outcome> {
        let landing = self.landing.as_ref();
        let landing = landing.context("there is no place to arrive")?;
        let upload = self.flow.direction == Direction::Upload;
        let url = match self.flow.program {
            Program::Ftp if upload => format!("ftp://{}/{}", self.target, landing.name()),
            Program::Ftp => format!("ftp://{}/{}", self.target, self.file()),
            _ => format!("http://{}/{}", self.target, self.file()),
        };
        let order = curl::Order {
            url: &url,
            proxy: self.proxy.as_deref(),
            limit: self.limit,
            active: self.flow.active,
        };
        match upload {
            true => curl::send(&self.netns, order, &self.payload, &self.record).await,
            false => curl::fetch(&self.netns, order, landing, &self.record).await,
        }
    }

    fn file(&self) -> String {
        payload_name(self.flow.size.unwrap_or_default())
    }
}

/// Runs all at the same time; the first failure ends the others.
async fn all(transfers: Vec<Transfer>) -> Result<Vec<Outcome>> {
    let mut running: JoinSet<_> = transfers.into_iter().map(Transfer::run).collect();
    let mut outcomes = BTreeMap::new();
    while let Some(ended) = running.join_next().await {
        let (number, outcome) = ended.context("a transfer panicked")??;
        outcomes.insert(number, outcome);
    }
    Ok(outcomes.into_values().collect())
}

/// The clocks have stopped: now the hashes.
fn verify(flows: &[&Flow], outcomes: &[Outcome], store: &Store, landings: &Landings) -> Result<()> {
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
        landings
            .get(&flow.name)
            .with_context(place)?
            .verify(size, hash)
            .with_context(place)?;
    }
    Ok(())
}

/// What the kernel does not tell of flows over UDT.
fn untold(
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

/// Where a flow's data leaves and arrives. Nobody asks for the port of its client.
fn ends(number: usize, flow: &Flow, topology: &Topology) -> Option<udt::Ends> {
    let end = |host: &String, other: &String| {
        let port = match host == accepting(flow) {
            true => iperf_port(number),
            false => 0,
        };
        let at = SocketAddrV4::new(topology.address(other, host)?, port);
        Some((host.as_str().into(), at.into()))
    };
    Some([end(&flow.from, &flow.to)?, end(&flow.to, &flow.from)?])
}

/// The time that records of programs have.
fn unix_s() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// The figures of a run, and its course, of what programs told and samples saw; `events` fell into it.
pub(crate) fn describe(
    scenario: &Scenario,
    topology: &Topology,
    flows: &[&Flow],
    outcomes: &[Outcome],
    recording: &Recording,
    events: Vec<Event>,
) -> Run {
    let all = || flows.iter().copied().zip(outcomes);
    let transfers: Vec<_> = all().filter(|(flow, _)| flow.program.transfers()).collect();
    let mut metrics = goodput(&transfers);
    for (flow, outcome) in all().filter(|(flow, _)| !flow.program.transfers()) {
        metrics.extend(probed(flow, outcome, flows.len() == 1));
    }
    let Some((flow, _)) = transfers.first() else {
        return Run {
            metrics,
            ..Run::default()
        };
    };
    let retransmits = retransmits(&transfers, recording, topology);
    metrics.insert("retransmits".to_owned(), retransmits);
    metrics.extend(measure::of(scenario, topology, recording));
    let begin = begin_s(flow);
    let mut series = arriving(&transfers, begin, recording);
    series.legs = legs::of(scenario, topology, recording);
    series.courses = view_plan::courses(scenario, topology, recording);
    series.begin_s = begin;
    series.events = events;
    Run {
        metrics,
        series: Some(series),
        ..Run::default()
    }
}

/// When what `flow` moves begins to count.
fn begin_s(flow: &Flow) -> f64 {
    (flow.start + flow.omit.unwrap_or_default()).as_secs_f64()
}

/// What arrives from `begin` seconds on, at all hosts together that data goes to.
fn arriving(transfers: &[(&Flow, &Outcome)], begin: f64, recording: &Recording) -> Series {
    let mut sum = Series::default();
    let receivers: BTreeSet<&String> = transfers.iter().map(|(flow, _)| &flow.to).collect();
    for receiver in receivers {
        let there = || transfers.iter().filter(|(flow, _)| flow.to == *receiver);
        let bytes = there().map(|(_, outcome)| outcome.bytes).sum();
        let ends = there().map(|(flow, outcome)| begin_s(flow) + outcome.seconds);
        let end = ends.fold(begin, f64::max);
        let series = recording.series(receiver, begin, bytes, end - begin);
        sum.bin_ms = series.bin_ms;
        let bins = sum.goodput_bps.len().max(series.goodput_bps.len());
        sum.goodput_bps.resize(bins, 0.0);
        for (all, here) in sum.goodput_bps.iter_mut().zip(series.goodput_bps) {
            *all += here;
        }
    }
    sum
}

/// What all transfers carried, and each if there are several; none is no figure.
fn goodput(transfers: &[(&Flow, &Outcome)]) -> Metrics {
    let mut metrics = Metrics::new();
    let rate = |outcome: &Outcome| outcome.bytes as f64 * 8.0 / outcome.seconds;
    if let [(_, only)] = transfers {
        metrics.extend(only.extra.clone());
    }
    if !transfers.is_empty() {
        let sum = transfers.iter().map(|(_, outcome)| rate(outcome)).sum();
        metrics.insert("goodput_bps".to_owned(), sum);
    }
    for (flow, outcome) in transfers.iter().filter(|_| transfers.len() > 1) {
        metrics.insert(format!("{}_goodput_bps", flow.name), rate(outcome));
        let named = |(figure, value): (&String, &f64)| (format!("{}_{figure}", flow.name), *value);
        metrics.extend(outcome.extra.iter().map(named));
    }
    let jain = jain(transfers).filter(|_| share_a_path(transfers));
    metrics.extend(jain.map(|index| ("jain_ratio".to_owned(), index)));
    metrics
}

/// Whether all of them go from the same host to the same host, so that they share what there is.
fn share_a_path(transfers: &[(&Flow, &Outcome)]) -> bool {
    let ends = |(flow, _): &(&Flow, &Outcome)| (flow.from.clone(), flow.to.clone());
    transfers
        .windows(2)
        .all(|two| ends(&two[0]) == ends(&two[1]))
}

/// Jain's fairness index over all connections, (Σx)² / (n Σx²): 1 if all carried alike, 1/n if one
/// carried all. `None` of a single one, or where a program does not tell its connections apart.
fn jain(transfers: &[(&Flow, &Outcome)]) -> Option<f64> {
    let rate = |outcome: &Outcome| match outcome.connections_bps.is_empty() {
        true => vec![outcome.bytes as f64 * 8.0 / outcome.seconds],
        false => outcome.connections_bps.clone(),
    };
    let rates: Vec<f64> = transfers
        .iter()
        .flat_map(|(_, outcome)| rate(outcome))
        .collect();
    let squares: f64 = rates.iter().map(|x| x * x).sum();
    let index = rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares);
    (rates.len() > 1 && index.is_finite()).then_some(index)
}

/// A probe's figures, under its name unless it is alone.
fn probed(flow: &Flow, outcome: &Outcome, alone: bool) -> Metrics {
    let name = |figure: &String| match alone {
        true => figure.clone(),
        false => format!("{}_{figure}", flow.name),
    };
    let named = |(figure, value): (&String, &f64)| (name(figure), *value);
    outcome.extra.iter().map(named).collect()
}

/// Segments sent again: what the samples saw on any leg, or the programs told, whichever is more.
fn retransmits(transfers: &[(&Flow, &Outcome)], recording: &Recording, topology: &Topology) -> f64 {
    let hosts = topology.hosts.iter();
    let seen: u64 = hosts.map(|host| recording.retransmits(host)).sum();
    let told: Option<u64> = transfers
        .iter()
        .map(|(_, outcome)| outcome.retransmits)
        .sum();
    told.map_or(seen, |told| told.max(seen)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_linux::sock_diag::Connection;

    fn flow(name: &str) -> Flow {
        toml::from_str(&format!(
            "name = '{name}'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'"
        ))
        .unwrap()
    }

    fn outcome(connections_bps: &[f64]) -> Outcome {
        Outcome {
            bytes: 1000,
            seconds: 1.0,
            retransmits: None,
            connections_bps: connections_bps.to_vec(),
            extra: Metrics::from([("first_byte_s".to_owned(), 0.5)]),
        }
    }

    #[test]
    fn several_transfers_have_their_figures_under_their_names() {
        let (a, b) = (flow("a"), flow("b"));
        let (one, two) = (outcome(&[]), outcome(&[]));
        let metrics = goodput(&[(&a, &one), (&b, &two)]);
        assert_eq!(metrics["goodput_bps"], 16_000.0);
        assert_eq!(metrics["b_goodput_bps"], 8000.0);
        assert_eq!(metrics["a_first_byte_s"], 0.5);
        assert_eq!(goodput(&[(&a, &one)])["first_byte_s"], 0.5);
    }

    #[test]
    fn what_arrives_at_either_end_is_in_the_course() {
        let there = flow("there");
        let back = Flow {
            from: "b".to_owned(),
            to: "a".to_owned(),
            ..flow("back")
        };
        let sample = |host: &str, at_s, bytes_received| Sample {
            at_s,
            host: Arc::from(host),
            connection: Connection {
                bytes_received,
                ..Connection::between(([10, 9, 0, 1], 1).into(), ([10, 9, 0, 2], 2).into())
            },
        };
        let ends = ["a", "b"].map(|host| sample(host, 1.0, 1000));
        let recording = Recording::new(ends.to_vec());
        let (one, two) = (outcome(&[]), outcome(&[]));
        let course = arriving(&[(&there, &one), (&back, &two)], 0.0, &recording);
        assert_eq!(course.goodput_bps.len(), 10);
        assert!((course.goodput_bps[9] - 16_000.0).abs() < 1.0, "{course:?}");
    }

    #[test]
    fn fairness_is_over_connections_not_flows() {
        let (a, b) = (flow("a"), flow("b"));
        let index = |one: &[f64], two: &[f64]| jain(&[(&a, &outcome(one)), (&b, &outcome(two))]);
        assert_eq!(index(&[5.0, 5.0], &[5.0]), Some(1.0));
        assert_eq!(index(&[9.0, 0.0], &[0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[(&a, &outcome(&[5.0]))]), None);
        let elsewhere = Flow {
            from: "c".to_owned(),
            ..flow("c")
        };
        let metrics = |other| goodput(&[(&a, &outcome(&[])), (other, &outcome(&[]))]);
        assert!(metrics(&b).contains_key("jain_ratio"));
        assert!(!metrics(&elsewhere).contains_key("jain_ratio"));
    }
}
